"""Tracebacks of a compiled cell, without the compiler's frames."""

from __future__ import annotations

import itertools
import re
import sysconfig
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import compiler_core
from compiler_core.errors import CompilerBug, FullGraphError
from compiler_core.records import StackLine
from compiler_core.records.capture import package_of
from kernel_magics.tracebacks.synthetic_frames import code_at, synthetic_frame

RESUMED = ".<resumed>"
"""The suffix of a resume function's qualified name; a copy from compiler_core/resume/resume_functions.py, which imports
torch."""
DYNAMO_FRAME = "/torch/_dynamo/eval_frame.py"
"""The file of the frame between the skeleton and a unit compiled by stock torch.compile."""
RERUN_FILE = "/compiler_core/resume/eager_fallback.py"
OWN_FILES = (f"{Path(compiler_core.__file__).parent}/", f"{Path(__file__).parents[1]}/", "<cutaway")
STOCK_FOLDERS = ("/torch/_dynamo/", "/torch/_functorch/", "/torch/_inductor/")
STANDARD_LIBRARY = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib"))


def show_as_plain_cell(shell: Any, error: BaseException, filename: str | None) -> None:
    """Makes IPython show `error`, once, as it would for the plain cell in `filename`.

    Without a `filename` the cell has a syntax error and did not run, so no frame is shown.  The error itself keeps the
    shown frames only, unless it is a bug of the compiler: IPython formats it once more, for its history, and a
    compiler's hundred frames take a second each time.
    """
    traceback = error.__traceback__
    if isinstance(error, KeyboardInterrupt):
        traceback = without_interrupted_compiler(traceback)
        error.__suppress_context__ = True
    traceback = user_traceback(traceback, filename) if filename else None
    if isinstance(error, FullGraphError) and traceback:
        traceback = traceback_at_break(traceback, error.stack)
        error.args = (_with_names_of_cells(shell, str(error)),)
    if traceback is not None and not isinstance(error, CompilerBug):
        error.__traceback__ = traceback

    def show() -> None:
        if isinstance(error, CompilerBug):
            shell.showtraceback()
        elif filename is None:
            shell.showsyntaxerror()
        else:
            shell.showtraceback((type(error), error, traceback), tb_offset=0)

    _show_by(shell, error, show)


def show_interrupt(shell: Any, error: KeyboardInterrupt) -> None:
    """Makes IPython show, once, that a magic was interrupted: its frames say nothing of the program."""
    error.__suppress_context__ = True
    _show_by(shell, error, lambda: shell.showtraceback((type(error), error, None)))


def _show_by(shell: Any, error: BaseException, show: Callable[[], None]) -> None:
    """Makes IPython call `show` when it shows `error`, and other exceptions as before.

    A custom handler is the only way: any exception raised here gets the frames of the magic and of IPython.
    """
    before = shell.custom_exceptions, shell.CustomTB

    def handle(shell: Any, kind: type, value: BaseException, raised: Any, tb_offset: int | None = None) -> None:
        shell.custom_exceptions, shell.CustomTB = before
        if value is error:
            show()
        else:
            shell.showtraceback((kind, value, raised))

    shell.set_custom_exc((type(error),), handle)


def _with_names_of_cells(shell: Any, message: str) -> str:
    """Replaces the files of cells in a message: ``Cell In[3], line 2``."""

    def name(found: re.Match[str]) -> str:
        named = shell.compile.format_code_name(found[1])
        return " ".join(named) if named else found[0]

    return re.sub(r'File "([^"]+)"', name, message)


