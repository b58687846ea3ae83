"""What autograd added, and what the backward is given: each value, saved or computed again, with the reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from compiler_core.records.artifacts import ItemId


@dataclass(slots=True)
class Expansion:
    """What one captured operation became: nodes of the joint graph (of the forward, where there is no backward)."""

    node: ItemId
    target: str
    forward: list[ItemId]
    backward: list[ItemId]
    """What autograd added for it, by its `functions`, such as ``CosBackward0``."""
    functions: list[str]
    decomposed: list[str]
    """Operators that were taken apart on the way."""


@dataclass(slots=True)
class Value:
    """What the partition decided for one value of the forward graph, and why."""

    node: ItemId
    decision: Literal["saved", "recomputed", "neither"]
    bytes: int
    reason: str
    cut: list[str] | None = None
    """The edge of the flow network that was cut here, as two node names."""
    drop_ns: int | None = None
    """Of a saved value: the estimated time that the backward would spend more, were it not saved; None
    where it could not be computed again (an input, a random number)."""


@dataclass(slots=True)
class BudgetPoint:
    """What a memory budget (a share of the plain cut's bytes) gives: bytes saved, and the estimated time that
    the backward spends on computing again."""

    budget: float
    saved_bytes: int
    again_ns: int
    saved: list[ItemId] = field(default_factory=list)
    """The joint graph's nodes that are saved then."""


@dataclass(slots=True)
class Partition:
    """The min-cut beside the default, which saves all that the backward reads."""

    values: list[Value]
    saved_count: int
    saved_bytes: int
    default_saved_count: int
    default_saved_bytes: int
    again_ns: int = 0
    """The estimated time that the backward spends on what the forward has computed already."""
    curve: list[BudgetPoint] = field(default_factory=list)
    """Other memory budgets, from 1 to 0, where they were asked for."""
