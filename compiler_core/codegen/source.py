"""Kernel source, and the loop IR statements that each of its lines was printed from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compiler_core.loops.ir import Language

Launcher = Callable[..., object]
"""Launches a kernel.  Its arguments are a tensor for each of `Loops.arguments`, in order, then the values of
`Loops.symbols` and `Loops.scalars`.  A C++ kernel's launcher returns True if an index was out of range."""


@dataclass(frozen=True)
class LineOrigin:
    """The origin of line `number` (from 1): statements `statements` of kernel `kernel`.

    Statements are numbered as in the body of the kernel's `Loops`; a line that belongs to the
    kernel as a whole has none.
    """

    number: int
    kernel: str
    statements: tuple[int, ...] = ()


@dataclass(frozen=True)
class KernelSource:
    """The source of a graph's kernels in one language, with the origin of each line."""

    language: Language
    text: str
    lines: tuple[LineOrigin, ...]
