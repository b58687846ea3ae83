"""The times of a record in Chrome's trace format, which https://ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compiler_core.records import Compile, Event, Frame, Record

_PROCESS = 1
_RUNS = 2
"""The process of the trace that has the runs."""


def save_trace(record: Record, path: str | Path) -> Path:
    """Writes the steps of all compiles of a record in Chrome's trace format.

    Each compile is a track, named after its function and line; steps inside one another are stacked.  After
    `compiler_core.measure` each compile has two more tracks: the kernels of one run, and the same run in eager PyTorch.

    Args:
        record: any record, also one that was loaded.
        path: the file to write; it is overwritten.

    Returns:
        The path.

    Raises:
        OSError: the file cannot be written.

    Example::

        compiler_core.save_trace(record, "compile.trace.json")
    """
    path = Path(path)
    compiles = [(frame, compile_) for frame in record.frames for compile_ in frame.compiles]
    events = [_named("process_name", 0, f"Cutaway: {record.title or 'compile'}")]
    for track, (frame, compile_) in enumerate(compiles, 1):
        where = f"{frame.title}, {record.label(frame.filename)}:{frame.line}"
        events += [_named("thread_name", track, f"{compile_.id} {where}"), *_steps(frame, compile_, track)]
        events += _runs(compile_, 2 * track)
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}), encoding="utf-8")
    return path


def _named(what: str, track: int, name: str, process: int = _PROCESS) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": track, "args": {"name": name}}


def _steps(frame: Frame, compile_: Compile, track: int) -> Iterator[dict[str, Any]]:
    for event in compile_.events:
        shared = {"name": event.name, "cat": event.stage, "pid": _PROCESS, "tid": track, "ts": event.start / 1000}
        details = {"compile": compile_.id, "function": frame.title, "line": frame.line, **_details(event)}
        if event.end is None:  # it did not finish: an event that begins only
            yield {**shared, "ph": "B", "args": details}
        else:
            yield {**shared, "ph": "X", "dur": (event.end - event.start) / 1000, "args": details}


def _details(event: Event) -> dict[str, str]:
    given = {"outcome": event.outcome, "detail": event.detail}
    return {name: text for name, text in given.items() if text not in ("", "ok")}


def _runs(compile_: Compile, track: int) -> Iterator[dict[str, Any]]:
    """Yields the parts of a run, one after another: the compiled one on `track`, the eager one on the next."""
    kernels = [(k.name, k.graph, k.time_ns) for k in compile_.kernels if k.time_ns is not None]
    operations = [(t.node.rpartition("#")[2], "forward", t.forward_ns) for t in compile_.eager_times]
    operations += [(t.node.rpartition("#")[2], "backward", t.backward_ns) for t in reversed(compile_.eager_times)]
    for form, parts in (("compiled", kernels), ("eager", operations)):
        if parts:
            yield _named("process_name", 0, "Cutaway: one run, as measured", _RUNS)
            yield _named("thread_name", track, f"{compile_.id} {form}", _RUNS)
        at = 0.0
        for name, graph, ns in parts:
            if ns:
                shared = {"ph": "X", "pid": _RUNS, "tid": track, "ts": at / 1000, "dur": ns / 1000}
                yield {"name": name, "cat": graph, **shared, "args": {"compile": compile_.id}}
            at += ns
        track += 1
