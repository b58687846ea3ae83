"""Fake tensors and symbolic sizes, on which capture runs tensor operations.

`symbolic_shapes.py` decides which sizes and numbers are symbolic, makes the symbols and tracks them, `fake_tensors.py`
makes fake tensors with them, and `checks.py` has what eager's kernels refuse and fake tensors do not, and tells the
program's errors from those of fake tensors.
Input: real tensors; output: fake ones, and conditions for the guards.
"""
