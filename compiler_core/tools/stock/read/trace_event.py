"""One event of PyTorch's structured trace, observed in this process or read from a log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from compiler_core.records import limits
from compiler_core.records.plain import MAX_SAFE_INT

OBSERVER_PREFIX = "cutaway."
"""Start of the names of events that `observer` creates; PyTorch does not log these."""

_CONTEXT_KEYS = frozenset(
    "rank compiled_autograd_id frame_id frame_compile_id attempt severity timestamp pathname lineno thread "
    "subgraph_name stack has_payload process".split()
)
"""Keys of an event's metadata that do not name the event."""


@dataclass(slots=True)
class TraceEvent:
    """An event of PyTorch's trace: the field that names it in `torch._logging.trace_structured`, and its payload."""

    name: str
    """PyTorch's name of the event; of an artifact, the artifact's name."""
    data: Any
    """The metadata stored under the event's name."""
    payload: str
    time_ns: int
    """Nanoseconds since the epoch."""
    frame_id: int | None = None
    frame_compile_id: int | None = None
    compiled_autograd_id: int | None = None
    attempt: int = 0
    metadata_size: int = 0
    """Characters of the JSON text that `data` was parsed from."""

    @property
    def compile_id(self) -> str:
        """The compile's id as PyTorch prints it; empty for an event that belongs to no compile."""
        return compile_id(self.frame_id, self.frame_compile_id, self.compiled_autograd_id)


def compile_id(frame_id: int | None, frame_compile_id: int | None, compiled_autograd_id: int | None) -> str:
    """Formats a compile id as PyTorch does: ``0/1``, or ``!2/0/1`` inside compiled autograd."""
    of_frame = "" if frame_id is None else f"{frame_id}/{frame_compile_id}"
    if compiled_autograd_id is None:
        return of_frame
    return f"!{compiled_autograd_id}/{of_frame}" if of_frame else f"!{compiled_autograd_id}"


def parse_event(metadata: dict[str, Any], payload: object, time_ns: int) -> TraceEvent:
    """Makes an event from the metadata and payload that PyTorch passes to its trace handlers."""
    name = next((key for key in metadata if key not in _CONTEXT_KEYS), "")
    data = metadata.get(name)
    if name == "artifact" and isinstance(data, dict):
        name = str(data.get("name"))
    return TraceEvent(
        limits.truncate(name),
        data,
        _payload_text(payload),
        time_ns,
        _int_or_none(metadata.get("frame_id")),
        _int_or_none(metadata.get("frame_compile_id")),
        _int_or_none(metadata.get("compiled_autograd_id")),
        _int_or_none(metadata.get("attempt")) or 0,
    )


def _payload_text(payload: object) -> str:
    if payload is None:
        return ""
    return payload if isinstance(payload, str) else json.dumps(payload, default=str)


def _int_or_none(value: object) -> int | None:
    return value if type(value) is int and abs(value) <= MAX_SAFE_INT else None
