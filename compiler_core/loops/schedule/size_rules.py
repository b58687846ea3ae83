"""The thresholds of size that decide how Triton kernels are made, in one place.

`SizeRules` holds the numbers; passes read the rules in force with `current_rules`.  Users always get `DEFAULT_RULES`.
Tests replace them (`override_rules`), so that kernels that are made for millions of elements are made for a few, and
can run anywhere.  The results of kernels do not depend on the rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class MixOrderLimits:
    """When reductions over columns join reductions over rows (`program_passes`)."""

    max_parts: int
    """The rows are divided into at most so many parts, one for each program or thread."""
    min_parts: int
    min_rows: int
    """The least number of rows of a part: with so many, a part stores little compared with what it reads."""
    min_elements: int
    """Matrices of fewer elements are read twice at no extra cost."""
    min_concurrent_elements: int = 0
    """The least number of elements that all programs together process at a time; with fewer, memory latency shows."""
    few_elements: int = 1 << 20
    """That latency costs more than a second kernel only if the matrix has more than so many elements."""


@dataclass(frozen=True)
class SizeRules:
    """The thresholds; the default values are for large GPUs."""

    # -- one kernel as several (`splitting`)
    enough_programs: int = 256
    """A kernel of so many programs is not split."""
    target_programs: int = 512
    """The number of programs to aim at: about four for each multiprocessor of a large GPU, which all run at once."""
    min_split_elements: int = 1 << 13
    """Up to so many elements for each program take less time than another kernel."""
    min_part: int = 256
    """The least number of elements of a part."""
    min_rows_of_part: int = 64
    """The same if rows are strided, where a program processes several at a time."""
    max_parts: int = 1024
    """More parts would make the second kernel, which has few programs, slow."""
    min_multi_pass_elements: int = 1 << 15
    """So many elements for each program take longer than some more launches."""
    loads_of_an_element: int = 4
    """An element with more loads than so many counts as several."""
    min_strided_multi_pass_elements: int = 1 << 13
    """The same if rows are strided, where a program has more rows and there are fewer programs."""

    # -- several kernels as one (`program_passes`)
    mix_order: MixOrderLimits = MixOrderLimits(
        max_parts=512, min_parts=16, min_rows=8, min_elements=0, min_concurrent_elements=1 << 16
    )
    """`max_parts` is four programs for each multiprocessor of a large GPU."""
    max_horizontal_elements: int = 1 << 18
    """A GPU processes so many elements in about the time of a launch."""

    # -- block sizes (`block_sizes`)
    block: int = 1024
    """The elements that a program processes at a time, if nothing is reduced or rows are short."""
    warp_elements: int = 128
    """The elements that a warp processes at a time, if nothing is reduced: four for each thread."""
    narrow_block: int = 2048
    """`block` if elements have two bytes."""
    narrow_warp_elements: int = 256
    """`warp_elements` if elements have two bytes: a thread accesses 16 bytes at a time."""
    max_narrow_accesses: int = 6
    """With more accesses to a position, a thread has no registers for eight elements."""
    row_warp_elements: int = 512
    """The elements that a warp processes at a time, if rows are reduced."""
    light_row_warp_elements: int = 1024
    """The same if rows are strided and fit in registers, or are short: if elements have two bytes, or columns are
    reduced, too."""
    few_elements: int = 4096
    """A kernel of so few elements takes as long as one element takes: each thread processes one."""
    small_block: int = 128
    """The elements that a program processes if there are so few."""
    tile: int = 64
    """The side of a tile, if accesses are contiguous in two different indices."""
    strided_row_bytes: int = 64
    """The adjacent bytes that a program reads at a time if rows are strided: twice the least that a GPU reads."""
    gather_block: int = 512
    """The elements of a row that a program processes at a time, if positions are read for each row."""
    gather_rows: int = 4
    """The rows that it processes at a time."""
    stages: int = 3
    """The parts of a row that are loaded ahead, if a row has several."""
    max_bytes_ahead: int = 48 << 10
    """The most bytes of them: less shared memory than any GPU has."""
    few_programs: int = 128
    """Fewer programs than a large GPU has multiprocessors."""
    max_kept_elements: int = 8192
    """The elements that a program can keep in registers between two sweeps over them."""
    max_whole_row: int = 16384
    """A row of up to so many elements fits in the registers of a program."""
    row_part: int = 4096
    """The elements of a longer row that a program processes at a time."""
    min_symbolic_size: int = 256
    """Blocks for a symbolic number of elements are chosen for at least so many."""

    # -- the kernel's text (`codegen/triton`)
    max_int32_reach: int = 2**31 - 2**16
    """Indices and addresses that reach this number have 64 bits."""


DEFAULT_RULES = SizeRules()
_current: ContextVar[SizeRules] = ContextVar("size_rules", default=DEFAULT_RULES)


def current_rules() -> SizeRules:
    """Returns the rules in force."""
    return _current.get()


@contextmanager
def override_rules(rules: SizeRules) -> Iterator[None]:
    """Puts `rules` in force inside the context."""
    token = _current.set(rules)
    try:
        yield
    finally:
        _current.reset(token)
