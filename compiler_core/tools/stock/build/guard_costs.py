"""The costs of the guards of stock `torch.compile`: measured where it runs, estimated in logs.

Where it runs, `tools/guard_times.py` measures its tree as it does ours.  Logs have the time that PyTorch measured for
the whole tree, once and with empty caches.  There, each guard counts as much as its kind and the access steps to its
value usually cost, and all are scaled to that time.  A step counts in equal parts for the guards that need it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice

from compiler_core.records import Guard
from compiler_core.tools.usual_guard_costs import KIND_NS, STEP_NS

_MAX_STEPS = 100
"""Access steps counted for one source."""
_ACCESS_STEP = re.compile(r"\.\w+|\[[^\]]*\]")


def set_guard_costs(guards: Sequence[Guard], measured: Sequence[float], logged_ns: float | None) -> float | None:
    """Sets the costs of guards; returns what they add up to, or None if nothing was measured.

    Args:
        guards: the guards in the order of PyTorch's text.
        measured: the cost of each, if they were measured.
        logged_ns: the time of all that PyTorch logged.
    """
    if len(measured) == len(guards):
        costs = list(measured)
    elif logged_ns:
        costs = _estimated(guards, logged_ns)
    else:
        return None
    for guard, cost in zip(guards, costs, strict=True):
        guard.cost_ns = round(cost, 1)
    return sum(guard.cost_ns or 0.0 for guard in guards) or None


def _estimated(guards: Sequence[Guard], total_ns: float) -> list[float]:
    steps = [
        {guard.source[: found.end()] for found in islice(_ACCESS_STEP.finditer(guard.source), _MAX_STEPS)}
        for guard in guards
    ]
    users = Counter(step for each in steps for step in each)
    costs = [
        KIND_NS.get(guard.kind, KIND_NS["ID_MATCH"]) + sum(STEP_NS / users[step] for step in each)
        for guard, each in zip(guards, steps, strict=True)
    ]
    scale = total_ns / max(sum(costs), 1.0)
    return [cost * scale for cost in costs]
