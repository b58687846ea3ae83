"""The table of lowering rules, which the decorator `lowers` fills.

A rule is called with the `Body` to fill and the arguments of the node: a tensor as an `Operand`, everything else as in
the graph.  It calls `body.store(value)` once for each result, or raises `NotLowered`; then the node becomes a call of
PyTorch's operator.

The docstring of each rule shows an operator and the loops that it is lowered to.  The examples are checked by
`tests/loops/test_docstring_examples.py`, and updated by ``python -m tests.loops.docstring_examples``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from compiler_core.loops import ir
from compiler_core.support.size_expr import Real, Size
from compiler_core.torch_private import OpOverload

Rule = Callable[..., None]


class NotLowered(Exception):
    """Raised by a rule for a node that becomes a call of PyTorch's operator; the message is the reason."""


@dataclass(frozen=True)
class Operand:
    """A tensor argument: its view of a buffer, and its type."""

    view: ir.TensorView
    dtype: torch.dtype
    aligned: bool | None = False
    """Whether its buffer is known to start at an aligned address; None for an input, whose address differs by call."""


@dataclass(frozen=True)
class Element:
    """A value in a body, of the current index."""

    argument: ir.Argument
    dtype: torch.dtype
    is_number: bool = False
    """Whether it is a number that depends on symbols, not an element of a tensor."""
    is_positive: bool = False
    """Whether it is known to be greater than zero: a symbolic size."""


def refuse_bools(x: Element) -> None:
    """Raises `NotLowered` for bools, on which eager's kernel raises an error."""
    if x.dtype is torch.bool:
        raise NotLowered("eager's kernel raises on bools")


@dataclass(frozen=True)
class UserRule:
    """A lowering rule of the user; `failed` is called with the error if it raised one, and the usual rule is used."""

    lower: Rule
    failed: Callable[[Exception], None]


Number = int | float | bool
Symbolic = Size | Real
RULES: dict[OpOverload, Rule] = {}


def lowers(*targets: OpOverload) -> Callable[[Rule], Rule]:
    """Registers the decorated rule for each of `targets`.

    Raises:
        ValueError: there is a rule for one of them already.
    """

    def register(rule: Rule) -> Rule:
        for target in targets:
            if target in RULES:
                raise ValueError(f"{target} already has a lowering rule")
            RULES[target] = rule
        return rule

    return register
