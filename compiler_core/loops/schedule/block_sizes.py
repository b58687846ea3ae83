"""How Triton kernels divide their work: which indices a block covers, its sizes, and the number of warps.

The thresholds of size that decide it, and how kernels are split and joined, are in one place, `SizeRules`.  Users
always get `DEFAULT_RULES`.  Tests replace them (`override_rules`), so that kernels that are made for millions of
elements are made for a few, and can run anywhere.  The results of kernels do not depend on the rules.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from compiler_core.loops import ir
from compiler_core.loops.ir import affine
from compiler_core.support.size_expr import Int, hint, prod


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
    min_bytes_read_again: int = 64 << 20
    """A kernel is split, though it has enough programs, if it would read so many bytes a second time: more than the
    cache of a large GPU holds, and reading them takes longer than two launches."""

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
    wide_warp_elements: int = 256
    """`warp_elements` of few accesses to elements side by side: 16 bytes of bfloat16 for each thread, or twice that."""
    max_wide_accesses: int = 6
    """With more accesses to a position, a thread has no registers for eight elements."""
    row_warp_elements: int = 512
    """The elements that a warp processes at a time, if rows are reduced, or in tiles."""
    light_row_warp_elements: int = 1024
    """The same if rows are strided and fit in registers, if columns are reduced, too, and for elements of two bytes, if
    rows are short, or only results of reductions are stored."""
    max_accesses_of_a_thread: int = 192
    """The most loads and stores of a thread for the elements that it keeps of rows.  With more it has no registers for
    what they read, and the kernel's text, in which nothing repeats, takes seconds to compile."""
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
    """A row of up to so many elements fits in the registers of a program, and one twice as long if it is all that is
    loaded, and its elements have at most four bytes."""
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


MAX_BLOCK_ELEMENTS = 32768
MAX_WARPS = 32
MAX_ROW_WARPS = 16


