"""Looks at the compiles of a function: those in use, one with something changed, its partition and other ones.

compiled_before   `already_compiled`, `guards_text` and `decompiled`
what_if           compiles a call again with something changed
partition_plans   the ways to divide a joint graph
partition_report  what the compiler's partition saves, and why, for the record
opened_graph      a record of a graph that was not compiled here
"""
