"""Builds a record from trace events.

1. ``record_builder``   which events are kept (`memory_budget`, `event_costs`), and when they are written
2. ``event_handlers``   a function for each event, which writes to a `partial_record` and its compiles
3. ``compile_builder``  one compile, with `graphs`, `kernels`, `partition`, `bytecode`, `guard_lines` and `guard_costs`
4. ``missed_entries``   why a frame was compiled again, from the guards of both compiles
"""
