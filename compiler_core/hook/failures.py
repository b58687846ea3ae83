"""Reports failures of the compiler that do not end the program: in the record, and once as a Python warning.

What a backend of the user raises ends the program.  It is in the record, too, without a warning.  Only with
`torch._dynamo.config.suppress_errors` the program goes on, with a CompileWarning.

    kind      what it is                                                             warning
    bug       an exception inside the compiler, or a tool that refused our code      CompileWarning
    tool      a tool that builds kernels is missing, or its folder cannot be used    ToolWarning
    refusal   compiled, the code could differ from eager, so it is left as it is     RefusalWarning
    pass      a graph pass of the user raised or broke the graph, so it is left out  GraphPassWarning
    backend   a backend of the user raised, as it compiled or as its result ran      none: it is raised

The warning is issued at the user's line.  Python shows it once for each line and text, and applies its filters: with
``-W error`` the call raises the warning.  Graph breaks and skipped frames are not failures.
"""

from __future__ import annotations

import re
import traceback
import types
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from compiler_core.errors import (
    BackendError,
    CompileWarning,
    CutawayError,
    GraphPassError,
    GraphPassWarning,
    MissingTool,
    RefusalWarning,
    Refused,
    StrictError,
    ToolWarning,
    error_location,
)
from compiler_core.hook.skip_rules import innermost_frame, is_library_file, is_runtime
from compiler_core.records import Compile, Failure, ItemId, Stage
from compiler_core.records.user_lines import UNKNOWN_LINE, ItemLines, LineRef
from compiler_core.support.eager_warnings import unsilence_warnings

PLAIN = "This code runs as plain PyTorch: the results are right, but it is not compiled."
RAISED = "The program gets this exception: it is the backend's own."
HIDDEN = "torch._dynamo.config.suppress_errors is set, so this code runs as plain PyTorch and the error is not raised."
NOT_KEPT = "The compiled graph runs, but is not kept on disk: the next process compiles it again."
NOT_RECORDED = "The compiled code runs; the record lacks"
"""How `Failure.meaning` begins if what failed is only recorded."""
MAX_CAUSE_LENGTH = 300
"""The length in characters to which a warning shortens the cause."""
_COMPILE_TEXTS = {
    "bug": "Cutaway failed to compile this, in the stage {}",
    "tool": "Cutaway cannot build kernels here",
    "refusal": "Cutaway does not compile this, in the stage {}",
    "pass": "A graph pass was not applied, in the stage {}",
    "backend": "A backend failed to compile this",
}
_RUN_TEXTS = {
    "bug": "What Cutaway compiled here failed as it ran",
    "tool": "Cutaway cannot build a kernel here as it runs",
    "refusal": "Cutaway did not do this as the compiled code ran",
}
_REMEDIES = {
    "bug": (
        "strict=True (--strict) raises it.  To report it, send the record: call the function inside "
        "`with compiler_core.record() as record:` and then `record.save('failure.json')`, or --save in a notebook."
    ),
    "tool": "This warning is given once; the records name every graph that it concerns.",
    "pass": "strict=True (--strict) raises it, with the traceback of the pass.",
    "refusal": "warnings.filterwarnings('ignore', category=compiler_core.RefusalWarning) silences such notes.",
    "backend": "",
}
_WARNING_CLASSES = {
    "bug": CompileWarning,
    "tool": ToolWarning,
    "refusal": RefusalWarning,
    "pass": GraphPassWarning,
    "backend": CompileWarning,
}

_registries: dict[str, dict[Any, Any]] = {}
"""For each file, Python's registry of the warnings that were shown there already."""
_tool_places: dict[str, LineRef] = {}
"""The user's line at which each tool was first found missing.  The warning always names it, so it is shown once."""


def reset_shown_warnings() -> None:
    """Lets every warning be shown again."""
    _registries.clear()
    _tool_places.clear()


def report_failure(
    compile_: Compile, stage: Stage, error: BaseException, *, meaning: str = PLAIN, strict: bool = False
) -> Failure:
    """Records that `error` ended a stage, and issues a warning.

    Args:
        compile_: the compile that failed.
        stage: the stage that failed.
        error: the exception; its class decides the kind of the failure.
        meaning: what the failure means for the program.
        strict: whether a bug is raised as StrictError instead of a warning.

    Returns the failure as it is in the record.  Raises the warning if the user's filters make it an error.  There is
    none of an error that the program gets.
    """
    kind = _kind_of(error)
    message = str(error) if isinstance(error, CutawayError) and str(error) else f"{type(error).__name__}: {error}"
    detail = "".join(traceback.format_exception(error))
    filename, lineno = _user_place(compile_, error)
    line = compile_._record.line(filename, lineno) if compile_._record else None
    failure = Failure(stage, message, detail, kind, meaning, filename, lineno, line)  # type: ignore[arg-type]
    compile_.failures.append(failure)
    if strict and kind in ("bug", "pass"):
        raise StrictError(f"compile {compile_.id} failed in {stage}: {message}") from error
    if meaning != RAISED:
        warn(failure)
    return failure