def without_interrupted_compiler(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """Returns the traceback of an interrupt up to the compiler that it arrived in, ours or stock's.

    Below are frames of the compiler that say nothing of the program.  What a compiler calls of the user's code, such as
    a backend, is kept.
    """
    entries = list(_entries(traceback))
    users = [number for number, entry in enumerate(entries) if _is_users(_filename(entry))]
    for number, entry in enumerate(entries):
        in_compiler = _filename(entry).startswith(OWN_FILES) or any(f in _filename(entry) for f in STOCK_FOLDERS)
        if users and number > users[-1] and in_compiler:
            return _joined(entries[:number])
    return traceback


def _is_users(filename: str) -> bool:
    """Returns whether code is the user's, and not of an installed package or generated."""
    if filename.startswith("<"):
        return filename.startswith("<ipython-input")
    return not (filename.startswith((*OWN_FILES, *STANDARD_LIBRARY)) or package_of(filename))


def _joined(entries: Sequence[types.TracebackType]) -> types.TracebackType | None:
    joined: types.TracebackType | None = None
    for entry in reversed(entries):
        joined = types.TracebackType(joined, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return joined


def user_traceback(traceback: types.TracebackType | None, filename: str) -> types.TracebackType | None:
    """Returns the part of `traceback` that the cell in `filename` would have without the magic.

    Removed are the compiler's frames, the skeleton's frame if the frame of a unit follows, the frame of a function
    at a graph break if its resume function follows, and a frame that eager fallback ran again, so that one call is one
    entry.  The frame of a resume function is shown as a frame of the function that it resumes.
    """
    entries = [e for e in _entries(traceback) if not (_filename(e).startswith(OWN_FILES) or _is_rerun(e.tb_next))]
    inside = list(itertools.dropwhile(lambda e: _filename(e) != filename, entries))
    while len(inside) > 1 and _filename(inside[1]).endswith(DYNAMO_FRAME):
        del inside[1]
    if len(inside) > 1 and _is_same_module(*inside[:2]):
        del inside[0]
    inside = _without_reentered_frames(inside)
    trimmed: types.TracebackType | None = None
    for entry, follower in reversed(list(itertools.zip_longest(inside, inside[1:]))):
        if follower is None or not _resumes(follower, entry):
            trimmed = _with_user_frame(trimmed, entry)
    return trimmed


def _without_reentered_frames(entries: list[types.TracebackType]) -> list[types.TracebackType]:
    """Removes repeated entries of a frame: an exception leaves and reenters it to reach the handler around a break."""
    result: list[types.TracebackType] = []
    for entry in entries:
        before = [i for i, e in enumerate(result) if e.tb_frame is entry.tb_frame]
        if before:
            del result[before[0] :]
        result.append(entry)
    return result


def _with_user_frame(below: types.TracebackType | None, entry: types.TracebackType) -> types.TracebackType:
    """Returns `entry` followed by `below`, with a resume function's frame replaced by one of the user's function."""
    frame = entry.tb_frame
    code = _resumed_code(frame.f_code)
    if code is None:
        return types.TracebackType(below, frame, entry.tb_lasti, entry.tb_lineno)
    frame = synthetic_frame(code, entry.tb_lineno, frame.f_locals, frame.f_globals)
    return types.TracebackType(below, frame, frame.f_lasti, entry.tb_lineno)


def _resumed_code(code: types.CodeType) -> types.CodeType | None:
    if not code.co_qualname.endswith(RESUMED):
        return None
    from compiler_core.resume.resume_functions import original_code

    return original_code(code)


def traceback_at_break(traceback: types.TracebackType, stack: Sequence[StackLine]) -> types.TracebackType:
    """Returns `traceback` down to the compiled frame, followed by the user's calls to the break, `stack`."""
    *above, compiled = _entries(traceback)
    trimmed: types.TracebackType | None = None
    for line in reversed(stack):
        frame = _frame_at(line, compiled.tb_frame)
        trimmed = types.TracebackType(trimmed, frame, frame.f_lasti, line.lineno)
    for entry in reversed(above if stack else [*above, compiled]):
        trimmed = _with_user_frame(trimmed, entry)
    assert trimmed is not None
    return trimmed


def _frame_at(line: StackLine, compiled: types.FrameType) -> types.FrameType:
    code = compiled.f_code
    if (line.function, line.filename) == (code.co_name, code.co_filename):
        return synthetic_frame(code, line.lineno, compiled.f_locals, compiled.f_globals)
    return synthetic_frame(code_at(line.filename, line.function, line.lineno), line.lineno, {}, compiled.f_globals)


def _entries(traceback: types.TracebackType | None) -> Iterator[types.TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _filename(entry: types.TracebackType) -> str:
    return entry.tb_frame.f_code.co_filename


def _is_rerun(entry: types.TracebackType | None) -> bool:
    """Returns whether `entry` is eager fallback's, which runs the frame above it again because its graph failed."""
    return entry is not None and _filename(entry).endswith(RERUN_FILE)


def _is_same_module(first: types.TracebackType, second: types.TracebackType) -> bool:
    one, other = first.tb_frame.f_code, second.tb_frame.f_code
    return (one.co_filename, one.co_name) == (other.co_filename, other.co_name)


def _resumes(second: types.TracebackType, first: types.TracebackType) -> bool:
    resumed, before = second.tb_frame.f_code, first.tb_frame.f_code
    name = before.co_qualname.removesuffix(RESUMED) + RESUMED
    return (resumed.co_qualname, resumed.co_filename) == (name, before.co_filename)
