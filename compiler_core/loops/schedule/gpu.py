"""The schedules of Triton kernels: which rewrites make the loop nest of a kernel, from its block sizes.

A kernel's programs share the outer indices, a block of them each; inner indices are a block, too, or a loop over
blocks.  `block_sizes` chooses the sizes; `blocks_of` reads them from a nest, for the printer.
"""

from __future__ import annotations

from compiler_core.errors import UsageError
from compiler_core.loops import ir
from compiler_core.loops.ir.nest import For, Nest, walk
from compiler_core.loops.schedule.block_sizes import MAX_BLOCK_ELEMENTS, Blocks, has_strided_rows, next_power_of_2
from compiler_core.loops.schedule.script import Schedule
from compiler_core.support.size_expr import Size, hint


def schedule(loops: ir.Loops, blocks: Blocks) -> Schedule:
    """Returns the schedule of a Triton kernel; `loops` are shaped for Triton (`shape_for_triton`).

    >>> scheduled("aten.sub(x, aten.amax(x, [1], True))", "triton", x="f32[64, 128]")
    forward_0:
        for i0 < 64:
            accumulate amax:
                for j0 < 128:
                    v0: f32 = load x[128*i0 + j0]
                    amax: f32 = max over j of v0
            for j0 < 128:
                v0: f32 = load x[128*i0 + j0]
                sub: f32 = sub(v0, amax)
                store sub[128*i0 + j0] = sub
    ---
    split(i0, 8)   # rows are short: a program has several
    forward_0:
        for i0_tile < 64 step 8:
            for i0 in i0_tile .. + 8:
                accumulate amax:
                    for j0 < 128:
                        v0: f32 = load x[128*i0 + j0]
                        amax: f32 = max over j of v0
                for j0 < 128:
                    v0: f32 = load x[128*i0 + j0]
                    sub: f32 = sub(v0, amax)
                    store sub[128*i0 + j0] = sub
    ---
    programs(i0_tile)   # programs share the blocks
    forward_0:
        program i0_tile < 64 step 8:
            for i0 in i0_tile .. + 8:
                accumulate amax:
                    for j0 < 128:
                        v0: f32 = load x[128*i0 + j0]
                        amax: f32 = max over j of v0
                for j0 < 128:
                    v0: f32 = load x[128*i0 + j0]
                    sub: f32 = sub(v0, amax)
                    store sub[128*i0 + j0] = sub
    ---
    block(i0)   # a program's threads share its elements
    forward_0:
        program i0_tile < 64 step 8:
            block i0 in i0_tile .. + 8:
                accumulate amax:
                    for j0 < 128:
                        v0: f32 = load x[128*i0 + j0]
                        amax: f32 = max over j of v0
                for j0 < 128:
                    v0: f32 = load x[128*i0 + j0]
                    sub: f32 = sub(v0, amax)
                    store sub[128*i0 + j0] = sub
    ---
    block(j0)   # a row fits in registers, and is read once
    forward_0:
        program i0_tile < 64 step 8:
            block i0 in i0_tile .. + 8:
                block j0 < 128:
                    v0: f32 = load x[128*i0 + j0]
                    amax: f32 = max over j of v0
                    sub: f32 = sub(v0, amax)
                    store sub[128*i0 + j0] = sub
    ---
    warps(2)   # so many elements for each thread that accesses are wide and fit in registers
    forward_0: 2 warps
        program i0_tile < 64 step 8:
            block i0 in i0_tile .. + 8:
                block j0 < 128:
                    v0: f32 = load x[128*i0 + j0]
                    amax: f32 = max over j of v0
                    sub: f32 = sub(v0, amax)
                    store sub[128*i0 + j0] = sub
    """
    made = Schedule(loops)
    rank = len(loops.outer)
    names, columns = loops.index_names, bool(loops.column_stores)
    first = rank - loops.sequential_rank if columns else 0
    shared = _flat(made, names[:first])
    rows, elements = _flat(made, names[first:rank]), _flat(made, names[rank:])
    made.apply("split", rows, blocks.i, reason=_row_reason(loops, blocks))
    if columns:
        made.apply("programs", shared, reason="each program accumulates the columns of its part")
    else:
        made.apply("programs", f"{rows}_tile", reason="programs share the blocks")
    made.apply("block", rows, reason="a program's threads share its elements")
    if elements:
        length = loops.inner_numel
        if blocks.tiled or isinstance(length, Size) or blocks.j < length:
            reason = "a tile: accesses are wide along both indices" if blocks.tiled else "a row exceeds the registers"
            made.apply("split", elements, blocks.j, reason=reason)
            if blocks.tiled:
                made.apply("programs", f"{elements}_tile", reason="each program has one tile")
            elif blocks.stages > 1:
                made.apply("stages", f"{elements}_tile", blocks.stages, reason="memory is read while it computes")
            made.apply("block", elements)
        else:
            made.apply("block", elements, reason="a row fits in registers, and is read once")
    reason = "so many elements for each thread that accesses are wide and fit in registers"
    made.apply("warps", blocks.num_warps, reason=reason)
    return made


