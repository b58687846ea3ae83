"""Makes calls that are compared in turn, in rounds, so that what slows the machine down for a while slows all of them.

All times that stand beside others are measured here.  It needs the standard library only: a kernel that may crash is
timed in a process without PyTorch.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def in_turn(
    calls: Sequence[Callable[[], T]],
    seconds: float,
    *,
    least: int,
    most: int,
    few: int = 1,
    longest: float = float("inf"),
    progress: Callable[[int, float], None] = lambda round_, took: None,
) -> list[list[T]]:
    """Returns what each call returned in each round.  Each round begins with another call.

    Args:
        calls: what is called.
        seconds: when no further round begins, if there were `least`.
        least: the number of rounds that are made in any case, but see `longest`.
        most: the largest number of rounds.
        few: the number of rounds that are made even if `least` would take too long.
        longest: how many seconds `least` rounds may take.
        progress: called before each round with its number and the seconds until then.
    """
    found: list[list[T]] = [[] for _ in calls]
    began = time.perf_counter()
    for round_ in range(most):
        took = time.perf_counter() - began
        if round_ >= least and took > seconds:
            break
        if few <= round_ < least and took / round_ * least > longest:
            break
        progress(round_, took)
        for at in range(len(calls)):
            which = (round_ + at) % len(calls)
            found[which].append(calls[which]())
    return found


MIN_ROUNDS = 15
"""With fewer rounds, a call is called faster only if all of its times lie apart from those of the other."""
ROUND_SECONDS = 0.01
"""How long the calls of one round are repeated."""
SECONDS = 0.4
"""How long all rounds of fast calls take, about."""
MAX_SECONDS = 5.0
"""`MIN_ROUNDS` are made if they take no longer than this."""


def seconds_in_rounds(calls: Sequence[Callable[[], Any]], synchronize: Callable[[], None]) -> list[list[float]]:
    """Returns the seconds of each call in each round, on average over its repetitions in the round."""

    def seconds(call: Callable[[], Any], times: int) -> float:
        start = time.perf_counter()
        for _ in range(times):
            call()
        synchronize()
        return (time.perf_counter() - start) / times

    for call in calls:
        seconds(call, 1)  # may build something
    once = max(seconds(call, 1) for call in calls)
    times = max(1, min(10_000, int(ROUND_SECONDS / max(once, 1e-7))))
    samples = [functools.partial(seconds, call, times) for call in calls]
    return in_turn(samples, SECONDS, least=MIN_ROUNDS, most=2 * MIN_ROUNDS, few=2, longest=MAX_SECONDS)
