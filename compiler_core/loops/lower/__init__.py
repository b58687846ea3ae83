"""Lowering: translates a graph of aten operators to loops, one loop nest for each operator, and calls of PyTorch.

Input: an FX graph; output: an `ir.Program`.  `lowering` goes through the graph, and calls a rule for each operator that
has one, which fills the `Body` of a loop nest (`body`).  The rules are in `pointwise`, `arithmetic`, `creation`,
`indexing` (with cat, pad and slices), `scattering` and `reductions` (with pooling).
"""

from __future__ import annotations

from compiler_core.loops.lower.body import NotLowered
from compiler_core.loops.lower.lowering import lower
