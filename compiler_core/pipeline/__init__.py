"""What happens to a frame and to a captured graph, each stage in order.

`frame` captures a frame, compiles its graph and replaces its code; `graph` compiles a graph to kernels, and `parts`
splits one that waits for data, or of which the CPU computes some numbers for a GPU.  Input: a frame that is about to
run; output: code to run in its place.

`compiled_region` decides for each frame of a compiled function whether to compile it, and `code_state` has the state
of each code object.
"""
