"""How kernels for a GPU divide a few long rows, and elements that lie in different orders in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compiler_core.loops import ir
from compiler_core.loops.fuse import rules
from compiler_core.loops.lower import lower
from compiler_core.loops.schedule.block_sizes import (
    DEFAULT_RULES,
    choose_blocks,
    has_strided_rows,
    override_rules,
    program_count,
    shape_for_triton,
)
from compiler_core.loops.schedule.splitting import split_passes, split_reductions
from compiler_core.support.size_expr import hint
from tests.loops.docstring_examples import graph


def scheduled(expression: str, **inputs: str) -> list[ir.Loops]:
    program = rules.fuse(lower(graph(expression, "cuda", **inputs), "forward")).program
    return [s for s in split_reductions(split_passes(program)).steps if isinstance(s, ir.Loops)]


def reductions(expression: str, **inputs: str) -> list[ir.Loops]:
    """The loops before they are split."""
    program = rules.fuse(lower(graph(expression, "cuda", **inputs), "forward")).program
    return [s for s in program.steps if isinstance(s, ir.Loops)]


def loads(loops: ir.Loops) -> list[ir.Load]:
    return [s for s in loops.body if isinstance(s, ir.Load)]


@pytest.mark.parametrize("order", ["[0, 1, 2, 3]", "[0, 3, 1, 2]", "[0, 2, 3, 1]", "[0, 1, 3, 2]"])
@pytest.mark.parametrize("size", ["8, 56, 56, 64", "4, 14, 14, 512", "2, 112, 9, 96", "8, 7, 7, 1024"])
def test_parts_of_a_row_read_whole_memory_accesses(order: str, size: str) -> None:
    """In whatever order the reduction goes through the row."""
    _, height, _, channels = map(int, size.split(", "))
    parts, _ = scheduled(
        f"aten.sum(aten.permute(aten.add(x, w), {order}), [1, 2, 3])",
        x=f"f32[{size}]",
        w=f"f32[{height}, 1, {channels}]",
    )
    assert len(parts.outer) >= 2
    for load in loads(parts):
        (adjacent,) = (hint(parts.space[at]) for at, stride in enumerate(load.address.strides) if stride == 1)
        assert 4 * adjacent >= min(DEFAULT_RULES.strided_row_bytes, 4 * channels)


def test_several_indices_are_split_where_none_alone_has_enough_parts() -> None:
    """For example sums over the windows of images."""
    windows = "aten.permute(aten.reshape(x, [8, 8, 7, 8, 7, 96]), [0, 1, 3, 2, 4, 5])"
    parts, combined = scheduled(
        f"aten.sum(aten.mul({windows}, aten.reshape(y, [8, 8, 8, 7, 7, 96])), [0, 1, 2, 3, 4])",
        x="f32[8, 56, 56, 96]",
        y="f32[8, 56, 56, 96]",
    )
    assert program_count(parts) >= DEFAULT_RULES.enough_programs
    assert hint(parts.outer_numel) == 96 * hint(combined.inner_numel)
    assert hint(parts.inner_numel) * hint(combined.inner_numel) == 8 * 56 * 56


def test_masks_of_rows_do_not_decide_whether_rows_are_strided() -> None:
    (columns,) = reductions(
        "aten.sum(aten.mul(aten.mul(x, y), z), [0])", x="f32[64, 32]", y="f32[64, 1]", z="f32[64, 1]"
    )
    (rows,) = reductions("aten.sum(aten.mul(aten.mul(x, y), z), [1])", x="f32[64, 32]", y="f32[64, 1]", z="f32[64, 1]")
    assert [has_strided_rows(columns), has_strided_rows(rows)] == [True, False]


def test_rows_are_not_strided_if_as_many_loads_go_along_them() -> None:
    (loops,) = reductions("aten.sum(aten.mul(x, aten.t(y)), [0])", x="f32[64, 32]", y="f32[32, 64]")
    assert not has_strided_rows(loops)


def test_a_part_of_two_sweeps_fits_into_registers() -> None:
    """The second sweep then reads nothing.  A part of one sweep may be longer."""
    deviations = "aten.sub(x, aten.mean(x, [1], True))"
    once, _ = scheduled("aten.sum(x, [1])", x="f32[3, 4194304]")
    twice, _ = scheduled(f"aten.sum(aten.mul({deviations}, {deviations}), [1])", x="f32[3, 4194304]")
    assert hint(once.inner_numel) > DEFAULT_RULES.max_kept_elements
    assert hint(twice.inner_numel) == DEFAULT_RULES.max_kept_elements


@pytest.mark.parametrize(
    ("axis", "size", "kernels"), [(0, "2048, 4096", 1), (0, "8192, 4096", 3), (1, "1024, 65536", 3)]
)
def test_a_mean_and_a_variance_of_long_rows_are_one_pass(axis: int, size: str, kernels: int) -> None:
    """Although the kernel has enough programs: what a second sweep would read again is more than a cache holds."""
    deviations = f"aten.sub(x, aten.mean(x, [{axis}], True))"
    variance = f"aten.mean(aten.mul({deviations}, {deviations}), [{axis}], True)"
    parts = scheduled(f"aten.div({deviations}, aten.sqrt({variance}))", x=f"f32[{size}]")
    assert len(parts) == kernels
    if kernels > 1:
        first, _, last = parts
        assert hint(first.inner_numel) * (16 if axis == 0 else 1) == DEFAULT_RULES.max_kept_elements
        assert not last.inner
        computed = [s.op for s in last.body if isinstance(s, ir.Compute)]
        assert computed == ["sub", "div"], "what is computed of a row is loaded"


@pytest.mark.parametrize(("loaded", "whole"), [("x", True), ("aten.add(x, y)", False)])
def test_a_row_is_read_once_if_it_is_all_that_is_loaded(loaded: str, whole: bool) -> None:
    norm = f"(lambda a: aten.div(a, aten.sum(aten.abs(a), [1], True)))({loaded})"
    inputs = {name: "f32[512, 32768]" for name in "xy" if name in loaded.replace("exp", "")}
    (loops,) = scheduled(norm, **inputs)
    assert (choose_blocks(loops).j == 32768) == whole


@pytest.mark.parametrize("columns", [32, 512])
def test_a_part_has_more_than_one_element(columns: int) -> None:
    with override_rules(replace(DEFAULT_RULES, enough_programs=1 << 30, min_split_elements=1, min_rows_of_part=1)):
        parts, _ = scheduled("aten.sum(x, [0])", x=f"f32[64, {columns}]")
    assert hint(parts.inner_numel) > 1


def test_a_later_pass_loads_what_an_earlier_one_stored() -> None:
    added = "aten.add(aten.mul(x, y), z)"
    first, *_, last = scheduled(
        f"(lambda a: (a, aten.sub(a, aten.sum(a, [1], True))))({added})", **dict.fromkeys("xyz", "f32[8, 1048576]")
    )
    (stored,) = (s for s in first.body if isinstance(s, ir.Store) and s.address.strides[-1] == 1)
    assert len(loads(first)) == 3
    assert loads(last)[0].buffer == stored.buffer
    assert len(loads(last)) == 2


def test_a_later_pass_computes_again_what_one_load_gives() -> None:
    first, *_, last = scheduled(
        "(lambda a: (a, aten.sub(a, aten.sum(a, [1], True))))(aten.mul(x, 2))", x="f32[8, 1048576]"
    )
    assert loads(first)[0].buffer in {s.buffer for s in loads(last)}


@pytest.mark.parametrize(("terms", "kernels"), [(2, 1), (12, 3)])
def test_rows_of_many_loads_count_as_longer(terms: int, kernels: int) -> None:
    names = [f"x{i}" for i in range(terms)]
    total = names[0]
    for name in names[1:]:
        total = f"aten.add({total}, {name})"
    expression = f"(lambda a: aten.sub(a, aten.sum(a, [1], True)))({total})"
    assert len(scheduled(expression, **dict.fromkeys(names, "f32[8, 16384]"))) == kernels


@pytest.mark.parametrize("rows", ["x, y", "y, x", "x, x, x, y"])
def test_accesses_in_two_orders_get_tiles(rows: str) -> None:
    """Also if most of them go one way, and no side is a power of 2."""
    inputs = {"x": "f32[8, 196, 29]", "y": "f32[8, 29, 196]"}
    terms = [name if name == "x" else "aten.transpose(y, 1, 2)" for name in rows.split(", ")]
    total = terms[0]
    for number, term in enumerate(terms[1:]):
        total = f"aten.add({total}, aten.mul({term}, {number + 2}))"
    (loops,) = scheduled(total, **inputs)
    blocks = choose_blocks(shape_for_triton(loops))
    assert blocks.tiled
    assert min(blocks.i, blocks.j) >= 16


@pytest.mark.parametrize(("shape", "least"), [("768", 6), ("12, 64", 6), ("64", 1), ("4096", 32), ("16777216", 16384)])
def test_few_elements_are_divided_among_programs(shape: str, least: int) -> None:
    (loops,) = scheduled("aten.exp(x)", x=f"f32[{shape}]")
    shaped = shape_for_triton(loops)
    blocks = choose_blocks(shaped)
    assert program_count(shaped, blocks) == least
    assert 32 * blocks.num_warps * 8 >= blocks.i * max(blocks.j, 1)
