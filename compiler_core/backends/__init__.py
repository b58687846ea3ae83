"""Backends: what turns a captured FX graph into a callable, and the parts of it that need a machine or a disk.

`registry` has the backends by name; `pipeline/graph.py` runs the stages of our own ones.  `graph_cache` loads and saves
compiled graphs (keys in `graph_key`, tensors in `constants_io`).  `printers` prints loops in a language, `code_edits`
replaces generated texts by the user's, `kernel_recorder` writes the results to the record, `graph_changes` records a
graph that a pass changed, `autotune` chooses block sizes by timing (`device_timer`), and `cuda_graphs` replays
launches (`replay_memory`: what a forward and its backward share).
"""
