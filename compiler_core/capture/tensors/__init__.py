"""Fake tensors and symbolic sizes, on which capture runs tensor operations.

`dynamic_policy.py` decides which sizes and numbers are symbolic, `symbolic_shapes.py` makes and tracks the symbols, and
`fake_tensors.py` makes fake tensors with them.  In go real tensors, out come fake ones, and conditions for the guards.
"""
