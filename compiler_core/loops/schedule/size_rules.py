"""The sizes at which a Triton kernel is made in one way or another, in one place.

`SizeRules` holds the numbers; the passes read the rules in force by `current()`.  Users always get `USUAL`.  Tests put
others in force (`used`), so that what is made for sizes of millions is made for a few elements too and can be run
anywhere.  Whatever the rules are, kernels compute the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class ColumnLimits:
    """When sums over columns join loops over rows (`columns`)."""

    most_parts: int
    """The rows are cut in so many parts at most, one for each program or thread."""
    least_parts: int
    least_rows: int
    """Rows of a part: with so many, what a part stores is little beside what it reads."""
    least_elements: int
    """Fewer elements are as well read twice."""
    in_hand: int = 0
    """Elements that all programs together have in hand at a time: with fewer, memory waits for them ..."""
    in_all: int = 1 << 20
    """... which costs more than a second kernel where there are more than so many elements in all."""


@dataclass(frozen=True)
class SizeRules:
    """The numbers that choose between ways to make a Triton kernel; the values are for large GPUs."""

    # one kernel in two (`two_kernel_reduction`), or one for each time it goes through its rows (`multi_pass`)
    enough_programs: int = 256
    """A kernel of so many programs stays whole."""
    wanted_programs: int = 512
    """Some four programs for each of a large GPU's multiprocessors, which all run at once."""
    little: int = 1 << 13
    """So many elements for each program take less time than another kernel."""
    least_part: int = 256
    """Each part has at least so many elements."""
    most_parts: int = 1024
    """More parts would make the second kernel, of few programs, a slow one."""
    long: int = 1 << 15
    """So many elements for each program take longer than starting some more kernels."""

    # several kernels as one (`columns`, `horizontal`)
    columns: ColumnLimits = ColumnLimits(
        most_parts=256, least_parts=16, least_rows=8, least_elements=0, in_hand=1 << 16
    )
    """Of parts, two programs for each of a large GPU's multiprocessors."""
    small: int = 1 << 18
    """A GPU goes through so many elements in about the time that a launch takes."""

    # the blocks of a kernel (`codegen.blocks`)
    block: int = 1024
    """Elements that a program does at a time, where nothing is reduced or rows are short."""
    tile: int = 64
    """The side of a tile, where accesses go through memory in two directions."""
    picked: int = 512
    """Elements of a row that a program does at a time where positions are looked up for each row."""
    few_programs: int = 128
    """Fewer than a large GPU has multiprocessors."""
    whole: int = 8192
    """Elements of a part that a program goes through twice and keeps meanwhile."""
    whole_row: int = 16384
    """A row of so many elements fits in a program's registers."""
    part_of_row: int = 4096
    """Elements of a longer row that a program does at a time."""
    likely: int = 256
    """Blocks for a symbolic number of elements are made for at least so many."""

    # the text (`codegen.triton`)
    far: int = 2**31 - 2**16
    """Indices and addresses that reach so far have 64 bits."""


USUAL = SizeRules()
_current: ContextVar[SizeRules] = ContextVar("size_rules", default=USUAL)


def current() -> SizeRules:
    """The rules in force."""
    return _current.get()


@contextmanager
def used(rules: SizeRules) -> Iterator[None]:
    """Have kernels made by `rules` inside."""
    token = _current.set(rules)
    try:
        yield
    finally:
        _current.reset(token)
