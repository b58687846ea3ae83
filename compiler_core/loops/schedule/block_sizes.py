"""How Triton kernels share out work: which indices make a block, how large it is, how many warps compute it."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from compiler_core.loops import ir
from compiler_core.loops.ir import affine
from compiler_core.loops.schedule import size_rules
from compiler_core.support.size_expr import Int, hint, prod

MOST_IN_A_BLOCK = 32768
MOST_WARPS = 32


def programs(loops: ir.Loops, blocks: Blocks | None = None) -> int:
    """How many programs run a kernel, for the sizes that the graph was captured with."""
    if loops.columns:
        return hint(prod(loops.outer[:-1]))
    blocks = blocks or choose_blocks(loops)
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
    """`loops`, with the last index as an inner one where an access goes through memory by another, or a load not by it
    at all."""
    last = len(loops.outer) - 1
    if _picks_rows(loops):
        return affine.arrange(loops, range(last), [last])
    if loops.inner or not last or hint(loops.outer[last]) < 16:
        return loops
    loads = [s.address.strides for s in loops.body if isinstance(s, ir.Load)]
    all_ = [*loads, *(s.address.strides for s in loops.body if isinstance(s, ir.Store))]
    across = [
        k for k in range(last) if hint(loops.outer[k]) >= 8 and any(s[k] == 1 and hint(s[last]) > 1 for s in all_)
    ]
    rest = [k for k in range(last) if k not in across[:1]]
    wide = _power_of_2_in(loops.outer[last]) >= size_rules.current().tile
    by_row = wide and any(any(s) and not s[last] for s in loads)
    in_place = any(isinstance(s, ir.Store) and s.how != "=" for s in loops.body)
    return affine.arrange(loops, [*rest, *across[:1]], [last]) if across or (by_row and not in_place) else loops


def _picks_rows(loops: ir.Loops) -> bool:
    """Whether positions are the same for all of the last index: looked at once for each row, accesses are wide."""
    last = len(loops.outer) - 1
    if loops.inner or not loops.may_fail or last < 1 or hint(loops.outer[last]) < size_rules.current().tile:
        return False
    rows = affine.arrange(loops, range(last), [last])
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
    stages: int = 1
    """So many blocks of a row are on their way from memory at a time, where a row is several."""

    def text(self) -> str:
        sizes = [f"{self.i} rows" if self.j else f"{self.i} elements"] + [f"{self.j} columns"] * bool(self.j)
        warps = f"{self.num_warps} warp{'s' if self.num_warps > 1 else ''}"
        return ", ".join([" x ".join(sizes), warps, *([f"{self.stages} stages"] if self.stages > 1 else [])])


def candidates(loops: ir.Loops) -> list[Blocks]:
    """Blocks that are worth a try, those that `choose_blocks` takes first."""
    usual = choose_blocks(loops)
    found = [usual]
    most_i = _power_of_2(hint(loops.outer[-1] if loops.columns else loops.outer_numel))
    for i in (usual.i, usual.i // 2, usual.i * 2):
        for j, stages in _inner_candidates(loops, usual):
            for warps in (usual.num_warps, usual.num_warps // 2, usual.num_warps * 2):
                fits = 1 <= i <= most_i and i * max(j, 1) <= MOST_IN_A_BLOCK and 1 <= warps <= MOST_WARPS
                # one change at a time, warps beside it
                if fits and (i == usual.i or (j, stages) == (usual.j, usual.stages)):
                    found.append(replace(usual, i=i, j=j, stages=stages, num_warps=warps))
    return list(dict.fromkeys(found))


def _inner_candidates(loops: ir.Loops, usual: Blocks) -> list[tuple[int, int]]:
    """Block sizes and stages for the inner indices: all of a row at once, or parts of it."""
    if not usual.j or loops.columns:
        return [(usual.j, usual.stages)]
    row = _power_of_2(hint(loops.inner_numel))
    if usual.tiled:
        return [(j, 1) for j in (usual.j, usual.j // 2, usual.j * 2) if 1 <= j <= row]
    whole = [(row, 1)] if row <= size_rules.current().whole_row else []
    return [*whole, *((j, stages) for j in sorted({1024, 4096, usual.j}) if j < row for stages in (1, 3))]


def choose_blocks(loops: ir.Loops) -> Blocks:
    """Blocks that keep loads wide, threads busy and a whole row in registers where it fits."""
    rules = size_rules.current()
    outer = _power_of_2(_extent(loops.outer_numel))
    if not loops.inner:
        i = min(outer, rules.block)
        return Blocks(i, 0, max(1, min(4, i // 128)))
    inner = _power_of_2(_extent(loops.inner_numel))
    if loops.columns:  # each program keeps the sums of whole rows
        i = max(1, min(_power_of_2(hint(loops.outer[-1])), rules.block // inner))
        return Blocks(i, inner, max(1, min(16, i * inner // 512)))
    if not any(isinstance(s, (ir.Reduce, ir.Scan)) for s in loops.body):
        across = goes_across(loops) or _stores_across(loops)
        if loops.may_fail:
            j = min(inner, rules.picked)
            i = max(1, min(outer, rules.block // j))
        else:
            j = min(inner, rules.tile) if across else min(rules.block, _power_of_2_in(loops.inner[-1]))
            i = min(outer, rules.tile if across else max(1, rules.block // j))
        return Blocks(i, j, max(1, i * j // (512 if across else 256)), tiled=True)
    if goes_across(loops):
        i = min(outer, 128 // _narrowest(loops))
        if -(-outer // i) < rules.few_programs and sum(bool(sweep.inner) for sweep in ir.sweeps(loops)) > 1:
            i = min(outer, 32 // _narrowest(loops))  # narrower accesses, but more programs that keep what they read
        j = inner if i * inner <= rules.whole else max(rules.part_of_row // i, rules.tile)
    else:
        j = inner if inner <= rules.whole_row else rules.part_of_row
        i = max(1, min(outer, rules.block // j))
    return Blocks(i, j, max(1, min(16, i * j // 512)))


def parts_to_keep(loops: ir.Loops) -> int:
    """In how many parts the inner indices go, so that a program can keep one."""
    adjacent = 128 // _narrowest(loops) if goes_across(loops) else 1
    return -(-hint(loops.inner_numel) * min(adjacent, hint(loops.outer_numel)) // size_rules.current().whole)


def goes_across(loops: ir.Loops) -> bool:
    """Whether rows lie across memory: elements that lie side by side there belong to different outer indices.

    What one of the two indices does not move, a mask of rows say, lies well for either.
    """
    last = len(loops.outer) - 1
    strides = [s.address.strides for s in loops.body if isinstance(s, ir.Load) and loops.is_inner(s)]
    moving = [s for s in strides if loops.outer and s[last]]
    rows = sum(s[-1] == 1 for s in moving)
    columns = sum(s[last] == 1 and hint(s[-1]) > 1 for s in moving)
    return columns > rows


def _narrowest(loops: ir.Loops) -> int:
    """Bytes of the narrowest element that is loaded for each outer and inner index."""
    last = len(loops.outer) - 1
    sizes = [
        s.dtype.itemsize
        for s in loops.body
        if isinstance(s, ir.Load) and loops.is_inner(s) and (last < 0 or s.address.strides[last])
    ]
    return max(1, min(sizes, default=4))


def _extent(numel: Int) -> int:
    """How many elements blocks are made for: a symbolic number may have been captured when it was small."""
    return numel if isinstance(numel, int) else max(hint(numel), size_rules.current().likely)


def _stores_across(loops: ir.Loops) -> bool:
    """Whether a store goes through memory by the last outer index rather than by the inner one."""
    strides = [s.address.strides for s in loops.body if isinstance(s, ir.Store) and loops.outer]
    return any(s[len(loops.outer) - 1] == 1 and hint(s[-1]) > 1 for s in strides)


def _power_of_2_in(size: Int) -> int:
    """The greatest power of 2 that divides it; 1 where that is not known."""
    return size & -size if isinstance(size, int) else 1


def _power_of_2(n: int) -> int:
    return 1 << (n - 1).bit_length()
