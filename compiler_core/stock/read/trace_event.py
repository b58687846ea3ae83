"""What stock `torch.compile` told: one thing that happened, whether it was heard in process or read from a log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from compiler_core.records import limits
from compiler_core.records.plain import MOST_INT

OWN = "cutaway."
"""What the name of something begins with that PyTorch does not tell, but the observer finds."""

_CONTEXT = frozenset(
    "rank compiled_autograd_id frame_id frame_compile_id attempt severity timestamp pathname lineno thread "
    "subgraph_name stack has_payload process".split()
)


@dataclass(slots=True)
class Happened:
    """`name` is PyTorch's; an artifact has its own name.  `time` is nanoseconds since the epoch."""

    name: str
    about: Any
    payload: str
    time: int
    frame: int | None = None
    number: int | None = None
    autograd: int | None = None
    attempt: int = 0
    size: int = 0
    """Characters of the text that `about` was read from."""

    @property
    def compile_id(self) -> str:
        """As PyTorch prints it; empty where it belongs to no compile."""
        return compile_id(self.frame, self.number, self.autograd)


def compile_id(frame: int | None, number: int | None, autograd: int | None) -> str:
    inside = "" if frame is None else f"{frame}/{number}"
    return inside if autograd is None else f"!{autograd}{'/' if inside else ''}{inside}"


def happened(metadata: dict[str, Any], payload: object, time: int) -> Happened:
    """One structured event of PyTorch's, as its trace handlers get it."""
    name = next((key for key in metadata if key not in _CONTEXT), "")
    about = metadata.get(name)
    if name == "artifact" and isinstance(about, dict):
        name = str(about.get("name"))
    text = payload if isinstance(payload, str) else "" if payload is None else json.dumps(payload, default=str)
    return Happened(
        limits.cut(name),
        about,
        text,
        time,
        _number(metadata.get("frame_id")),
        _number(metadata.get("frame_compile_id")),
        _number(metadata.get("compiled_autograd_id")),
        _number(metadata.get("attempt")) or 0,
    )


def _number(value: object) -> int | None:
    return value if type(value) is int and abs(value) <= MOST_INT else None