def _flat(made: Schedule, names: tuple[str, ...]) -> str:
    """Makes one loop of several; returns its index."""
    if len(names) < 2:
        return "".join(names)
    made.apply("fuse", *names, reason="blocks are of a flat index")
    return next(n.index for n in walk(made.nest.body) if isinstance(n, For) and n.parts == names)


def _row_reason(loops: ir.Loops, blocks: Blocks) -> str:
    if not loops.inner:
        return "the elements of a program: enough for wide accesses by each thread"
    if blocks.tiled:
        return "the rows of a tile"
    if has_strided_rows(loops):
        return "adjacent elements in memory differ in this index"
    return "one row at a time" if blocks.i == 1 else "rows are short: a program has several"


def blocks_of(nest: Nest) -> Blocks:
    """Returns the block sizes of a scheduled nest.

    Raises UsageError if a Triton kernel cannot have this form.
    """
    loops = [node for node in walk(nest.body) if isinstance(node, For)]
    outer = {"i", "row", *nest.loops.index_names[: len(nest.loops.outer)]}
    rows = [loop for loop in loops if loop.is_block and loop.index in outer]
    elements = [loop for loop in loops if loop.is_block and loop.index not in outer]
    others = [loop for loop in loops if not (loop.is_block or loop.is_program or loop.index in nest.over_blocks)]
    if others:
        raise UsageError(f"{others[0].index} is neither a block nor a loop over blocks: block({others[0].index})")
    if not rows or (nest.loops.inner and not elements):
        raise UsageError("a Triton kernel has a block of rows, and of their elements if there are any")
    if not all(loop.block for loop in rows):
        raise UsageError(f"split {rows[0].index} first: a program has one block of it")
    if not any(loop.is_program for loop in loops if loop.index in outer or loop.index.removesuffix("_tile") in outer):
        raise UsageError(f"programs share no loop: programs({rows[0].block})")
    i = rows[0].size
    j = (elements[0].size or next_power_of_2(hint(elements[0].end))) if elements else 0
    for size in (i, j or 1):
        if size & (size - 1):
            raise UsageError(f"the size of a block is a power of two, not {size}")
    if i * max(j, 1) > MAX_BLOCK_ELEMENTS:
        raise UsageError(f"a block has at most {MAX_BLOCK_ELEMENTS:,} elements, not {i * max(j, 1):,}")
    if not nest.warps:
        raise UsageError("say how many warps a program has: warps(4)")
    tiles = [loop for loop in loops if elements and loop.index == elements[0].block]
    is_tiled = any(loop.is_program for loop in tiles)
    return Blocks(i, j, nest.warps, is_tiled, max([loop.stages for loop in tiles], default=1))
