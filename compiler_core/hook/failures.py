"""Failures that the program goes on without: each is noted in the record and said once, as a Python warning.

    kind      what it is                                                             warning
    bug       an exception inside the compiler, or a tool that refused our code      CompileWarning
    tool      a tool that builds kernels is missing, or its folder cannot be used    ToolWarning
    refusal   compiled, the code could differ from eager, so it is left as it is     RefusalWarning

The warning stands at the user's line.  Python shows it once for each line and text, and its filters apply: with
``-W error`` the call raises it.  Graph breaks and frames that are left alone are no failures.
"""

from __future__ import annotations

import re
import sys
import traceback
import types
import warnings
from collections.abc import Iterable
from typing import Any

from compiler_core.errors import (
    CompileWarning,
    CutawayError,
    MissingTool,
    RefusalWarning,
    Refused,
    StrictError,
    ToolWarning,
    was_at,
)
from compiler_core.hook.skip_rules import is_library_file
from compiler_core.records import Compile, Failure, ItemId, Stage
from compiler_core.records.line_facts import NOWHERE, Place, Side
from compiler_core.support.silenced_warnings import aloud

PLAIN = "This code runs as plain PyTorch: the results are right, but it is not compiled."
NOT_KEPT = "The compiled graph runs, but is not kept on disk: the next process compiles it again."
MOST = 300
"""Characters of a cause that a warning shows."""
_COMPILE = {
    "bug": "Cutaway failed to compile this, in the stage {}",
    "tool": "Cutaway cannot build kernels here",
    "refusal": "Cutaway does not compile this, in the stage {}",
}
_RUN = {
    "bug": "What Cutaway compiled here failed as it ran",
    "tool": "Cutaway cannot build a kernel here as it runs",
    "refusal": "Cutaway did not do this as the compiled code ran",
}
_REMEDY = {
    "bug": (
        "strict=True (--strict) raises it.  To report it, send the record: call the function inside "
        "`with compiler_core.record() as record:` and then `record.save('failure.json')`, or --save in a notebook."
    ),
    "tool": "This is said once; the records name every graph that it concerns.",
    "refusal": "warnings.filterwarnings('ignore', category=compiler_core.RefusalWarning) silences such notes.",
}
_CLASSES = {"bug": CompileWarning, "tool": ToolWarning, "refusal": RefusalWarning}

_shown: dict[str, dict[Any, Any]] = {}
"""For each file, what Python has shown there already."""
_first: dict[str, Place] = {}
"""Where a missing tool was met first: the warning always names that place, so that it is shown once."""


def forget() -> None:
    """Let every warning be shown again."""
    _shown.clear()
    _first.clear()


def heard(
    compile_: Compile, stage: Stage, error: BaseException, *, meaning: str = PLAIN, strict: bool = False
) -> Failure:
    """Note in the record that `error` ended a stage and what that means for the program, and warn of it.

    With `strict` a bug is raised as StrictError instead.
    """
    kind = "tool" if isinstance(error, MissingTool) else "refusal" if isinstance(error, Refused) else "bug"
    message = str(error) if isinstance(error, CutawayError) and str(error) else f"{type(error).__name__}: {error}"
    detail = "".join(traceback.format_exception(error))
    filename, lineno = _place(compile_, error)
    line = compile_._record.line(filename, lineno) if compile_._record else None
    failure = Failure(stage, message, detail, kind, meaning, filename, lineno, line)  # type: ignore[arg-type]
    compile_.failures.append(failure)
    if strict and kind == "bug":
        raise StrictError(f"compile {compile_.id} failed in {stage}: {message}") from error
    warn(failure)
    return failure


def warn(failure: Failure) -> None:
    """Say it, at the user's line."""
    place = (failure.filename or "<unknown>", failure.lineno or 1)
    if failure.kind == "tool":
        place = _first.setdefault(failure.message, place)
    registry = _shown.setdefault(place[0], {})
    # held by no name here: raised by the user's filters, it would keep this frame and be kept by it
    with aloud():
        warnings.warn_explicit(_warning(failure), None, *place, registry=registry)


def _warning(failure: Failure) -> CompileWarning:
    made = _CLASSES[failure.kind](text(failure))
    made.failure = failure
    return made


def text(failure: Failure) -> str:
    """The warning's words: what failed and why, what that means, what to do."""
    what = (_RUN if failure.stage == "run" else _COMPILE)[failure.kind].format(failure.stage)
    if failure.kind == "tool" and failure.meaning == NOT_KEPT:
        what = "Cutaway cannot keep what it compiles here"
    head = f"{what}: {one_line(failure.message)}"
    return "\n  ".join(line for line in (head, failure.meaning, _REMEDY[failure.kind]) if line)


def one_line(message: str) -> str:
    """A message's first line, without what changes from one run to the next."""
    line = re.sub(r"\b0x[0-9a-f]+\b", "0x...", message.strip().partition("\n")[0].rstrip(": "))
    return line if len(line) <= MOST else f"{line[: MOST - 3]}..."


# ---------------------------------------------------------------- the user's line


def _place(compile_: Compile, error: BaseException) -> Place:
    """Where the user's code is that was at work: at least where the frame begins, or who called PyTorch's."""
    found = _known_place(compile_, error)
    return (_caller() or found) if is_library_file(found[0]) else found


def _known_place(compile_: Compile, error: BaseException) -> Place:
    side = Side(compile_)
    for each in _chain(error):
        items, place = was_at(each)
        if place is not None:
            return place
        if found := _first_known(side, items):
            return found
    items = [item for each in _chain(error) for item in _generated_lines(compile_, each)]
    return _first_known(side, items) or side.begins(compile_)


def _caller() -> Place | None:
    """The line of the user's that is at work in this thread."""
    frame: types.FrameType | None = sys._getframe()
    while frame is not None and _is_not_the_users(frame.f_code.co_filename):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame else None


def _is_not_the_users(filename: str) -> bool:
    return is_library_file(filename) or filename.startswith("<cutaway")


def _chain(error: BaseException | None) -> Iterable[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _first_known(side: Side, items: Iterable[ItemId]) -> Place | None:
    return next((place for item in items if (place := side.place(item)) != NOWHERE), None)


def _generated_lines(compile_: Compile, error: BaseException) -> list[ItemId]:
    """The kernel that the error names, and the lines of our wrappers that it passed, innermost first."""
    kernel = getattr(error, "kernel", None)
    items = [each.item for each in compile_.kernels if kernel and each.name == kernel and each.item]
    for entry in reversed(traceback.extract_tb(error.__traceback__)):
        if program := re.fullmatch(r"<cutaway (\w+)>", entry.filename):
            items.append(f"{compile_.id}:{program[1]}.wrapper#{entry.lineno}")
    return items