def program_count(loops: ir.Loops, blocks: Blocks | None = None) -> int:
    """Returns the number of programs of a kernel, for the sizes with which the graph was captured."""
    if loops.column_stores:
        return hint(prod(loops.outer[: len(loops.outer) - loops.sequential_rank]))
    blocks = blocks or choose_blocks(loops)
    rows = -(-hint(loops.outer_numel) // blocks.i)
    return rows * -(-hint(loops.inner_numel) // blocks.j) if blocks.tiled else rows


def _with_outer_index(loops: ir.Loops) -> ir.Loops:
    """Returns `loops`, with an outer index of size 1 if they have none."""
    if loops.outer:
        return loops
    body = []
    for statement in loops.body:
        # Triton stores a value of shape [1, 1] through a pointer of that shape
        stride = int(isinstance(statement, ir.Store) and not loops.is_inner(statement))
        body.append(ir.map_addresses(statement, functools.partial(_with_stride, stride)))
    return ir.Loops(loops.name, (1,), loops.inner, tuple(body))


def _with_stride(stride: int, address: ir.Address) -> ir.Address:
    return replace(address, strides=(stride, *address.strides))


def shape_for_triton(loops: ir.Loops) -> ir.Loops:
    """Returns `loops` as the Triton printer takes them: with an outer index, and tiled if that makes accesses wide."""
    return _tile_last_index(_with_outer_index(loops))


def _tile_last_index(loops: ir.Loops) -> ir.Loops:
    """Makes the last outer index an inner one if an access is contiguous in another index, or a load does not depend
    on it at all."""
    last = len(loops.outer) - 1
    if _gathers_rows(loops):
        return affine.reorder_indices(loops, range(last), [last])
    if loops.inner or not last or hint(loops.outer[last]) < 16:
        return loops
    loads = [s.address.strides for s in loops.body if isinstance(s, ir.Load)]
    accesses = [*loads, *(s.address.strides for s in loops.body if isinstance(s, ir.Store))]
    large = [k for k in range(last) if hint(loops.outer[k]) >= 8]
    contiguous = [k for k in large if any(s[k] == 1 and hint(s[last]) > 1 for s in accesses)]
    if contiguous:
        rest = [k for k in range(last) if k != contiguous[0]]
        return affine.reorder_indices(loops, [*rest, contiguous[0]], [last])
    wide = _power_of_2_divisor(loops.outer[last]) >= current_rules().tile
    by_row = wide and any(any(s) and not s[last] for s in loads)
    return affine.reorder_indices(loops, range(last), [last]) if by_row and not loops.scatters else loops


def _gathers_rows(loops: ir.Loops) -> bool:
    """Whether no position depends on the last index, so that each is read once for a row, and accesses are wide."""
    last = len(loops.outer) - 1
    if loops.inner or not loops.may_fail or last < 1 or hint(loops.outer[last]) < current_rules().tile:
        return False
    rows = affine.reorder_indices(loops, range(last), [last])
    return not any(isinstance(s, ir.Position) and rows.is_inner(s) for s in rows.body)


@dataclass(frozen=True)
class Blocks:
    """The block sizes of a kernel: one program processes `i` outer by `j` inner indices at a time.

    `j` is 0 in a kernel without inner indices.  If the kernel is `tiled`, its inner indices are divided among programs
    too; otherwise each program runs over all of them.
    """

    i: int
    j: int
    num_warps: int
    tiled: bool = False
    stages: int = 1
    """The number of blocks of a row that are loaded ahead, if a row has several."""

    def text(self) -> str:
        """Returns, for example, ``8 rows x 1024 columns, 4 warps``."""
        parts = [f"{self.i} rows x {self.j} columns" if self.j else f"{self.i} elements"]
        parts.append("1 warp" if self.num_warps == 1 else f"{self.num_warps} warps")
        if self.stages > 1:
            parts.append(f"{self.stages} stages")
        return ", ".join(parts)


def choose_blocks(loops: ir.Loops) -> Blocks:
    """Chooses block sizes with wide loads and busy threads, and with a whole row in registers if it fits."""
    rules = current_rules()
    outer = next_power_of_2(_planned_size(loops.outer_numel))
    if not loops.inner:
        if _are_few(loops.outer_numel):
            i = min(outer, rules.small_block)
            return Blocks(i, 0, max(1, i // 32))
        i = min(outer, rules.block)
        return Blocks(i, 0, _warps(loops, i))
    inner = next_power_of_2(_planned_size(loops.inner_numel))
    if loops.column_stores:  # each program accumulates whole rows
        are_short = inner <= rules.block
        i = max(1, min(next_power_of_2(hint(loops.row_numel)), (2 if are_short else 1) * rules.block // inner))
        return Blocks(i, inner, _row_warps(i * inner, are_short))
    if not any(isinstance(s, (ir.Reduce, ir.Scan)) for s in loops.body):
        across = _is_contiguous_across(loops)
        if loops.may_fail:
            j = min(inner, rules.gather_block)
            i = max(1, min(outer, rules.gather_rows * rules.gather_block // j))
        else:
            j = min(inner, rules.tile) if across else min(rules.block, _power_of_2_divisor(loops.inner[-1]))
            i = min(outer, rules.tile if across else max(1, rules.block // j))
        if _are_few(loops.outer_numel * loops.inner_numel):
            i = min(i, max(1, rules.small_block // j))
            return Blocks(i, j, max(1, i * j // 32), tiled=True)
        if across:
            warps = i * j // rules.row_warp_elements
        else:
            warps = i * j // rules.wide_warp_elements if loops.may_fail else _warps(loops, i * j)
        return Blocks(i, j, max(1, warps), tiled=True)
    is_strided = has_strided_rows(loops)
    if is_strided:
        i = min(outer, rules.strided_row_bytes // smallest_element_bytes(loops))
        if -(-outer // i) < rules.few_programs and sum(bool(sweep.inner) for sweep in ir.sweeps(loops)) > 1:
            # narrower accesses, but more programs, which keep what they read
            i = min(outer, rules.strided_row_bytes // 2 // smallest_element_bytes(loops))
        j = inner if i * inner <= rules.max_kept_elements else max(rules.row_part // i, rules.tile)
    else:
        inner_loads = [s for s in loops.body if isinstance(s, ir.Load) and loops.is_inner(s)]
        rows = [s.dtype.itemsize for s in inner_loads if any(s.address.strides[: len(loops.outer)])]
        is_all = len(rows) == 1 and rows[0] <= 4 and not loops.scans
        longest = rules.max_whole_row * (2 if is_all else 1)
        j = inner if inner <= longest else rules.row_part
        i = max(1, min(outer, rules.block // j))
    if j < inner:
        return Blocks(i, j, _row_warps(i * j), stages=_stages(loops, i * j))
    only_reads = not any(isinstance(s, ir.Store) and loops.is_inner(s) for s in loops.body)
    is_light = is_strided or (_is_wide(loops) and _has_halves(loops) and (only_reads or i * j <= rules.block))
    halves = is_strided and smallest_element_bytes(loops) == 2  # two of them are in a register
    warps = _row_warps(i * j // (2 if halves else 1), is_light)
    accesses = i * j * sum(isinstance(s, ir.Load | ir.Store) and loops.is_inner(s) for s in loops.body)
    needed = next_power_of_2(max(1, -(-accesses // (32 * rules.max_accesses_of_a_thread))))
    return Blocks(i, j, max(warps, min(needed, MAX_ROW_WARPS)))


def _warps(loops: ir.Loops, elements: int) -> int:
    """Returns the number of warps of a program that processes so many elements at a time, of which none are reduced."""
    rules = current_rules()
    is_wide = _is_wide(loops) and (elements >= rules.block or _has_halves(loops))
    return max(1, elements // (rules.wide_warp_elements if is_wide else rules.warp_elements))


def _row_warps(elements: int, are_light: bool = False) -> int:
    """Returns the number of warps of a program that processes so many elements of rows at a time."""
    rules = current_rules()
    wanted = elements // (rules.light_row_warp_elements if are_light else rules.row_warp_elements)
    return max(1, min(MAX_ROW_WARPS, wanted))


def _stages(loops: ir.Loops, elements: int) -> int:
    """Returns how many parts of rows, of so many elements, are loaded ahead: one if they do not fit or have single
    bytes, which a GPU does not copy to shared memory by itself."""
    rules = current_rules()
    sizes = [s.dtype.itemsize for s in loops.body if isinstance(s, ir.Load) and loops.is_inner(s)]
    fits = sum(sizes) * elements * rules.stages <= rules.max_bytes_ahead
    return rules.stages if fits and min(sizes, default=1) > 1 else 1


def _is_wide(loops: ir.Loops) -> bool:
    """Whether a thread can access eight elements of at most four bytes that lie side by side."""
    accesses = _accesses(loops)
    few = len(accesses) <= current_rules().max_wide_accesses
    return few and max(_sizes(loops), default=0) <= 4 and all(map(_is_aligned, accesses))


def _has_halves(loops: ir.Loops) -> bool:
    """Whether some of the elements side by side have two bytes."""
    return 2 in _sizes(loops)


def _sizes(loops: ir.Loops) -> list[int]:
    return [(s.dtype if isinstance(s, ir.Load) else loops.dtype(s.value)).itemsize for s in _accesses(loops)]


def _accesses(loops: ir.Loops) -> list[ir.Load | ir.Store]:
    return [s for s in loops.body if isinstance(s, ir.Load | ir.Store) and any(s.address.strides[-1:])]


def _is_aligned(access: ir.Load | ir.Store) -> bool:
    """Whether eight elements lie side by side, from a multiple of eight on."""
    *outer, last = access.address.strides
    numbers = [*outer, access.address.offset, *(factor for _, factor in access.address.values)]
    return last == 1 and all(isinstance(n, int) and n % 8 == 0 for n in numbers)


def parts_that_fit(loops: ir.Loops) -> int:
    """Returns into how many parts to divide the inner indices, so that a program can keep one in registers."""
    rules = current_rules()
    adjacent = rules.strided_row_bytes // smallest_element_bytes(loops) if has_strided_rows(loops) else 1
    elements = hint(loops.inner_numel) * min(adjacent, hint(loops.outer_numel))
    return -(-elements // rules.max_kept_elements)


def has_strided_rows(loops: ir.Loops) -> bool:
    """Whether elements that are adjacent in memory belong to different outer indices (rows).

    Loads with stride 0 in one of the two indices (a mask of rows) do not count.
    """
    last = len(loops.outer) - 1
    strides = [s.address.strides for s in loops.body if isinstance(s, ir.Load) and loops.is_inner(s)]
    moving = [s for s in strides if loops.outer and s[last]]
    rows = sum(s[-1] == 1 for s in moving)
    columns = sum(s[last] == 1 and hint(s[-1]) > 1 for s in moving)
    return columns > rows


def smallest_element_bytes(loops: ir.Loops) -> int:
    """Returns the bytes of the smallest element among the loads that depend on the last outer and an inner index."""
    last = len(loops.outer) - 1
    sizes = [
        s.dtype.itemsize
        for s in loops.body
        if isinstance(s, ir.Load) and loops.is_inner(s) and (last < 0 or s.address.strides[last])
    ]
    return max(1, min(sizes, default=4))


def _planned_size(numel: Int) -> int:
    """Returns the number of elements to choose blocks for: a symbolic one may have been small at capture only."""
    return numel if isinstance(numel, int) else max(hint(numel), current_rules().min_symbolic_size)


def _are_few(numel: Int) -> bool:
    """Whether a kernel has few elements at each call; a symbolic number may be larger at the next."""
    return isinstance(numel, int) and numel <= current_rules().few_elements


def _is_contiguous_across(loops: ir.Loops) -> bool:
    """Whether an access is contiguous in the last outer index and not in the last inner one."""
    last = len(loops.outer) - 1
    strides = [s.address.strides for s in loops.body if isinstance(s, ir.Load | ir.Store) and loops.outer]
    return any(s[last] == 1 and hint(s[-1]) > 1 for s in strides)


def _power_of_2_divisor(size: Int) -> int:
    """Returns the largest power of 2 that divides `size`; 1 if `size` is symbolic."""
    return size & -size if isinstance(size, int) else 1


def next_power_of_2(n: int) -> int:
    """Returns the least power of 2 that is at least `n`."""
    return 1 << (n - 1).bit_length()
