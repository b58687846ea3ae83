"""Where compiling took the time: the functions, their stages, and the lines that took longest."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from compiler_core.records import Frame, ItemId, Record
from compiler_core.tools.questions.line_facts import stage_ns


@dataclass(frozen=True)
class FunctionCost:
    """The compiles of one function: their time in all, by stage and by line, the longest first."""

    frame: Frame
    compiles: int
    stages: list[tuple[str, int]]
    """The nanoseconds of each stage."""
    lines: list[tuple[ItemId, int]]
    """The nanoseconds of the stages that work on one line after another, by line; empty for stock, which has none."""

    @property
    def ns(self) -> int:
        """The nanoseconds of all stages."""
        return sum(ns for _, ns in self.stages)


def function_costs(record: Record) -> list[FunctionCost]:
    """Returns the time that compiling each function took, the longest first."""
    found: dict[tuple[str, str, int], list[Frame]] = {}
    for frame in record.frames:
        if frame.compiles:
            found.setdefault((frame.name, frame.filename, frame.line), []).append(frame)
    return sorted(map(_cost, found.values()), key=lambda cost: -cost.ns)


def _cost(frames: list[Frame]) -> FunctionCost:
    compiles = [compile_ for frame in frames for compile_ in frame.compiles]
    stages: Counter[str] = Counter()
    lines: Counter[ItemId] = Counter()
    for compile_ in compiles:
        stages.update(stage_ns(compile_.events))
        for each in compile_.line_times:
            if each.line:
                lines[each.line] += each.ns
    return FunctionCost(frames[0], len(compiles), stages.most_common(), lines.most_common())
