"""Traces a captured graph to a functional graph of ATen operators, with its backward.

`functionalize` runs the captured graph under PyTorch's functionalization, and records where each node came from.  It
replaces some operators (`decompositions`, `patches`, `replaced_calls`, `fused_updates`) and finds out how the outputs
share memory (`outputs`, `view_chains`), which writes need more than functionalization (`writes`), and what eager
PyTorch shares and saves (`eager_memory`).  Operators that come again are traced once (`repeats`).  What tracing
assumes about symbolic sizes is kept as text (`shape_assumptions`).
"""
