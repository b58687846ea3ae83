"""Why frames were compiled again.

facts    what differs from what a compile expects: the object, what of it, expected and got
layouts  how the layouts of two tensors differ

`records/advice.py` explains the facts, and says what to do.
"""
