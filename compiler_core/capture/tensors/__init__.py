"""Fake tensors and symbolic sizes, on which capture runs tensor operations.

`dynamic_policy.py` decides which sizes and numbers are symbolic, `symbolic_shapes.py` makes and tracks the symbols,
`fake_tensors.py` makes fake tensors with them (their order in memory: `element_order.py`), and `checks.py` has what
eager's kernels refuse and fake tensors do not, and tells the program's errors from those of fake tensors.
Input: real tensors; output: fake ones, and conditions for the guards.
"""
