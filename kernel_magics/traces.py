"""Tracebacks of a cell, without the frames of the compiler that runs it."""

from __future__ import annotations

import types
from collections.abc import Iterator
from pathlib import Path

import compiler_core

OWN = tuple(str(Path(place).parent) + "/" for place in (compiler_core.__file__, __file__))


def of_the_user(traceback: types.TracebackType | None, skeleton: types.CodeType) -> types.TracebackType | None:
    """The part of `traceback` that the same cell would have without the magic.

    Frames of the compiler go, and so does the skeleton's where a unit that it called is there.
    """
    entries = [e for e in _entries(traceback) if not e.tb_frame.f_code.co_filename.startswith(OWN)]
    while entries and entries[0].tb_frame.f_code.co_filename != skeleton.co_filename:
        entries.pop(0)
    if len(entries) > 1 and _is_module(entries[1], skeleton):
        entries.pop(0)
    trimmed: types.TracebackType | None = None
    for entry in reversed(entries):
        trimmed = types.TracebackType(trimmed, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return trimmed


def _entries(traceback: types.TracebackType | None) -> Iterator[types.TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _is_module(entry: types.TracebackType, skeleton: types.CodeType) -> bool:
    code = entry.tb_frame.f_code
    return code.co_filename == skeleton.co_filename and code.co_name == skeleton.co_name
