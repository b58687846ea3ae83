"""The time that guards add to a call.

Each guard is measured in a separate tree, which includes the path to its value.  Guards of one kind whose paths have
the same steps cost the same, so one of them is measured.  The whole tree costs less than the sum: there guards share
paths, and one version check covers many guards (`module_trees.py`).
"""

from __future__ import annotations

import time
import types
from collections.abc import Callable, Sequence
from typing import Any

from torch._C._dynamo import guards as cpp

from compiler_core.guards.kinds import GuardSpec
from compiler_core.guards.sources import AttrSource, Scope, Source
from compiler_core.guards.tree import GuardTree

MAX_MEASURED = 40
"""The most guards that are measured; measuring so many takes some three milliseconds."""
_CALLS, _ROUNDS = 20, 3


def guard_costs(guards: Sequence[GuardSpec], scope: Scope, code: types.CodeType) -> list[float | None]:
    """Returns nanoseconds a call for each guard; None for a guard beyond the first `MAX_MEASURED` classes."""
    empty_tree = _nanoseconds(cpp.RootGuardManager().check, scope)
    found: dict[Any, float] = {}
    for guard in guards:
        key = _cost_class(guard)
        if key not in found and len(found) < MAX_MEASURED:
            root = GuardTree(scope, code).build([guard], version_checks=False).root
            found[key] = round(max(_nanoseconds(root.check, scope) - empty_tree, 0.0), 1)
    return [found.get(_cost_class(guard)) for guard in guards]


def tree_cost(root: Any, scope: Scope) -> float:
    """Returns nanoseconds a call for a whole tree, given its root."""
    return _nanoseconds(root.check, scope)


def _nanoseconds(check: Callable[[dict[str, Any]], bool], scope: Scope) -> float:
    best, f_locals = float("inf"), scope.f_locals
    for _ in range(_ROUNDS):
        start = time.perf_counter_ns()
        for _ in range(_CALLS):
            check(f_locals)
        best = min(best, time.perf_counter_ns() - start)
    return round(best / _CALLS, 1)


def _cost_class(guard: GuardSpec) -> tuple[Any, ...]:
    """Returns a key that is equal for guards of the same cost: the kind and the steps of the path."""
    steps: list[Any] = []
    source: Source | None = guard.source
    while source is not None:
        steps.append((type(source), source.table if isinstance(source, AttrSource) else None))
        source = getattr(source, "base", None)
    return guard.kind, *steps
