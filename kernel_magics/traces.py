"""Tracebacks of a cell, without the frames of the compiler that runs it."""

from __future__ import annotations

import itertools
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import compiler_core
from compiler_core.errors import CompilerBug

OWN = tuple(f"{Path(place).parent}/" for place in (compiler_core.__file__, __file__) if place)
RESUMED = ".<resumed>"
"""Ends the qualified name of a resume function's code; see compiler_core/resume.py."""


def show_alone(shell: Any, error: BaseException, filename: str | None) -> None:
    """When `error` reaches IPython, it is shown once, as it would be for the plain cell in `filename`.

    Without a `filename` the cell did not run, and no frame is shown: its text is at fault.
    """
    before = shell.custom_exceptions, shell.CustomTB
    traceback = of_the_user(error.__traceback__, filename) if filename else None

    def show(shell: Any, kind: type, value: BaseException, raised: Any, tb_offset: int | None = None) -> None:
        shell.custom_exceptions, shell.CustomTB = before
        if value is not error:
            shell.showtraceback((kind, value, raised))
        elif isinstance(value, CompilerBug):
            shell.showtraceback()
        elif filename is None:
            shell.showsyntaxerror()
        else:
            shell.showtraceback((kind, value, traceback), tb_offset=0)

    # The only way in: whatever is raised here gets the frames of IPython and of the magic on its way out.
    shell.set_custom_exc((type(error),), show)


def of_the_user(traceback: types.TracebackType | None, filename: str) -> types.TracebackType | None:
    """The part of `traceback` that the cell in `filename` would have without the magic.

    Frames of the compiler go, the skeleton's where a unit that it called follows, and that of a
    function at a graph break where its resume function follows: one call stays one line.
    """
    entries = [e for e in _entries(traceback) if not e.tb_frame.f_code.co_filename.startswith(OWN)]
    inside = list(itertools.dropwhile(lambda e: e.tb_frame.f_code.co_filename != filename, entries))
    if len(inside) > 1 and _is_same_module(*inside[:2]):
        del inside[0]
    trimmed: types.TracebackType | None = None
    for entry, follower in reversed(list(itertools.zip_longest(inside, inside[1:]))):
        if follower is None or not _resumes(follower, entry):
            trimmed = types.TracebackType(trimmed, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return trimmed


def _entries(traceback: types.TracebackType | None) -> Iterator[types.TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _is_same_module(first: types.TracebackType, second: types.TracebackType) -> bool:
    one, other = first.tb_frame.f_code, second.tb_frame.f_code
    return (one.co_filename, one.co_name) == (other.co_filename, other.co_name)


def _resumes(second: types.TracebackType, first: types.TracebackType) -> bool:
    resumed, before = second.tb_frame.f_code, first.tb_frame.f_code
    name = before.co_qualname.removesuffix(RESUMED) + RESUMED
    return (resumed.co_qualname, resumed.co_filename) == (name, before.co_filename)
