"""Backends: what turns a captured FX graph into a callable, and the parts of it that need a machine or a disk.

`registry` has the backends by name; `pipeline/graph.py` runs the stages of our own ones.  `graph_cache` loads and saves
compiled graphs (keys in `graph_key`).  `kernel_recorder` writes the results to the record, and `cuda_graphs`
replays launches (`replay_pool`: the memory that the graphs of a function share, and whether a program still uses it;
`replay_memory`: what a forward and its backward share).
"""
