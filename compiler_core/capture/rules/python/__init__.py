"""Rules for Python's builtins, operators and standard library, a file for each topic.

`operators.py` and `container_operators.py` have the operators; `builtins.py`, `iteration.py` and `text.py` builtins;
the others have one module of the standard library each, or a part of one.
"""
