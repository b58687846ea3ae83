"""Turns a notebook cell into functions that can be compiled.

`names` finds the names that a statement binds and the statements that must stay module code; `parse` splits the cell
into a skeleton (module code) and units (functions); `awaiting` handles cells with top-level ``await``.
"""
