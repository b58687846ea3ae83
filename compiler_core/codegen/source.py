"""Source text of kernels, and which statements each of its lines prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compiler_core.loops.ir import Language

Launcher = Callable[..., object]
"""A kernel, called with a tensor for each of `Loops.arguments`, in their order, then the values of `Loops.symbols` and
`Loops.scalars`.  What one of C++ returns is true if it met an index that is out of range."""


@dataclass(frozen=True)
class Line:
    """Line `number` (from 1) of a text prints statements `statements` of kernel `kernel`.

    Statements are counted as in the body of the kernel's `Loops`; a line that belongs to the
    kernel as a whole names none.
    """

    number: int
    kernel: str
    statements: tuple[int, ...] = ()


@dataclass(frozen=True)
class Code:
    """Kernel source."""

    language: Language
    text: str
    lines: tuple[Line, ...]
