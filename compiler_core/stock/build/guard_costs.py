"""Estimates what each guard of stock `torch.compile` costs per call.

PyTorch measures its guard tree as a whole, and no guard of it can be checked alone.  So a guard of each kind is
measured here in a separate tree, and so is one access step on the way to a value.  The sum over the guards of a compile
is then scaled to the cost that PyTorch measured.  A step counts for the first guard that needs it, since the tree takes
each step once.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from compiler_core.records import Guard

if TYPE_CHECKING:  # a log is read without PyTorch unless costs are wanted
    import torch

_CALLS, _ROUNDS = 200, 5
_MAX_STEPS = 100
"""Access steps counted for one source."""
_ACCESS_STEP = re.compile(r"\.\w+|\[[^\]]*\]")


def estimate_guard_costs(guards: Sequence[Guard], total_ns: float | None) -> None:
    """Sets `cost_ns` of each guard so that they add up to `total_ns`; does nothing if that was not measured."""
    if not total_ns:
        return
    try:
        step_ns, leaf_ns = _measured_costs()
    except (AttributeError, TypeError):
        return  # this version of PyTorch builds its trees in another way
    reached: set[str] = set()
    costs = [_unscaled_cost(guard, step_ns, leaf_ns, reached) for guard in guards]
    scale = total_ns / max(sum(costs), 1.0)
    for guard, cost in zip(guards, costs, strict=True):
        guard.cost_ns = round(cost * scale, 1)


def _unscaled_cost(guard: Guard, step_ns: float, leaf_ns: dict[str, float], reached: set[str]) -> float:
    """Returns the cost of a guard with the steps not yet in `reached`, to which they are added."""
    new = {guard.source[: found.end()] for found in islice(_ACCESS_STEP.finditer(guard.source), _MAX_STEPS)} - reached
    reached |= new
    return leaf_ns.get(guard.kind, leaf_ns["ID_MATCH"]) + step_ns * len(new)


@functools.cache
def _measured_costs() -> tuple[float, dict[str, float]]:
    """Returns the nanoseconds of an access step, and of a guard of each kind."""
    import torch

    no_step, four_steps = (_nanoseconds(7, steps, None) for steps in (0, 4))
    leaves = {
        kind: max(_nanoseconds(value, 0, add) - no_step, 1.0)
        for kind, (value, add) in _example_guards(7, torch.ones(2, 2)).items()
    }
    return max((four_steps - no_step) / 4, 1.0), leaves


def _example_guards(number: int, tensor: torch.Tensor) -> dict[str, tuple[Any, Callable[[Any], Any]]]:
    """Returns for each kind of guard a value that passes it, and a function that adds the guard to a manager."""
    import torch

    keys = torch._C._dispatch_keys(tensor)
    return {
        "ID_MATCH": (number, lambda manager: manager.add_id_match_guard(id(number), [""], None)),
        "TYPE_MATCH": (number, lambda manager: manager.add_type_match_guard(id(int), [""], None)),
        "EQUALS_MATCH": (number, lambda manager: manager.add_equals_match_guard(number, [""], None)),
        "LENGTH_CHECK": ([1], lambda manager: manager.add_length_check_guard(1, [""], None)),
        "DICT_CONTAINS": ({}, lambda manager: manager.add_dict_contains_guard(False, "a", [""], None)),
        "DIMENSION_DYNAMIC_MARKING_GUARD": (
            tensor,
            lambda manager: manager.add_no_hasattr_guard("a", [""], None),
        ),
        "LAMBDA_GUARD": (number, lambda manager: manager.add_lambda_guard(lambda value: True, [""], None)),
        "TENSOR_MATCH": (
            tensor,
            lambda manager: manager.add_tensor_match_guard(tensor, [2, 2], [2, 1], "x", [""], None, torch.Tensor, keys),
        ),
    }


def _nanoseconds(value: Any, steps: int, add_guard: Callable[[Any], Any] | None) -> float:
    """Returns the time of checking a tree that goes `steps` steps to `value` and has this guard there.

    The steps go through lists, since a dict that did not change is skipped.
    """
    from torch._C._dynamo import guards as cpp
    from torch._dynamo.guards import GuardManagerType

    root, nested = cpp.RootGuardManager(), value
    for _ in range(steps):
        nested = [nested]
    scope = {"x": nested}
    manager = root.framelocals_manager(("x", 0), "L['x']", nested, GuardManagerType.GUARD_MANAGER)
    for _ in range(steps):
        nested = nested[0]
        manager = manager.list_getitem_manager(0, "L['x'][0]", nested, GuardManagerType.GUARD_MANAGER)
    if add_guard is not None:
        add_guard(manager)
    assert root.check(scope)
    best = float("inf")
    for _ in range(_ROUNDS):
        start = time.perf_counter_ns()
        for _ in range(_CALLS):
            root.check(scope)
        best = min(best, time.perf_counter_ns() - start)
    return best / _CALLS
