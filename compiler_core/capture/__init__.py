"""Capture: runs a frame's bytecode with symbolic values, which yields an FX graph, guards and side effects.

interpreter          runs the code, and knows where it may stop
opcodes/             a function for each instruction
values/              symbolic values
rules/               what a call of each known function does
attempt              what one attempt captured: `graph_builder` has the graph, `guard_collector` the guards
                     with the user's lines, `outside_objects` the objects from outside with their values,
                     `side_effects` their changes
made_state           what the first step of a training makes, made before its graph runs
tensors/             fake tensors and symbolic sizes
bytecode_emitter     the code that makes values again
break_kinds          the kinds of graph breaks
"""
