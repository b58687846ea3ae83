"""Capture: runs a frame's bytecode with symbolic values, which yields an FX graph, guards and side effects.

interpreter          runs the code (`stop_points`: where it may stop)
opcodes/             a function for each instruction
values/              symbolic values; `value_builder` makes them of outside objects
rules/               what a call of each known function does; `function_markers` for functions that programs mark
graph_builder        what one attempt captured, over the classes of `builder/`
tensors/             fake tensors and symbolic sizes
side_effects         changes of outside objects; `alias_guards` keeps them apart
bytecode_emitter     the code that makes values again
break_kinds          the kinds of graph breaks
source_lines         the user's lines in the record; `step_recorder` records each step, on request
"""
