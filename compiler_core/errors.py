"""Three kinds of error, for three readers, and the warnings.

CutawayError
  Unsupported     the user's code cannot be captured here: never leaves the compiler, becomes
                  a graph break (or, with fullgraph=True, a FullGraphError)
  UsageError      the request is wrong: an unknown backend, a bad option
    FullGraphError    fullgraph=True met a graph break
  CompilerBug     we are wrong; the record says so, and a CompileWarning
    StrictError     any failure that is a bug, raised with --strict only
  Refused         compiled, the code could differ from eager PyTorch: it is not compiled
  BuildError      a tool that we call (C++ compiler, Triton, ptxas) failed
    MissingTool     it is not there, or has no folder to work in
    TimedOut        it did not end within its limit of time
  NotKeyed        a graph cannot be kept on disk: something about it has no exact text

CompileWarning    something failed and the program goes on without it (see `compiler_core.hook.failures`)
  ToolWarning       because of a MissingTool
  RefusalWarning    because of a Refused
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compiler_core.records import Failure, ItemId, StackLine


class CutawayError(Exception):
    """The root of all errors that are Cutaway's own."""


class Unsupported(CutawayError):
    """Capture cannot go on at this instruction.

    `kind` is a short fixed name, documented in `compiler_core/capture/break_kinds.py`; `context` says what
    was met this time.
    """

    def __init__(self, kind: str, context: str = "") -> None:
        super().__init__(f"{kind}: {context}" if context else kind)
        self.kind = kind
        self.context = context


class UsageError(CutawayError):
    """The request is wrong; the message says what, and what would be right."""


class FullGraphError(UsageError):
    """fullgraph=True met a graph break; the message is the break's explanation and hint.

    `stack` is the user's, outermost first: calls that were inlined have no frame of their own.
    """

    def __init__(self, message: str, stack: Sequence[StackLine] = ()) -> None:
        super().__init__(message)
        self.stack = stack


class CompilerBug(CutawayError):
    """An invariant of ours does not hold."""


class Refused(CutawayError):
    """Compiled, the code could differ from eager PyTorch; the message says why."""


class StrictError(CompilerBug):
    """A failure that the record has already, raised because `strict` was asked for."""


class BuildError(CutawayError):
    """A tool that builds kernels failed; `kernel` names the kernel, where it is one kernel's fault."""

    def __init__(self, message: str, kernel: str | None = None) -> None:
        super().__init__(message)
        self.kernel = kernel


class MissingTool(BuildError):
    """A tool that builds kernels is missing or has no folder to work in; the message names the remedy."""


class TimedOut(BuildError):
    """A tool did not end within its limit of time, and was stopped."""


class NotKeyed(CutawayError):
    """Something about a graph cannot be written down exactly, so it is not kept; the message says what."""


class CompileWarning(UserWarning):
    """A part of the program is not compiled because of a failure of ours; `failure` is what the record says of it."""

    failure: Failure


class ToolWarning(CompileWarning):
    """Kernels cannot be built here: a tool is missing."""


class RefusalWarning(CompileWarning):
    """A part of the program is left uncompiled, for a reason that is no bug."""


At = tuple[Sequence["ItemId"], tuple[str, int] | None]
"""Items of the record, or a line of the user's (file and number)."""


def came_from(error: BaseException, items: Sequence[ItemId] = (), place: tuple[str, int] | None = None) -> None:
    """Note what was at work when `error` was raised; the first to do so knows best."""
    if not hasattr(error, "_cutaway_at"):
        error._cutaway_at = (items, place)  # type: ignore[attr-defined]


def was_at(error: BaseException) -> At:
    """What `came_from` noted."""
    found: At = getattr(error, "_cutaway_at", ((), None))
    return found
