"""Estimates what each guard of stock `torch.compile` costs per call.

PyTorch measures its guard tree as a whole, and no guard of it can be checked alone.  So each guard counts as much as
its kind and the access steps to its value usually cost, and all are scaled to the cost that PyTorch measured.  A step
counts for the first guard that needs it, since the tree takes each step once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

from compiler_core.records import Guard

STEP_NS = 5.0
"""An access step on the way to a value."""
KIND_NS = {
    "ID_MATCH": 2.0, "TYPE_MATCH": 1.0, "EQUALS_MATCH": 2.0, "LENGTH_CHECK": 3.0, "DICT_CONTAINS": 8.0,
    "DIMENSION_DYNAMIC_MARKING_GUARD": 13.0, "LAMBDA_GUARD": 33.0, "TENSOR_MATCH": 70.0,
}  # fmt: skip
"""What a guard of each kind costs; only the ratios count.  ``make bench ARGS='-k kind_of_guard'`` measures them again.
They are not measured for each record: on a busy machine one measurement is off by a factor of ten."""
_MAX_STEPS = 100
"""Access steps counted for one source."""
_ACCESS_STEP = re.compile(r"\.\w+|\[[^\]]*\]")


def estimate_guard_costs(guards: Sequence[Guard], total_ns: float | None) -> None:
    """Sets `cost_ns` of each guard so that they add up to `total_ns`; does nothing if that was not measured."""
    if not total_ns:
        return
    reached: set[str] = set()
    costs = [_unscaled_cost(guard, reached) for guard in guards]
    scale = total_ns / max(sum(costs), 1.0)
    for guard, cost in zip(guards, costs, strict=True):
        guard.cost_ns = round(cost * scale, 1)


def _unscaled_cost(guard: Guard, reached: set[str]) -> float:
    """Returns the cost of a guard with the steps not yet in `reached`, to which they are added."""
    new = {guard.source[: found.end()] for found in islice(_ACCESS_STEP.finditer(guard.source), _MAX_STEPS)} - reached
    reached |= new
    return KIND_NS.get(guard.kind, KIND_NS["ID_MATCH"]) + STEP_NS * len(new)
