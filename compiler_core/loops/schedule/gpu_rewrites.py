"""The rewrites of loop nests that only the schedules of Triton kernels have; `rewrites` has `split`, and the rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compiler_core.loops import ir
from compiler_core.loops.ir.nest import Accumulate, Do, For, Nest, Node, map_nodes
from compiler_core.loops.schedule.rewrites import chain_from, change_loops, expect, found_loops
from compiler_core.support.size_expr import prod


def fuse(nest: Nest, *indices: str) -> Nest:
    """Makes one loop of loops that are directly inside each other, over their flattened index: ``i``, ``j`` or ``row``.

    >>> rewritten("aten.add(x, y)", "fuse(i0, i1)", "triton", x="f32[64, 128]", y="f32[64, 1]")
    forward_0:
        for i < 8192 of i0, i1:
            v0: f32 = load x[128*i0 + i1]
            v1: f32 = load y[i0]
            add: f32 = add(v0, v1)
            store add[128*i0 + i1] = add
    """
    outer = nest.loops.index_names[: len(nest.loops.outer)]
    expect(len(indices) > 1, "fuse needs two loops at least")
    expect(len({index in outer for index in indices}) == 1, "rows and their elements are not fused")
    name = indices[0][0] if not nest.find(indices[0][0]) else "row"

    def change(loop: For) -> Sequence[Node]:
        chain = chain_from(loop)[: len(indices)]
        are_there = [other.index for other in chain] == [*indices]
        expect(are_there, f"the loops {', '.join(indices)} are not directly inside each other")
        expect(not any(other.block or other.step != 1 for other in chain), "fuse loops before they are split")
        return [For(name, prod([other.end for other in chain]), chain[-1].body, parts=tuple(indices))]

    return change_loops(nest, indices[0], change)


def programs(nest: Nest, *indices: str) -> Nest:
    """Shares loops among the programs of a kernel: each takes one iteration."""
    for index in indices:
        sequential = nest.loops.index_names[len(nest.loops.outer) - nest.loops.sequential_rank : len(nest.loops.outer)]
        is_ordered = bool(nest.loops.column_stores) and index.removesuffix("_tile") in (*sequential, "row")
        expect(not is_ordered, "the rows of a part are accumulated in order")
        inside = index[0] == "j" and any(isinstance(s, ir.Reduce | ir.Scan) for s in nest.loops.body)
        expect(not inside, "one program reduces a row")
        nest = change_loops(nest, index, lambda loop: [replace(loop, is_program=True)])
    return nest


def block(nest: Nest, *indices: str) -> Nest:
    """Processes all elements of a loop at a time, by the threads of a program.

    A block with whole rows stays in registers, so that all sweeps are one, and a reduction is over the block.

    >>> rewritten("aten.sub(x, aten.amax(x, [1], True))", "block(j0)", "triton", x="f32[64, 128]")
    forward_0:
        for i0 < 64:
            block j0 < 128:
                v0: f32 = load x[128*i0 + j0]
                amax: f32 = max over j of v0
                sub: f32 = sub(v0, amax)
                store sub[128*i0 + j0] = sub
    """
    for index in indices:
        nest = change_loops(nest, index, lambda loop: [replace(loop, is_block=True)])
        inner = nest.loops.index_names[len(nest.loops.outer) :]
        found = nest.find(index)
        if {index, *found[0].parts}.issuperset(inner) and inner and not found[0].block:
            nest = _with_whole_rows(nest, found[0])
    return nest


def _with_whole_rows(nest: Nest, elements: For) -> Nest:
    """Returns a nest in which one block has all elements of a row, and executes the whole body."""
    block = replace(elements, body=tuple(Do(s) for s in nest.loops.body))

    def change(node: Node) -> Sequence[Node]:
        if isinstance(node, For | Accumulate) and any(_is_sweep(n, elements.index) for n in node.body):
            return [replace(node, body=(block,))]
        return [node]

    changed = map_nodes(nest.body, change)
    return replace(nest, body=(block,) if any(_is_sweep(n, elements.index) for n in nest.body) else changed)


def _is_sweep(node: Node, index: str) -> bool:
    """Whether a node is the outermost one of a sweep over whole rows."""
    inside = node.body[0] if isinstance(node, Accumulate) and node.place == "row" else node
    return isinstance(inside, For) and inside.index == index


def stages(nest: Nest, index: str, count: int) -> Nest:
    """Loads the blocks of the next `count` iterations ahead."""
    expect(isinstance(count, int) and count >= 1, "a loop has one stage at least")
    found_loops(nest, index)
    expect(index in nest.over_blocks, f"{index} is no loop over blocks")
    return change_loops(nest, index, lambda loop: [replace(loop, stages=count)])


def warps(nest: Nest, count: int) -> Nest:
    """Gives each program `count` warps of 32 threads."""
    expect(count in (1, 2, 4, 8, 16, 32), f"a program has 1, 2, 4, 8, 16 or 32 warps, not {count}")
    return replace(nest, warps=count)
