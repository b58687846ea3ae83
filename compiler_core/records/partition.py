"""What autograd added to the captured operations, and which values are saved for the backward, with reasons."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from compiler_core.records.artifacts import ItemId


@dataclass(slots=True)
class Expansion:
    """The nodes of the joint graph made from one captured operation (of the forward graph if there is no backward)."""

    node: ItemId
    target: str
    forward: list[ItemId]
    backward: list[ItemId]
    """Nodes that autograd added, by its `functions`, such as ``CosBackward0``."""
    functions: list[str]
    decomposed: list[str]
    """Operators that were decomposed."""


@dataclass(slots=True)
class ValueDecision:
    """The partition's decision for one value of the forward graph, with the reason."""

    node: ItemId
    decision: Literal["saved", "recomputed", "neither"]
    bytes: int
    reason: str
    cut: list[str] | None = None
    """The edge of the flow network that was cut here, as two node names."""
    drop_ns: int | None = None
    """For a saved value: the estimated nanoseconds by which the backward would be slower if it were recomputed; None
    if it cannot be recomputed (an input, a random number)."""


@dataclass(slots=True)
class BudgetPoint:
    """The result of one memory budget, a share of the bytes that the min-cut saves without a budget: the saved bytes,
    and the estimated nanoseconds that the backward spends on recomputation."""

    budget: float
    saved_bytes: int
    again_ns: int
    saved: list[ItemId] = field(default_factory=list)
    """The nodes of the joint graph that are saved with this budget."""


@dataclass(slots=True)
class Partition:
    """The result of the min-cut partition, compared with the default, which saves all that the backward reads."""

    values: list[ValueDecision]
    saved_count: int
    saved_bytes: int
    default_saved_count: int
    default_saved_bytes: int
    again_ns: int = 0
    """The estimated nanoseconds that the backward spends on recomputation."""
    curve: list[BudgetPoint] = field(default_factory=list)
    """Results of other memory budgets, from 1 to 0 (``memory_curve=True``)."""
