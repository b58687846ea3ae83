"""Reads records from JSON, which may come from a stranger.

Data that is read is checked against the types of the fields (`records/plain.py`), and against the rules beyond them
that readers of a record rely on.  `extension/src/view/model/record/rules.ts` has the same rules for the browser;
`tests/sweeps/fuzz_inputs.py` compares the two."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from compiler_core.records import SCHEMA_VERSION, Compile, Record, RecordError, from_plain, limits, without_gc
from compiler_core.records.artifacts import Artifact, Graph
from compiler_core.records.plain import short_repr
from compiler_core.records.steps import Steps

MAX_CALL_DEPTH = 1000
"""Nested calls; Python's own recursion limit."""

_COMPILE_ID = re.compile(r"(?!\.{1,2}(/|$))[A-Za-z0-9_!.\[\]-]{1,40}(/(?!\.{1,2}(/|$))[A-Za-z0-9_!.\[\]-]{1,40}){0,5}")
"""``0/1``, ``!0/0/1``: parts that are safe as a path (no ``.`` or ``..``)."""


def record_from_json(text: str) -> Record:
    """`Record.from_json`."""
    if len(text) > limits.JSON:
        raise RecordError(f"the text has {len(text):,} characters; at most {limits.JSON:,} are read")
    return without_gc(lambda: _from_json(text))


def _from_json(text: str) -> Record:
    if not text.strip():
        raise RecordError("there is nothing in it")
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: also an integer of thousands of digits
        raise RecordError(f"not JSON: {error}") from None
    return record_from_plain(plain)


def record_from_plain(plain: object) -> Record:
    """`Record.from_plain`."""
    if not isinstance(plain, dict) or "schema_version" not in plain:
        raise RecordError("not a Cutaway record: it has no schema_version")
    version = plain["schema_version"]
    if version != SCHEMA_VERSION:
        raise RecordError(
            f"the record has schema version {short_repr(version)} and this Cutaway reads {SCHEMA_VERSION}; "
            "open it with the version of Cutaway that wrote it, or record it again"
        )
    record: Record = from_plain(plain, Record, "record")
    for violation in _violations(record):
        raise RecordError(violation)
    for compile_ in record.compiles:
        compile_._record = record
    if "problems" not in plain:  # earlier versions
        record.find_problems()
    elif "verdict" not in plain:
        record.find_verdict()
    return record


def record_from_file(path: str | Path) -> Record:
    """`Record.load`."""
    max_bytes = 4 * limits.JSON  # a character has at most 4 bytes
    with open(path, "rb", opener=_open_without_waiting) as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            raise RecordError("not a regular file")
        read = file.read(max_bytes + 1) if info.st_size <= max_bytes else b""
    if max(info.st_size, len(read)) > max_bytes:
        raise RecordError(f"the file has more than {max_bytes:,} bytes; at most {limits.JSON:,} characters are read")
    try:
        return record_from_json(read.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise RecordError(f"not UTF-8: {error}") from None


def _open_without_waiting(path: str, flags: int) -> int:
    """Opens a file; a named pipe, too, whose other end nobody has opened."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


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
        if not is_consistent(attempt):
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


def is_consistent(steps: Steps) -> bool:
    """Whether all indices in `steps`, which may come from an untrusted file, are valid."""
    return all(_conditions(steps))


def _conditions(steps: Steps) -> Iterator[bool]:
    """Yields the conditions in an order in which each may rely on those before it."""
    calls, values = range(len(steps.calls)), range(len(steps.values))
    yield len(steps.call) == len(steps.at) == len(steps.pops) == len(steps.pushes)
    yield all(len(c.instructions) == len(c.lines) for c in steps.codes)
    yield all(c.code in range(len(steps.codes)) and bool(steps.codes[c.code].lines) for c in steps.calls)
    yield all(c.caller is None or c.caller in range(i) for i, c in enumerate(steps.calls))
    yield _max_depth(steps) <= MAX_CALL_DEPTH
    yield all(c in calls for c in steps.call)
    lengths = [len(steps.codes[c.code].lines) for c in steps.calls]
    yield all(at in range(lengths[c]) for c, at in zip(steps.call, steps.at, strict=True))
    yield all(pops >= 0 for pops in steps.pops) and all(r.pops >= 0 for r in steps.results)
    yield all(v in values for pushes in steps.pushes for v in pushes)
    yield all(r.call in calls and all(v in values for v in r.pushes) for r in steps.results)
    yield all(s.call in calls and (s.value is None or s.value in values) for s in steps.stores)
    yield all(t.value in values for t in steps.texts)
    for entries in (steps.results, steps.stores, steps.texts, steps.notes):
        order = [entry.step for entry in entries]
        yield order == sorted(order)


def _max_depth(steps: Steps) -> int:
    """Returns the greatest number of nested calls."""
    depths: list[int] = []
    for call in steps.calls:
        depths.append(1 if call.caller is None else depths[call.caller] + 1)
    return max(depths, default=0)
