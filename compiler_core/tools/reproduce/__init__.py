"""Writes stand-alone files that show a fault of a compiler.

reproducer         a graph with few nodes and small inputs
first_difference   the first operation of a call whose value differs
break_reproducer   a graph break, with the user's functions
python_text        functions, modules and values as Python text
values             tensors and numbers: their text, and smaller ones
"""
