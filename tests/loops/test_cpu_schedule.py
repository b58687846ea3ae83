"""The kind of a C++ kernel, at the sizes and sweeps where it changes."""

from __future__ import annotations

import pytest

from compiler_core.loops import ir
from compiler_core.loops.fuse import rules
from compiler_core.loops.lower import lower
from compiler_core.loops.schedule.cpu import MAX_ROWS, TILE_ELEMENTS, kernel_kind, rows_per_tile, schedule
from tests.loops.docstring_examples import graph

SHIFTED = "aten.exp(aten.sub(x, aten.amax(x, [-1], True)))"
SOFTMAX = f"aten.div({SHIFTED}, aten.sum({SHIFTED}, [-1], True))"
"""Three sweeps over a row."""


def fused(expression: str, **inputs: str) -> ir.Loops:
    program = rules.fuse(lower(graph(expression, "cpu", **inputs), "forward")).program
    (loops,) = (step for step in program.steps if isinstance(step, ir.Loops))
    return loops


@pytest.mark.parametrize(
    ("size", "kind"),
    [
        ((64, 32), "short rows"),
        ((MAX_ROWS, 32), "short rows"),
        ((MAX_ROWS - 1, 32), "rows"),
        ((64, TILE_ELEMENTS // 2), "short rows"),
        ((64, TILE_ELEMENTS), "rows"),
    ],
)
def test_many_short_rows_of_three_sweeps_are_tiled(size: tuple[int, int], kind: str) -> None:
    assert kernel_kind(fused(SOFTMAX, x=f"f32[{size[0]}, {size[1]}]")) == kind


@pytest.mark.parametrize("expression", ["aten.sum(x, [-1])", "aten.sub(x, aten.sum(x, [-1], True))"])
def test_rows_of_one_or_two_sweeps_are_not_tiled(expression: str) -> None:
    assert kernel_kind(fused(expression, x="f32[64, 32]")) == "rows"


def test_rows_with_a_scan_are_not_tiled() -> None:
    loops = fused(f"aten.div(aten.cumsum(x, -1), aten.sum({SHIFTED}, [-1], True))", x="f32[64, 32]")
    assert loops.scans
    assert kernel_kind(loops) == "rows"


@pytest.mark.parametrize(("length", "rows"), [(32, 8), (128, 8), (129, 4), (512, 2), (513, 1), (1024, 1), (1025, 1)])
def test_a_tile_has_a_power_of_two_of_rows(length: int, rows: int) -> None:
    assert rows_per_tile(fused(SOFTMAX, x=f"f32[64, {length}]")) == rows


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("aten.sum(aten.embedding(w, i), [1])", "lanes"),  # neighbours in a row of the weight are adjacent
        ("aten.sum(aten.mul(aten.embedding(w, i), aten.embedding(w, i)), [2])", "rows"),
    ],
)
def test_an_index_read_from_a_tensor_separates_elements_in_memory(expression: str, kind: str) -> None:
    assert kernel_kind(fused(expression, w="f32[100, 64]", i="i64[32, 20]")) == kind


def test_the_columns_of_gathered_rows_are_the_innermost_loop() -> None:
    program = lower(graph("aten.index_add(z, 0, i, aten.index(x, [j]))", "cpu", z="f32[9, 40]", x="f32[9, 40]",
                          i="i64[30]", j="i64[30]"), "forward")  # fmt: skip
    update = next(s for s in rules.fuse(program).program.steps if isinstance(s, ir.Loops) and s.scatters)
    assert update.outer == (30, 40)


def test_a_vector_is_as_long_as_its_narrowest_conversion_needs() -> None:
    loops = fused("aten.mul(aten._to_copy(x, dtype=torch.int8), aten.sum(x, [1], True))", x="f32[64, 2000]")
    assert {loop.lanes for loop in schedule(loops).nest.find("j0")} == {16, 64}
