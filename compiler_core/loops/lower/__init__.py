"""Lowering: translates a graph of aten operators to loops, one loop nest for each operator, and calls of PyTorch.

Input: an FX graph; output: an `ir.Program`.  `lowering` goes through the graph (`node_facts` says which nodes can be
loops); `table` has the lowering rules by operator, which fill the `Body` of a loop nest (`body`).  The rules are in
`pointwise`, `arithmetic`, `logical`, `creation`, `concatenation` (cat, pad, slices), `indexing`, `scattering`,
`reductions`, `pooling` and `dropout`.  Last, `in_place` removes copies of updated inputs.
"""

from __future__ import annotations

from compiler_core.loops.lower.lowering import lower
from compiler_core.loops.lower.table import NotLowered

__all__ = ["NotLowered", "lower"]
