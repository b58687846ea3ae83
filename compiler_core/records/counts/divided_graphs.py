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


class DividedGraphs:
    """Answers for the breaks of one record, as far as it was run."""

    def __init__(self, record: Record) -> None:
        self._frames = {frame.id: frame for frame in record.frames}
        self._compiles = {compile_.id: compile_ for compile_ in record.compiles}

    def why_harmless(self, compile_: Compile, break_: GraphBreak) -> str:
        """Returns why a break divides no graph; an empty string if it divides one, or if that is not known."""
        texts = (break_.kind, f"{break_.kind}: {break_.explanation}")
        if not any(map(_READS_ONLY.fullmatch, texts)) or compile_.outcome != "compiled" or not break_.resumes:
            return ""
        if not self._computes_before(compile_):
            return "nothing is computed before it"
        return "" if self._computes_after(break_) else "nothing is computed after it"

    def _computes_before(self, compile_: Compile) -> bool:
        """Whether the graph of a compile has operations, or one of those that it resumes."""
        while not _has_operations(compile_):
            frame = self._frames[compile_.frame]
            if frame.kind != "resume":
                return False
            before = self._compiles.get(frame.resumes or "")
            if before is None or before is compile_:
                return True  # not known
            compile_ = before
        return True

    def _computes_after(self, break_: GraphBreak) -> bool:
        waiting, seen = list(break_.resumes), set(break_.resumes)
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


def _has_operations(compile_: Compile) -> bool:
    graphs = [artifact.graph for artifact in compile_.artifacts if artifact.pane == "captured"]
    return any(node.op.startswith("call_") for graph in graphs if graph is not None for node in graph.nodes)
