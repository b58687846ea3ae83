"""Rules: what a call of each known function or class, and each operator, does to symbolic values.

`table.py` has the table and the decorators that fill it; `calls.py` calls an object by its rule or by general rules,
which also make instances of classes.  `python/` and `torch/` have the rules for each function.  Input: a callable and
the values of its arguments; output: the value of the result.
"""
