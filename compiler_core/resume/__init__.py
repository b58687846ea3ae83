"""Graph breaks: continues a frame as Python code after the part that was captured.

`frame_codegen` decides where capture stops, and generates the code object that replaces the frame, with
`break_codegen`, which runs the instruction that broke the graph and calls the resume functions, whose code
`resume_functions` makes.  `observed_drops` finds the frames that cannot continue so.  `loop_functions` makes functions
for a loop, whose body is a function.  `eager_fallback` runs a frame again if its graph fails at run time, unless that
has run a collective, or if a cache has another result than it had; custom operators do not run again.

In: an interpreter that has stopped, and the compiled graph.  Out: a code object.
"""
