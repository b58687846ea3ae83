"""Checks a record that was read: the rules beyond the types of its fields that readers of a record rely on.

`extension/src/view/model/record/rules.ts` has the same rules for the browser; `tests/sweeps/fuzz_inputs.py` compares
the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from compiler_core.records import steps
from compiler_core.records.artifacts import Artifact, Graph
from compiler_core.records.plain import RecordError

if TYPE_CHECKING:
    from compiler_core.records.record import Compile, Record

_COMPILE_ID = re.compile(r"(?!\.{1,2}(/|$))[A-Za-z0-9_!.\[\]-]{1,40}(/(?!\.{1,2}(/|$))[A-Za-z0-9_!.\[\]-]{1,40}){0,5}")
"""``0/1``, ``!0/0/1``: parts that are safe as a path (no ``.`` or ``..``)."""


def check(record: Record) -> None:
    """Raises RecordError for the first rule that is broken; the message has the path to the wrong value."""
    for violation in _violations(record):
        raise RecordError(violation)


def _violations(record: Record) -> Iterator[str]:
    at = "record.frames"
    yield from _unique((frame.id for frame in record.frames), f"{at}: two frames have one id")
    yield from _unique((c.id for c in record.compiles), f"{at}: two compiles have one id")
    yield from _unique((a.id for a in record.artifacts), "record: two artifacts have one id")
    for i, source in enumerate(record.sources):
        yield from _in_artifact(source, f"record.sources[{i}]")
    for i, frame in enumerate(record.frames):
        for j, compile_ in enumerate(frame.compiles):
            if compile_.frame != frame.id:
                yield f"{at}[{i}].compiles[{j}].frame: the compile is of another frame"
            yield from _in_compile(compile_, f"{at}[{i}].compiles[{j}]")


def _unique(values: Iterable[object], message: str) -> Iterator[str]:
    listed = list(values)
    if len(set(listed)) != len(listed):
        yield message


def _in_compile(compile_: Compile, at: str) -> Iterator[str]:
    if not _COMPILE_ID.fullmatch(compile_.id):
        yield f"{at}.id: not the id of a compile, such as 0/1"
    for i, artifact in enumerate(compile_.artifacts):
        yield from _in_artifact(artifact, f"{at}.artifacts[{i}]")
    for i, attempt in enumerate(compile_.steps):
        if not steps.is_consistent(attempt):
            yield f"{at}.steps[{i}]: the steps are inconsistent"


def _in_artifact(artifact: Artifact, at: str) -> Iterator[str]:
    lines = artifact.text.count("\n") + 1
    yield from _unique((span.key for span in artifact.spans), f"{at}.spans: two items have one key")
    for i, span in enumerate(artifact.spans):
        if not 1 <= span.first <= span.last <= lines:
            yield f"{at}.spans[{i}]: no lines of the text, which has {lines:,}"
    if artifact.graph is not None:
        yield from _in_graph(artifact.graph, f"{at}.graph")


def _in_graph(graph: Graph, at: str) -> Iterator[str]:
    keys = {node.key for node in graph.nodes}
    yield from _unique((node.key for node in graph.nodes), f"{at}.nodes: two nodes have one key")
    for i, edge in enumerate(graph.edges):
        if len(edge) != 2 or not keys.issuperset(edge):
            yield f"{at}.edges[{i}]: not from one node to another"
