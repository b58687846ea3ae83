"""A task of a lesson as data: a function that the learner writes, its hidden cases, and known wrong ideas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kernel_magics.workshop.checks import Misconception, check

Function = Callable[..., Any]


@dataclass(frozen=True)
class Task:
    """What checks a function that the learner writes.

    `cases` makes the arguments of each case, with other numbers each time.  `observed` makes a function of the
    learner's that takes them, and returns what is compared with what `right` returns, or with `right` observed.
    """

    cases: Callable[[], Mapping[str, tuple[Any, ...]]]
    right: Function
    misconceptions: tuple[Misconception, ...]
    observed: Callable[[Function], Function] = lambda function: function

    def check(self, function: Function) -> str:
        """Returns what is said of a learner's function: that all cases are right, or what is wrong."""
        cases = self.cases()
        try:
            check(self.observed(function), cases, self.observed(self.right), self.misconceptions)
        except AssertionError as error:
            return str(error)
        return f"All {len(cases)} cases are right."
