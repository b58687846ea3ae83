"""Symbolic values: what the interpreter keeps on its stack in place of Python's objects."""
