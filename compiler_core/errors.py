"""Errors and warnings.

CutawayError        the base class of our errors
  Unsupported       the user's code cannot be captured at some instruction.  It never leaves the compiler: it becomes a
                    graph break, or a FullGraphError
  UsageError        the user's request is wrong, such as an unknown backend or a wrong option
    FullGraphError  fullgraph=True, and there is a graph break
    RecompileError  the stance is "fail_on_recompile", and a call has to be compiled
    BackendError    a backend of the user raised
  CompilerBug       an error in the compiler; it becomes a failure in the record and a CompileWarning
    StrictError     a failure, raised because of strict=True
  Refused           the code is not compiled, since it could differ from eager PyTorch if it were
  BuildError        a tool (C++ compiler, Triton, ptxas) failed
    MissingTool     a tool is missing, or has no folder to work in
    TimedOut        a tool did not end within the time limit
  GraphPassError    a graph pass of the user raised, or its result cannot replace the graph before
  NotCacheable      a graph cannot be stored on disk, since a part of it has no exact text

CompileWarning      a part of the program is not compiled because something failed (see `hook/failures.py`)
  ToolWarning       because of a MissingTool
  RefusalWarning    because of a Refused
  GraphPassWarning  a graph pass of the user is not applied, because of a GraphPassError
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compiler_core.records import Failure, ItemId, StackLine
    from compiler_core.records.capture import BreakReason


class CutawayError(Exception):
    """The base class of all our errors."""


class Unsupported(CutawayError):
    """Capture cannot continue at this instruction.

    Args:
        kind: one of the fixed names in `compiler_core/capture/break_kinds.py`, which documents them.
        context: what it is about in this case.
    """

    def __init__(self, kind: BreakReason, context: str = "") -> None:
        super().__init__(f"{kind}: {context}" if context else kind)
        self.kind = kind
        self.context = context


class UsageError(CutawayError):
    """A request of the user is wrong.  The message says what is wrong, and what would be right."""


class FullGraphError(UsageError):
    """``fullgraph=True``, and there is a graph break.  The message has the explanation and the hint of the break.

    `stack` is the user's stack, outermost first, with inlined calls, which the traceback does not show.
    """

    def __init__(self, message: str, stack: Sequence[StackLine] = ()) -> None:
        super().__init__(message)
        self.stack = stack


class RecompileError(UsageError, RuntimeError):
    """A call has to be compiled, while ``torch.compiler.set_stance("fail_on_recompile")`` is set."""


class BackendError(UsageError):
    """A backend of the user raised an exception, which is the cause of this one."""

    @classmethod
    def of(cls, name: str, error: Exception) -> BackendError:
        """Returns the error of the backend of this name."""
        found = cls(f"backend={name!r} raised {type(error).__name__}: {error}")
        found.__cause__ = error
        return found


class CompilerBug(CutawayError):
    """An invariant of the compiler does not hold."""


class Refused(CutawayError):
    """The code is not compiled, since compiled code could differ from eager PyTorch.  The message says why."""


class StrictError(CompilerBug):
    """A failure that is in the record already, raised because `strict` is set."""


class BuildError(CutawayError):
    """A tool that builds kernels failed.  `kernel` is the kernel's name if it failed because of one kernel."""

    def __init__(self, message: str, kernel: str | None = None) -> None:
        super().__init__(message)
        self.kernel = kernel


class MissingTool(BuildError):
    """A tool that builds kernels is missing, or has no folder to work in.  The message names the remedy."""


class TimedOut(BuildError):
    """A tool did not end within the time limit, and was stopped."""


class GraphPassError(CutawayError):
    """A graph pass of the user raised, or what it returned cannot replace the graph before it."""


class NotCacheable(CutawayError):
    """A graph is not stored on disk, since a part of it has no exact text.  The message says which part."""


class CompileWarning(UserWarning):
    """A part of the program is not compiled because something failed.  `failure` is the entry in the record."""

    failure: Failure


class ToolWarning(CompileWarning):
    """Kernels cannot be built on this machine, because a tool is missing."""


class RefusalWarning(CompileWarning):
    """A part of the program is not compiled, since compiled code could differ from eager PyTorch: not a bug."""


class GraphPassWarning(CompileWarning):
    """A graph pass of the user is not applied; the graph before it is used."""


ErrorLocation = tuple[Sequence["ItemId"], tuple[str, int] | None]
"""Items of the record, or a source line of the user (file and number)."""


def set_error_location(error: BaseException, items: Sequence[ItemId] = (), line: tuple[str, int] | None = None) -> None:
    """Attaches the items, or the source line, that were being compiled to `error`.  The first, innermost location is
    kept."""
    if not hasattr(error, "_cutaway_location"):
        error._cutaway_location = (items, line)  # type: ignore[attr-defined]


def error_location(error: BaseException) -> ErrorLocation:
    """Returns what `set_error_location` attached to `error`."""
    found: ErrorLocation = getattr(error, "_cutaway_location", ((), None))
    return found
