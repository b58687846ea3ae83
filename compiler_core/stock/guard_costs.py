"""What each guard of stock's costs a call, estimated: PyTorch measures its tree as a whole and lets no guard of it be
checked alone.

A guard of each kind is measured here, in a tree of its own, as are the steps on the way to a value; what that gives
for the guards of a compile is scaled to what PyTorch measured for all of them.  A step is counted for the first guard
behind it alone, as the tree takes it once.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import torch
from torch._C._dynamo import guards as cpp
from torch._dynamo.guards import GuardManagerType

from compiler_core.records import Guard

_CALLS, _ROUNDS = 200, 5
_STEPS = 100
"""Steps to a value that are counted."""
_STEP = re.compile(r"\.\w+|\[[^\]]*\]")


def estimate(guards: Sequence[Guard], whole: float | None) -> None:
    """Set the cost of each guard; none where the whole was not measured."""
    if not whole:
        return
    try:
        step, known = _measured()
    except (AttributeError, TypeError):
        return  # another PyTorch builds its trees in another way
    reached: set[str] = set()
    costs = [_cost(guard, step, known, reached) for guard in guards]
    scale = whole / max(sum(costs), 1.0)
    for guard, cost in zip(guards, costs, strict=True):
        guard.cost_ns = round(cost * scale, 1)


def _cost(guard: Guard, step: float, known: dict[str, float], reached: set[str]) -> float:
    new = {guard.source[: found.end()] for found in islice(_STEP.finditer(guard.source), _STEPS)} - reached
    reached |= new
    return known.get(guard.kind, known["ID_MATCH"]) + step * len(new)


@functools.cache
def _measured() -> tuple[float, dict[str, float]]:
    """Nanoseconds of a step, and of a guard of each kind."""
    tensor, number = torch.ones(2, 2), 7
    no_step, four_steps = (_nanoseconds(number, steps, None) for steps in (0, 4))
    keys = torch._C._dispatch_keys(tensor)
    made: dict[str, tuple[Any, Callable[[Any], Any]]] = {
        "ID_MATCH": (number, lambda at: at.add_id_match_guard(id(number), [""], None)),
        "TYPE_MATCH": (number, lambda at: at.add_type_match_guard(id(int), [""], None)),
        "EQUALS_MATCH": (number, lambda at: at.add_equals_match_guard(number, [""], None)),
        "LENGTH_CHECK": ([1], lambda at: at.add_length_check_guard(1, [""], None)),
        "DICT_CONTAINS": ({}, lambda at: at.add_dict_contains_guard(False, "a", [""], None)),
        "DIMENSION_DYNAMIC_MARKING_GUARD": (tensor, lambda at: at.add_no_hasattr_guard("a", [""], None)),
        "LAMBDA_GUARD": (number, lambda at: at.add_lambda_guard(lambda value: True, [""], None)),
        "TENSOR_MATCH": (
            tensor,
            lambda at: at.add_tensor_match_guard(tensor, [2, 2], [2, 1], "x", [""], None, torch.Tensor, keys),
        ),
    }
    leaves = {kind: max(_nanoseconds(value, 0, add) - no_step, 1.0) for kind, (value, add) in made.items()}
    return max((four_steps - no_step) / 4, 1.0), leaves


def _nanoseconds(value: Any, steps: int, add: Callable[[Any], Any] | None) -> float:
    """What checking a tree takes that goes so many steps and has this guard there.  The steps are through lists: a
    dict that stays as it was is passed over."""
    root, held = cpp.RootGuardManager(), value
    for _ in range(steps):
        held = [held]
    scope = {"x": held}
    at = root.framelocals_manager(("x", 0), "L['x']", held, GuardManagerType.GUARD_MANAGER)
    for _ in range(steps):
        held = held[0]
        at = at.list_getitem_manager(0, "L['x'][0]", held, GuardManagerType.GUARD_MANAGER)
    if add is not None:
        add(at)
    assert root.check(scope)
    best = float("inf")
    for _ in range(_ROUNDS):
        start = time.perf_counter_ns()
        for _ in range(_CALLS):
            root.check(scope)
        best = min(best, time.perf_counter_ns() - start)
    return best / _CALLS
