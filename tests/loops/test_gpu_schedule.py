"""The schedules of Triton kernels: each block size has one, from which it can be read again."""

from __future__ import annotations

import pytest

from compiler_core.codegen.triton import printer
from compiler_core.errors import UsageError
from compiler_core.loops import ir
from compiler_core.loops.ir.nest import check
from compiler_core.loops.schedule.block_sizes import shape_for_triton
from compiler_core.loops.schedule.gpu import blocks_of, schedule
from compiler_core.tools.changes.schedule_from_text import read_schedule
from compiler_core.tools.timing.autotune import candidate_blocks
from tests.loops.test_rewrites import PROGRAMS, loops_of

ILLEGAL = [
    ("elements", "split(i0, 8)", "i0 is neither a block nor a loop over blocks"),
    ("elements", "fuse(i0, i1)\nsplit(i, 100)\nprograms(i_tile)\nblock(i)\nwarps(4)", "a power of two, not 100"),
    ("elements", "fuse(i0, i1)\nsplit(i, 128)\nprograms(i_tile)\nblock(i)", "say how many warps"),
    ("elements", "fuse(i0, i1)\nsplit(i, 128)\nblock(i)\nwarps(4)", "programs share no loop"),
    ("elements", "fuse(i0, i1)\nblock(i)\nwarps(4)", "split i first"),
    ("elements", "fuse(i0, i1)\nwarps(3)", "a program has 1, 2, 4, 8, 16 or 32 warps, not 3"),
    ("elements", "vectorize(i1)", "the rewrites of a Triton kernel are fuse, split, programs, block, stages, warps"),
    (
        "rows",
        "split(i0, 1)\nprograms(i0_tile)\nblock(i0)\nsplit(j0, 64)\nprograms(j0_tile)",
        "one program reduces a row",
    ),
    ("rows", "fuse(i0, j0)", "rows and their elements are not fused"),
    ("rows", "stages(j0, 3)", "j0 is no loop over blocks"),
    ("rows", "split(i0, 512)\nprograms(i0_tile)\nblock(i0, j0)\nwarps(4)", "at most 32,768 elements"),
]


def of_triton(name: str) -> ir.Loops:
    return shape_for_triton(loops_of(name)[0])


@pytest.mark.parametrize("name", PROGRAMS)
def test_block_sizes_are_those_of_the_nest_and_of_its_text(name: str) -> None:
    loops = of_triton(name)
    for blocks in candidate_blocks(loops):
        made = schedule(loops, blocks)
        for nest in (made.start, *(rewrite.nest for rewrite in made.rewrites)):
            check(nest)
        assert blocks_of(made.nest) == blocks
        again = read_schedule(loops, "\n".join(rewrite.text for rewrite in made.rewrites), "triton")
        assert again.nest == made.nest


def test_a_schedule_in_text_decides_the_kernel() -> None:
    loops, buffers = loops_of("rows")
    text = "split(i0, 2)\nprograms(i0_tile)\nblock(i0)\nsplit(j0, 64)\nstages(j0_tile, 3)\nblock(j0)\nwarps(2)"
    made = read_schedule(of_triton("rows"), text, "triton")
    program = ir.Program("forward", buffers, (), (loops,), (), languages={"cpu": "triton"})
    source = printer.generate(program, schedules={loops.name: made}).text
    assert "BLOCK_I: tl.constexpr = 2" in source
    assert "BLOCK_J: tl.constexpr = 64" in source
    assert source.count("for start in tl.range(0, 130, BLOCK_J, num_stages=3):") == 2
    assert '"num_warps": 2' in source
    assert "num_stages" not in printer.generate(program).text


@pytest.mark.parametrize(("name", "text", "why"), ILLEGAL)
def test_a_schedule_that_no_kernel_can_have_is_refused_with_the_reason(name: str, text: str, why: str) -> None:
    with pytest.raises(UsageError) as refused:
        blocks_of(read_schedule(of_triton(name), text, "triton").nest)
    assert why in str(refused.value)