@contextmanager
def only_recorded(compile_: Compile, stage: Stage, what: str, strict: bool = False) -> Iterator[None]:
    """Context manager for a part of a stage that the compiled code does not need, such as a cost or a listing.

    An error in it is reported with a warning that says what the record lacks, and the compile goes on.

    Raises StrictError in place of the warning if `strict`, and the warning if the user's filters make it an error.
    """
    try:
        yield
    except CompileWarning:
        raise
    except Exception as error:
        report_failure(compile_, stage, error, meaning=f"{NOT_RECORDED} {what}.", strict=strict)


def _kind_of(error: BaseException) -> str:
    if isinstance(error, MissingTool):
        return "tool"
    if isinstance(error, GraphPassError):
        return "pass"
    if isinstance(error, BackendError):
        return "backend"
    return "refusal" if isinstance(error, Refused) else "bug"


def warn(failure: Failure) -> None:
    """Issues the warning of a failure, at the user's line."""
    place = (failure.filename or "<unknown>", failure.lineno or 1)
    if failure.kind == "tool":
        place = _tool_places.setdefault(failure.message, place)
    registry = _registries.setdefault(place[0], {})
    # the warning has no name here: if the user's filters raise it, this frame and the warning would refer to each other
    with unsilence_warnings():
        warnings.warn_explicit(_warning(failure), None, *place, registry=registry)


def warn_of_generator(function: types.FunctionType) -> None:
    """Issues the warning that a generator or coroutine was given to `compile`."""
    code = function.__code__
    why = f"{function.__qualname__} is a generator or coroutine, which Python runs; compile the functions that it calls"
    warn(Failure("capture", why, "", "refusal", PLAIN, code.co_filename, code.co_firstlineno, None))


def _warning(failure: Failure) -> CompileWarning:
    warning = _WARNING_CLASSES[failure.kind](warning_text(failure))
    warning.failure = failure
    return warning


def warning_text(failure: Failure) -> str:
    """Returns the warning's text: what failed and why, what that means, what to do."""
    what = (_RUN_TEXTS if failure.stage == "run" else _COMPILE_TEXTS)[failure.kind].format(failure.stage)
    if failure.kind == "tool" and failure.meaning == NOT_KEPT:
        what = "Cutaway cannot keep what it compiles here"
    if failure.kind == "bug" and failure.meaning.startswith(NOT_RECORDED):
        what = f"Cutaway could not record all of this, in the stage {failure.stage}"
    head = f"{what}: {first_line(failure.message)}"
    return "\n  ".join(line for line in (head, failure.meaning, _REMEDIES[failure.kind]) if line)


def first_line(message: str) -> str:
    """Returns the first line of a message, shortened and without addresses, which differ from run to run."""
    line = re.sub(r"\b0x[0-9a-f]+\b", "0x...", message.strip().partition("\n")[0].rstrip(": "))
    return line if len(line) <= MAX_CAUSE_LENGTH else f"{line[: MAX_CAUSE_LENGTH - 3]}..."


# ---------------------------------------------------------------- the user's line


def _user_place(compile_: Compile, error: BaseException) -> LineRef:
    """Returns the user's line that caused a failure.

    If no line is known, it is the first line of the frame, or the line that called into PyTorch's or other libraries.
    """
    found = _known_place(compile_, error)
    return (_calling_user_line() or found) if is_library_file(found[0]) else found


def _known_place(compile_: Compile, error: BaseException) -> LineRef:
    side = ItemLines(compile_)
    for each in _cause_chain(error):
        items, place = error_location(each)
        if place is not None:
            return place
        if found := _first_known(side, items):
            return found
    items = [item for each in _cause_chain(error) for item in _generated_lines(compile_, each)]
    return _first_known(side, items) or side.first_line(compile_)


def _calling_user_line() -> LineRef | None:
    """Returns the innermost line of the user's code on this thread's stack."""
    frame = innermost_frame(lambda code: is_library_file(code.co_filename) or is_runtime(code))
    return (frame.f_code.co_filename, frame.f_lineno) if frame else None


def _cause_chain(error: BaseException | None) -> Iterable[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _first_known(side: ItemLines, items: Iterable[ItemId]) -> LineRef | None:
    return next((place for item in items if (place := side.line_of(item)) != UNKNOWN_LINE), None)


def _generated_lines(compile_: Compile, error: BaseException) -> list[ItemId]:
    """Returns the items of the kernel that the error names and of wrapper lines in its traceback, innermost first."""
    kernel = getattr(error, "kernel", None)
    items = [each.item for each in compile_.kernels if kernel and each.name == kernel and each.item]
    names = {artifact.name for artifact in compile_.artifacts}
    for entry in reversed(traceback.extract_tb(error.__traceback__)):
        if program := re.fullmatch(r"<cutaway (\w+)>", entry.filename):
            launch = f"{program[1]}.launch"  # what runs, if there are runs
            name = launch if launch in names else f"{program[1]}.wrapper"
            items.append(f"{compile_.id}:{name}#{entry.lineno}")
    return items
