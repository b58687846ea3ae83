"""Tracebacks of a cell, without the frames of the compiler that runs it."""

from __future__ import annotations

import itertools
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import compiler_core
from compiler_core.errors import CompilerBug, FullGraphError
from compiler_core.records import StackLine
from kernel_magics.tracebacks.stand_in_frames import code_at, stand_in

RESUMED = ".<resumed>"
"""Ends the qualified name of what runs a part of a function; see compiler_core/resume/resume_functions.py, which
imports torch."""
STOCK = "/torch/_dynamo/eval_frame.py"
"""Stands between the skeleton and a unit that stock torch.compile compiled."""
RERUN = "/compiler_core/resume/eager_fallback.py"
OWN = (f"{Path(compiler_core.__file__).parent}/", f"{Path(__file__).parents[1]}/", "<cutaway")


def show_alone(shell: Any, error: BaseException, filename: str | None) -> None:
    """When `error` reaches IPython, it is shown once, as it would be for the plain cell in `filename`.

    Without a `filename` the cell did not run, and no frame is shown: its text is at fault.
    """
    before = shell.custom_exceptions, shell.CustomTB
    traceback = of_the_user(error.__traceback__, filename) if filename else None
    if isinstance(error, FullGraphError) and traceback:
        traceback = at_the_break(traceback, error.stack)

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

    Frames of the compiler go, the skeleton's where a unit that it called follows, that of a function at a
    graph break where its resume function follows, and one that ran again plainly: one call stays one line.
    A frame of a resume function looks like one of the function that it goes on with.
    """
    entries = [e for e in _entries(traceback) if not (_filename(e).startswith(OWN) or _runs_plainly(e.tb_next))]
    inside = list(itertools.dropwhile(lambda e: _filename(e) != filename, entries))
    while len(inside) > 2 and _filename(inside[1]).endswith(STOCK):
        del inside[1]
    if len(inside) > 1 and _is_same_module(*inside[:2]):
        del inside[0]
    inside = _once(inside)
    trimmed: types.TracebackType | None = None
    for entry, follower in reversed(list(itertools.zip_longest(inside, inside[1:]))):
        if follower is None or not _resumes(follower, entry):
            trimmed = _entry(trimmed, entry)
    return trimmed


def _once(entries: list[types.TracebackType]) -> list[types.TracebackType]:
    """Without the way out of a frame and into it again, by which an exception comes to the handler around a break."""
    kept: list[types.TracebackType] = []
    for entry in entries:
        before = [i for i, e in enumerate(kept) if e.tb_frame is entry.tb_frame]
        if before:
            del kept[before[0] :]
        kept.append(entry)
    return kept


def _entry(below: types.TracebackType | None, entry: types.TracebackType) -> types.TracebackType:
    """`entry` above `below`, with a frame that reads as the user's function."""
    frame = entry.tb_frame
    code = _original(frame.f_code)
    if code is None:
        return types.TracebackType(below, frame, entry.tb_lasti, entry.tb_lineno)
    frame = stand_in(code, entry.tb_lineno, frame.f_locals, frame.f_globals)
    return types.TracebackType(below, frame, frame.f_lasti, entry.tb_lineno)


def _original(code: types.CodeType) -> types.CodeType | None:
    if not code.co_qualname.endswith(RESUMED):
        return None
    from compiler_core.resume.resume_functions import original

    return original(code)


def at_the_break(traceback: types.TracebackType, stack: Sequence[StackLine]) -> types.TracebackType:
    """`traceback` down to the frame that was compiled, and from there the user's way to the break, `stack`."""
    *above, compiled = _entries(traceback)
    trimmed: types.TracebackType | None = None
    for line in reversed(stack):
        frame = _frame_at(line, compiled.tb_frame)
        trimmed = types.TracebackType(trimmed, frame, frame.f_lasti, line.lineno)
    for entry in reversed(above if stack else [*above, compiled]):
        trimmed = _entry(trimmed, entry)
    assert trimmed is not None
    return trimmed


def _frame_at(line: StackLine, compiled: types.FrameType) -> types.FrameType:
    code = compiled.f_code
    if (line.function, line.filename) == (code.co_name, code.co_filename):
        return stand_in(code, line.lineno, compiled.f_locals, compiled.f_globals)
    return stand_in(code_at(line.filename, line.function, line.lineno), line.lineno, {}, compiled.f_globals)


def _entries(traceback: types.TracebackType | None) -> Iterator[types.TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _filename(entry: types.TracebackType) -> str:
    return entry.tb_frame.f_code.co_filename


def _runs_plainly(entry: types.TracebackType | None) -> bool:
    """Whether the frame above `entry` is gone through once more, its graph having failed."""
    return entry is not None and _filename(entry).endswith(RERUN)


def _is_same_module(first: types.TracebackType, second: types.TracebackType) -> bool:
    one, other = first.tb_frame.f_code, second.tb_frame.f_code
    return (one.co_filename, one.co_name) == (other.co_filename, other.co_name)


def _resumes(second: types.TracebackType, first: types.TracebackType) -> bool:
    resumed, before = second.tb_frame.f_code, first.tb_frame.f_code
    name = before.co_qualname.removesuffix(RESUMED) + RESUMED
    return (resumed.co_qualname, resumed.co_filename) == (name, before.co_filename)
