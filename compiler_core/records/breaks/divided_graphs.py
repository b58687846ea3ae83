"""Which graph breaks divide a graph: those with operations before them and after them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compiler_core.records.capture import GraphBreak

if TYPE_CHECKING:
    from compiler_core.records.record import Compile, Record

_READS_ONLY = re.compile(
    r"tensor value read|print|Unsupported Tensor\.(item|tolist)\(\).*|Failed to trace builtin operator: .*`print`.*"
)
"""Kinds of breaks, for stock's with the explanation, at which nothing is computed that a graph could hold."""
_Place = tuple[str, str, int]


class DividedGraphs:
    """Answers for the breaks of one record, as far as it was run.

    A break in an inlined function is one of its caller's compile, too: what is computed before and after a break is
    asked of all compiles that have it.
    """

    def __init__(self, record: Record) -> None:
        self._frames = {frame.id: frame for frame in record.frames}
        self._compiles = {compile_.id: compile_ for compile_ in record.compiles}
        # stock makes no compile of the rest after a break if there are no tensors
        resumed = [frame for frame in record.frames if frame.kind == "resume"]
        self._may_end = record.engine == "torch" and all(frame.resumes for frame in resumed)
        self._before: set[_Place] = set()
        """The breaks with operations before them, or of which that is not known."""
        self._after: set[_Place] = set()
        for compile_ in record.compiles:
            for break_ in compile_.breaks:
                if compile_.outcome != "compiled" or self._computes_before(compile_):
                    self._before.add(_place(break_))
                if compile_.outcome != "compiled" or self._computes_after(break_):
                    self._after.add(_place(break_))

    def why_harmless(self, break_: GraphBreak) -> str:
        """Returns why a break divides no graph; an empty string if it divides one, or if that is not known."""
        texts = (break_.kind, f"{break_.kind}: {break_.explanation}")
        if not any(map(_READS_ONLY.fullmatch, texts)):
            return ""
        if _place(break_) not in self._before:
            return "nothing is computed before it"
        return "" if _place(break_) in self._after else "nothing is computed after it"

    def _computes_before(self, compile_: Compile) -> bool:
        """Whether the graph of a compile has operations, or one of those that it resumes."""
        seen = set()
        while not _has_operations(compile_):
            frame = self._frames.get(compile_.frame)
            if frame is not None and frame.kind != "resume":
                return False
            seen.add(compile_.id)
            before = self._compiles.get(frame.resumes or "") if frame else None
            if before is None or before.id in seen:
                return True  # not known
            compile_ = before
        return True

    def _computes_after(self, break_: GraphBreak) -> bool:
        waiting, seen = list(break_.resumes), set(break_.resumes)
        if not waiting and not self._may_end:
            return True  # not known
        while waiting:
            frame = self._frames.get(waiting.pop())
            if frame is None or frame.skipped:
                return True  # not known
            for compile_ in frame.compiles:
                if _has_operations(compile_) or compile_.outcome != "compiled":
                    return True
                further = {id_ for each in compile_.breaks for id_ in each.resumes} - seen
                seen |= further
                waiting += further
        return False


def _place(break_: GraphBreak) -> _Place:
    at = break_.stack[-1] if break_.stack else None
    return (break_.kind, at.filename, at.lineno) if at else (break_.kind, "", 0)


def _has_operations(compile_: Compile) -> bool:
    graphs = [artifact.graph for artifact in compile_.artifacts if artifact.pane == "captured"]
    return any(node.op.startswith("call_") for graph in graphs if graph is not None for node in graph.nodes)
