"""What happens to a frame and to a captured graph, each stage in order.

`frame.py` captures a frame, compiles its graph and replaces its code; `graph.py` compiles a graph to kernels.
`compiled_region.py` decides for each frame of a compiled function whether to compile it, and `code_state.py` has the
state of each code object.  `frame_watch.py` watches which frames run, on demand.  Input: a frame that is about to run;
output: code to run in its place.
"""
