"""Decides whether one call is faster than another: the only rule by which anything here is called so.

Both calls must have been timed in turn, in rounds, so that what slows the machine down for a while slows both.  A call
is called faster, or slower, only if all of this holds; otherwise they are not said to differ:

- The median of the rounds' ratios differs from 1 by `MIN_DIFFERENCE` or more: the addresses of code and data alone
  cause as much.
- It was so in at least `AGREEMENT` of the rounds, which is so improbable for equal calls as `SIGNIFICANCE` says (a sign
  test).  With fewer rounds than `MIN_ROUNDS`, all times of one must lie below all of the other, by more than either
  varies.
- The fastest tenth of the rounds shows it too: on a busy machine, one of two equal calls may wait for a processor more
  often.

If it is all so, but the fastest rounds say another factor than the median (by more than `MAX_DISAGREEMENT`), something
other than the calls took most of the time.  Then the smaller of both factors counts if the ranges of the times do not
overlap, without the fastest and the slowest tenth; if they do, nobody knows how the calls compare.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from compiler_core.records.timings import MIN_DIFFERENCE
from compiler_core.tools.in_turn import MIN_ROUNDS
from compiler_core.tools.questions.verdict import Outcome, comparison_text

AGREEMENT = 0.7
SIGNIFICANCE = 0.001
MAX_DISAGREEMENT = 2.0
_LEAST = 1e-12
"""Seconds that count as zero."""


@dataclass(frozen=True, slots=True)
class SpeedComparison:
    """How a call compares with a reference."""

    speed: float
    """How many times as fast as the reference it is: the median of the rounds' ratios, or less (see above)."""
    outcome: Outcome

    @property
    def text(self) -> str:
        """``1.63x``, or why there is no such factor."""
        return comparison_text(self.speed, self.outcome)


def compare(times: Sequence[float], reference: Sequence[float]) -> SpeedComparison:
    """Compares the times of a call with those of a reference in the same rounds."""
    times, reference = ([max(each, _LEAST) for each in found] for found in (times, reference))
    ratio = math.log(statistics.median(b / a for a, b in zip(times, reference, strict=True)))
    if abs(ratio) < MIN_DIFFERENCE:
        return SpeedComparison(math.exp(ratio), "same")
    found: Outcome = "faster" if ratio > 0 else "slower"
    lower, upper = (times, reference) if ratio > 0 else (reference, times)
    if len(times) < MIN_ROUNDS:
        varies = max(max(each) - min(each) for each in (times, reference))
        is_apart = len(times) > 1 and min(upper) - max(lower) > varies
        return SpeedComparison(math.exp(ratio), found if is_apart else "same")
    undisturbed = math.log(fastest(reference) / fastest(times))
    shows = math.copysign(undisturbed, ratio) == undisturbed and abs(undisturbed) >= MIN_DIFFERENCE
    if not shows or not _agree(lower, upper):
        is_disturbed = abs(undisturbed - ratio) > math.log(MAX_DISAGREEMENT)
        return SpeedComparison(math.exp(ratio), "unclear" if is_disturbed else "same")
    if abs(undisturbed - ratio) <= math.log(MAX_DISAGREEMENT):
        return SpeedComparison(math.exp(ratio), found)
    if fastest(upper) <= slowest(lower):
        return SpeedComparison(math.exp(ratio), "unclear")
    return SpeedComparison(math.exp(min(ratio, undisturbed, key=abs)), found)


def _agree(lower: Sequence[float], upper: Sequence[float]) -> bool:
    """Returns whether nearly all rounds agree that the first times are the shorter ones."""
    rounds, agreeing = len(lower), sum(a < b for a, b in zip(lower, upper, strict=True))
    by_chance = 2 * sum(math.comb(rounds, k) for k in range(agreeing, rounds + 1)) / 2**rounds
    return agreeing >= AGREEMENT * rounds and by_chance <= SIGNIFICANCE


def fastest(times: Sequence[float]) -> float:
    """Returns the time that separates the fastest tenth of the rounds from the others."""
    return max(statistics.quantiles(times, n=10)[0], min(times)) if len(times) > 1 else times[0]


def slowest(times: Sequence[float]) -> float:
    """Returns the time that separates the slowest tenth of the rounds from the others."""
    return min(statistics.quantiles(times, n=10)[-1], max(times)) if len(times) > 1 else times[0]
