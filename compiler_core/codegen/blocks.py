"""How Triton kernels share out work: which indices make a block, how large it is, how many warps compute it."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from compiler_core import ir, spaces
from compiler_core.sizes import Int, hint, prod

TILE = 64
WHOLE = 8192
"""Elements of a part that a program goes through twice and keeps meanwhile."""
LIKELY = 256
"""Blocks for a symbolic number of elements are made for at least so many."""


def programs(loops: ir.Loops) -> int:
    """How many programs run a kernel, for the sizes that the graph was captured with."""
    if loops.columns:
        return hint(prod(loops.outer[:-1]))
    blocks = choose_blocks(loops)
    return -(-hint(loops.outer_numel) // blocks.i) * (-(-hint(loops.inner_numel) // blocks.j) if blocks.tiled else 1)


def _with_outer_index(loops: ir.Loops) -> ir.Loops:
    """`loops`, with an outer index of size 1 where they have none."""
    if loops.outer:
        return loops
    body = []
    for statement in loops.body:
        # a value of shape [1, 1] needs a pointer of that shape to go to
        stride = int(isinstance(statement, ir.Store) and not loops.is_inner(statement))
        body.append(ir.readdressed(statement, functools.partial(_with_stride, stride)))
    return ir.Loops(loops.name, (1,), loops.inner, tuple(body))


def _with_stride(stride: int, address: ir.Address) -> ir.Address:
    return replace(address, strides=(stride, *address.strides))


def as_printed(loops: ir.Loops) -> ir.Loops:
    """`loops` with at least one outer index, and in tiles where that makes accesses wide."""
    return _in_tiles(_with_outer_index(loops))


def _in_tiles(loops: ir.Loops) -> ir.Loops:
    """`loops`, with the last index as an inner one where a load goes through memory by another, or not by it at all."""
    last = len(loops.outer) - 1
    if _picks_rows(loops):
        return spaces.arrange(loops, range(last), [last])
    if loops.inner or not last or hint(loops.outer[last]) < 16:
        return loops
    loads = [s.address.strides for s in loops.body if isinstance(s, ir.Load)]
    across = [
        k for k in range(last) if hint(loops.outer[k]) >= 16 and any(s[k] == 1 and hint(s[last]) > 1 for s in loads)
    ]
    rest = [k for k in range(last) if k not in across[:1]]
    by_row = _power_of_2_in(loops.outer[last]) >= TILE and any(any(s) and not s[last] for s in loads)
    in_place = any(isinstance(s, ir.Store) and s.how != "=" for s in loops.body)
    return spaces.arrange(loops, [*rest, *across[:1]], [last]) if across or (by_row and not in_place) else loops


def _picks_rows(loops: ir.Loops) -> bool:
    """Whether positions are the same for all of the last index: looked at once for each row, accesses are wide."""
    last = len(loops.outer) - 1
    if loops.inner or not loops.may_fail or last < 1 or hint(loops.outer[last]) < TILE:
        return False
    rows = spaces.arrange(loops, range(last), [last])
    return not any(isinstance(s, ir.Position) and rows.is_inner(s) for s in rows.body)


@dataclass(frozen=True)
class Blocks:
    """How much one program does at a time; `j` is 0 in a kernel without inner indices.

    Where it is `tiled`, programs share out the inner indices too; else each program does all of them.
    """

    i: int
    j: int
    num_warps: int
    tiled: bool = False


def choose_blocks(loops: ir.Loops) -> Blocks:
    """Blocks that keep loads wide, threads busy and a whole row in registers where it fits."""
    outer = _power_of_2(_extent(loops.outer_numel))
    if not loops.inner:
        i = min(outer, 1024)
        return Blocks(i, 0, max(1, min(4, i // 128)))
    inner = _power_of_2(_extent(loops.inner_numel))
    if not any(isinstance(s, (ir.Reduce, ir.Scan)) for s in loops.body):
        across = _outer_indices_are_adjacent(loops)
        if loops.may_fail:
            j = min(inner, 512)
            i = max(1, min(outer, 1024 // j))
        else:
            j = min(inner, TILE) if across else min(1024, _power_of_2_in(loops.inner[-1]))
            i = min(outer, TILE if across else max(1, 1024 // j))
        return Blocks(i, j, max(1, i * j // (512 if across else 256)), tiled=True)
    if _outer_indices_are_adjacent(loops):
        i = min(outer, 128 // _narrowest(loops))
        j = inner if i * inner <= WHOLE else max(4096 // i, 64)
    else:
        j = inner if inner <= 16384 else 4096
        i = max(1, min(outer, 1024 // j))
    if loops.columns:
        i = min(i, _power_of_2(hint(loops.outer[-1])))
    return Blocks(i, j, max(1, min(16, i * j // 512)))


def _narrowest(loops: ir.Loops) -> int:
    """Bytes of the narrowest element that is loaded for each inner index."""
    sizes = [s.dtype.itemsize for s in loops.body if isinstance(s, ir.Load) and loops.is_inner(s)]
    return max(1, min(sizes, default=4))


def _extent(numel: Int) -> int:
    """How many elements blocks are made for: a symbolic number may have been captured when it was small."""
    return numel if isinstance(numel, int) else max(hint(numel), LIKELY)


def _outer_indices_are_adjacent(loops: ir.Loops) -> bool:
    """Whether elements that lie side by side in memory belong to different outer indices."""
    strides = [s.address.strides for s in loops.body if isinstance(s, ir.Load) and loops.is_inner(s)]
    rows = sum(s[-1] == 1 for s in strides)
    columns = sum(bool(loops.outer) and s[len(loops.outer) - 1] == 1 and hint(s[-1]) > 1 for s in strides)
    return columns > rows


def _power_of_2_in(size: Int) -> int:
    """The greatest power of 2 that divides it; 1 where that is not known."""
    return size & -size if isinstance(size, int) else 1


def _power_of_2(n: int) -> int:
    return 1 << (n - 1).bit_length()
