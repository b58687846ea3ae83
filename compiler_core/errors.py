"""Three kinds of error, for three readers.

CutawayError
  Unsupported     the user's code cannot be captured here: never leaves the compiler, becomes
                  a graph break (or, with fullgraph=True, a FullGraphError)
  UsageError      the request is wrong: an unknown backend, a bad option
    FullGraphError    fullgraph=True met a graph break
  CompilerBug     we are wrong; raised with --strict only, otherwise noted in the record
  BuildError      a tool that we call (C++ compiler, Triton, ptxas) failed or is not there
  NotKeyed        a graph cannot be kept on disk: something about it has no exact text
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compiler_core.record import StackLine


class CutawayError(Exception):
    """The root of all errors that are Cutaway's own."""


class Unsupported(CutawayError):
    """Capture cannot go on at this instruction.

    `kind` is a short fixed name, documented in `compiler_core/breaks.py`; `context` says what
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


class BuildError(CutawayError):
    """A tool that builds kernels failed or is missing; the message names the remedy."""


class NotKeyed(CutawayError):
    """Something about a graph cannot be written down exactly, so it is not kept; the message says what."""
