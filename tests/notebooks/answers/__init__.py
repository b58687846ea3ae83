"""Answers to the exercises of the workshop, right and wrong ones: a file for each exercise."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Wrong:
    """A wrong answer, and what the check says of it."""

    name: str
    says: str
    """A part of the message."""
    code: str = ""
    """The whole answer; empty: it is a mutation of the solution."""
    old: str = ""
    new: str = ""
    last: bool = False
    """Whether the last `old` is replaced, not the first."""

    def text(self, solution: str) -> str:
        if self.code:
            return self.code
        assert self.old in solution, f"{self.old!r} is not in the solution"
        before, _, after = solution.rpartition(self.old) if self.last else solution.partition(self.old)
        return before + self.new + after
