"""Counts the Python instructions that a call executes, for tests of how work grows with size."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

FASTER = 2.7
"""Twice as much may take so many times the work."""


def instructions(function: Callable[[], object]) -> int:
    """How many a call takes."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def is_linear(work: Callable[[int], Callable[[], object]], n: int = 150) -> bool:
    """Whether twice as much takes twice as long, roughly."""
    # From 3.12 on a function's instructions are counted from the call after the first that is traced.
    _, small, large = (instructions(work(size)) for size in (n, n, 2 * n))
    return large < FASTER * small
