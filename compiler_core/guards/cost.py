"""What guards cost a call: each is measured in a tree of its own, with the way to the value it looks at.

Guards of one kind that are reached in the same way cost the same, so one of them is measured.  In the
whole tree they share ways, and seals stand for many: it costs less than their sum.
"""

from __future__ import annotations

import time
import types
from collections.abc import Callable, Sequence
from typing import Any

from torch._C._dynamo import guards as cpp

from compiler_core.guards.kinds import GuardSpec
from compiler_core.guards.sources import Attribute, Scope, Source
from compiler_core.guards.tree import GuardTree

MOST = 40
"""Kinds of guards that are measured: some three milliseconds."""
_CALLS, _ROUNDS = 20, 3


def costs(guards: Sequence[GuardSpec], scope: Scope, code: types.CodeType) -> list[float | None]:
    """Nanoseconds for each guard; None for those that were too many to measure."""
    none = _nanoseconds(cpp.RootGuardManager().check, scope)
    found: dict[Any, float] = {}
    for guard in guards:
        if (key := _alike(guard)) not in found and len(found) < MOST:
            root = GuardTree(scope, code).build([guard], sealing=False).root
            found[key] = round(max(_nanoseconds(root.check, scope) - none, 0.0), 1)
    return [found.get(_alike(guard)) for guard in guards]


def cost_of(root: Any, scope: Scope) -> float:
    """Nanoseconds for a whole tree."""
    return _nanoseconds(root.check, scope)


def _nanoseconds(check: Callable[[dict[str, Any]], bool], scope: Scope) -> float:
    best, f_locals = float("inf"), scope.f_locals
    for _ in range(_ROUNDS):
        start = time.perf_counter_ns()
        for _ in range(_CALLS):
            check(f_locals)
        best = min(best, time.perf_counter_ns() - start)
    return round(best / _CALLS, 1)


def _alike(guard: GuardSpec) -> tuple[Any, ...]:
    """What guards of the same cost have in common."""
    steps: list[Any] = []
    source: Source | None = guard.source
    while source is not None:
        steps.append((type(source), source.table if isinstance(source, Attribute) else None))
        source = getattr(source, "base", None)
    return guard.kind, *steps
