"""The table of lowering rules, filled on the line above each rule.

A rule gets the `Body` to fill, then the node's arguments, in which a tensor is an `Operand`
and everything else is as it stands in the graph.  It ends with `body.store(value)`, once for each result,
or raises `NotLowered`, and then the node stays a call of PyTorch's kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from compiler_core.loops import ir
from compiler_core.support.size_expr import Real, Size


class NotLowered(Exception):
    """This node is left to PyTorch; the message says why."""


@dataclass(frozen=True)
class Operand:
    """A tensor argument: where it lies, and its type."""

    view: ir.View
    dtype: torch.dtype
    aligned: bool | None = False
    """Whether its buffer begins at an aligned address, as far as is known; None: it is an input, whose address each
    call tells."""


@dataclass(frozen=True)
class Value:
    """A value inside a body."""

    argument: ir.Argument
    dtype: torch.dtype


def refuse_bools(x: Value) -> None:
    """Leave bools to eager's kernel, which raises on them."""
    if x.dtype is torch.bool:
        raise NotLowered("eager's kernel raises on bools")


Number = int | float | bool
Symbolic = Size | Real
Rule = Callable[..., None]
RULES: dict[torch._ops.OpOverload, Rule] = {}


def lowers(*targets: torch._ops.OpOverload) -> Callable[[Rule], Rule]:
    """Put the decorated rule into the table for each of `targets`."""

    def register(rule: Rule) -> Rule:
        for target in targets:
            if target in RULES:
                raise ValueError(f"{target} already has a lowering rule")
            RULES[target] = rule
        return rule

    return register
