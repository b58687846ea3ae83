"""Graph breaks: continues a frame as Python code after the part that was captured.

`break_points` decides where capture stops.  `frame_state` collects what the active frames need after the break.
`frame_codegen` generates the code object that replaces the frame, with `break_codegen` (runs the instruction that broke
the graph) and `resume_calls` (calls the resume functions, whose code `resume_functions` makes).  `eager_fallback` runs
a frame again if its graph fails at run time, unless that has run a collective (`collective_counts`);
custom operators do not run again.  `cached_calls` runs a frame again if a cache has another result than it had.

In: an interpreter that has stopped, and the compiled graph.  Out: a code object.
"""
