"""What happens to a frame and to a captured graph, each stage in order.

`frame` captures a frame, compiles its graph and replaces its code; `graph` compiles a graph to kernels.  Input: a frame
that is about to run; output: code to run in its place.

`compiled_region` decides for each frame of a compiled function whether to compile it, `code_state` has the state of
each code object, and `plain_frames` those that cannot be captured.  `breaking_code` finds the user's code at a graph
break.  `graph_passes` and `rule_passes` run passes and rules of the user, and `foreign_graph` records graphs that
others captured.
"""
