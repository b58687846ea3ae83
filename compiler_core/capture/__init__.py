"""Capture: runs a frame's bytecode with symbolic values, which yields an FX graph, guards and side effects.

`interpreter.py` runs the code, with the opcodes of `opcodes/` over the values of `values/`; `rules/` has what a call of
each known function does.  `graph_builder.py` (over the classes of `builder/`) has what one attempt captured, with
`tensors/` for fake tensors and symbolic sizes, `side_effects.py` and `alias_guards.py` for changes of outside objects,
and `bytecode_emitter.py` for the code that makes values again.  `break_kinds.py` lists the kinds of graph breaks.
"""
