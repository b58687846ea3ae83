"""Kernel source, the loop IR statements that each of its lines was printed from, and the targets of machine code."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from compiler_core.errors import UsageError
from compiler_core.support.interrupts import safe_point

if TYPE_CHECKING:
    from compiler_core.loops.ir import Language, Loops
    from compiler_core.loops.schedule.script import Schedule

Launcher = Callable[..., object]
"""Launches a kernel.  Its arguments are a tensor for each of `Loops.arguments`, in order, then the values of
`Loops.symbols` and `Loops.scalars`.  A C++ kernel's launcher returns True if an index was out of range."""


@dataclass(frozen=True)
class LineOrigin:
    """The origin of line `number` (from 1): statements `statements` of kernel `kernel`.

    Statements are numbered as in the body of the kernel's `Loops`; a line that belongs to the
    kernel as a whole has none.  For the function of a run, `kernel` is the run, and `calls` the kernel that the line
    calls.
    """

    number: int
    kernel: str
    statements: tuple[int, ...] = ()
    calls: str = ""


@dataclass(frozen=True)
class KernelSource:
    """The source of a graph's kernels in one language, with the origin of each line."""

    language: Language
    text: str
    lines: tuple[LineOrigin, ...]
    schedules: Mapping[str, Schedule] = field(default_factory=dict, compare=False)
    """The schedule of each kernel, by name; kernels that differ only in names have that of the first of them."""


def choose_schedules(
    kernels: Iterable[Loops],
    own: Mapping[str, Schedule],
    key: Callable[[Loops], Hashable],
    schedule: Callable[[Loops], Schedule],
) -> dict[str, Schedule]:
    """Returns the schedule of each kernel, by name: that of `own`, or the one that `schedule` makes.

    Kernels with an equal `key` differ only in names, such as those of a network's layers, and have the schedule of the
    first of them.
    """
    chosen: dict[str, Schedule] = {}
    known: dict[Hashable, Schedule] = {}
    for loops in kernels:
        safe_point()
        made = own.get(loops.name)
        chosen[loops.name] = made or known.get(equal := key(loops)) or known.setdefault(equal, schedule(loops))
    return chosen


CPU_TARGETS = {"cpu": "native", **{level: level for level in ("x86-64-v2", "x86-64-v3", "x86-64-v4")}}
"""The CPU targets, and their names in C++ compilers."""
WARP_SIZES = {
    **dict.fromkeys(("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"), 32),
    **dict.fromkeys(("gfx90a", "gfx942", "gfx950"), 64),
    **dict.fromkeys(("gfx1100", "gfx1201"), 32),
}
"""The GPU targets, and the number of threads in a warp of each."""


def targets() -> list[str]:
    """Returns the names of all targets."""
    return [*CPU_TARGETS, *WARP_SIZES]


def check_target(target: str) -> None:
    """Raises UsageError if `target` is not one of `targets()`."""
    if target not in targets():
        raise UsageError(f"unknown target {target!r}; the targets are {', '.join(targets())}")
