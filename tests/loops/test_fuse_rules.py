"""Fusion rules: which programs become one kernel, the refusals of others, and values equal to eager's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from compiler_core.config import Options
from compiler_core.errors import UsageError
from compiler_core.loops import ir
from compiler_core.loops.fuse import rules
from compiler_core.loops.fuse.rewriter import FusionResult
from compiler_core.loops.fuse.rules import REFUSALS, fuse
from compiler_core.loops.ir import Address, affine
from compiler_core.loops.lower import lower
from compiler_core.pipeline.graph import compile_kernels
from compiler_core.records import Compile, Record
from compiler_core.support.fx_graphs import record_graph
from tests.cases.kernel_programs import check, outputs, trace


def fused(program: Any, *inputs: torch.Tensor) -> FusionResult:
    return fuse(lower(trace(program, *inputs), "forward"))


def kernels(program: Any, *inputs: torch.Tensor) -> list[ir.Loops]:
    return [s for s in fused(program, *inputs).program.steps if isinstance(s, ir.Loops)]


X, Y, B = torch.randn(6, 8), torch.randn(6, 8), torch.randn(8)
ONE_KERNEL: dict[str, tuple[Any, tuple[torch.Tensor, ...]]] = {
    "a chain": (lambda x, y, b: F.gelu(x) * y + b, (X, Y, B)),
    "several results": (lambda x: (x.exp(), x.exp() + 1, x.sin()), (X,)),
    "into a reduction": (lambda x, y: (x * y).exp().sum(1), (X, Y)),
    "out of a reduction": (lambda x: x.sum(1).exp() + 1, (X,)),
    "around reductions": (lambda x: F.softmax(x * 2, -1) + 1, (X,)),
    "layer norm": (lambda x, b: F.layer_norm(x, (8,), b, b).relu(), (X, B)),
    "across columns": (lambda x: F.softmax(x.exp(), 0), (X,)),
    "a transposed producer": (lambda x, y: (x + 1).t().contiguous() * 2, (X, Y)),
    "a reshaped producer": (lambda x, b: torch.relu((x.exp() + b).view(2, 3, 8).flatten() * 2), (X, B)),
    "a sliced producer": (lambda x: (x.exp())[1:4, ::2] + 1, (X,)),
    "a cheap broadcast producer": (lambda x, b: x + (b * 2), (X, B)),
    "siblings": (lambda x: (x.sum(1), x.amax(1), x * 2), (X,)),
    "two reductions of one": (lambda x: torch.var_mean(x, 1), (X,)),
    "a whole reduction": (lambda x, y: F.mse_loss(x, y), (X, Y)),
    "batch norm": (
        lambda x: F.batch_norm(x, None, None, training=True),
        (torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(0)),),
    ),
}


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_programs_that_become_one_kernel(name: str) -> None:
    program, inputs = ONE_KERNEL[name]
    assert len(kernels(program, *inputs)) == 1
    check(program, *inputs)


ROWS = torch.randn(40, 30), torch.randn(40, 30)
FULL_REDUCTIONS: dict[str, tuple[Any, tuple[torch.Tensor, ...]]] = {
    "a divergence": (lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1), reduction="sum"), ROWS),
    "a mean of norms": (lambda x, y: (F.normalize(x, dim=1) * y).mean(), ROWS),
    "the largest": (lambda x, y: (x.softmax(1) + y).amax(), ROWS),
    "two sums and what is stored": (lambda x, y: ((z := x.softmax(1) * y), z.sum(), (z * z).sum().sqrt() + 1), ROWS),
    "rows of a batch": (
        lambda x, y: ((F.layer_norm(x.view(4, 10, 30), (30,)) - y.view(4, 10, 30)) ** 2).sum(),
        ROWS,
    ),
}


@pytest.mark.parametrize("name", FULL_REDUCTIONS)
def test_full_reduction_is_fused_into_a_row_wise_producer(name: str) -> None:
    program, inputs = FULL_REDUCTIONS[name]
    done = fused(program, *inputs)
    rows, *rest = (s for s in done.program.steps if isinstance(s, ir.Loops))
    assert rows.outer_numel == 40
    assert {step.inner for step in rest} == {(40,)}
    assert "the results of its rows are reduced" in done.rewrites_by_loops[rows.name][-1].reason
    assert done.rewrites_by_loops[rows.name][-1].bytes_saved > 0
    check(program, *inputs)


def test_full_reduction_of_few_rows_or_in_several_sweeps_is_not_fused() -> None:
    few = kernels(lambda x: x.softmax(1).sum(), torch.randn(4, 3000))
    assert [step.outer for step in few] == [(4,), ()]
    twice = kernels(lambda x: x.softmax(1).softmax(1).var(), torch.randn(40, 30))
    assert len(twice) == 2


def test_producer_read_in_alternating_parts_is_recomputed_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def interleaved(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        even, odd, cos, sin = x[:, ::2], x[:, 1::2], y[:, ::2].cos(), y[:, ::2].sin()
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)

    assert len(kernels(interleaved, X, Y)) == 2
    monkeypatch.setattr("compiler_core.loops.fuse.rules.DEVICES_THAT_REPEAT", {"cpu"})
    assert len(kernels(interleaved, X, Y)) == 1
    check(interleaved, X, Y)


def test_part_of_a_stored_concatenation_is_read_with_one_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """The units of a ShuffleNet: one half of the shuffled channels is used at once, the other by the next unit."""

    def shuffled(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x, half = x.chunk(2, 1)
            y = F.conv2d(half.contiguous(memory_format=torch.channels_last), weight)
            y = F.batch_norm(y, mean, var).relu()
            x = torch.cat([x, y], 1).view(2, 2, 4, 5, 5).transpose(1, 2).contiguous().view(2, 8, 5, 5)
        return x

    monkeypatch.setattr("compiler_core.loops.fuse.rules.DEVICES_THAT_REPEAT", {"cpu"})
    monkeypatch.setitem(rules.MAX_RECOMPUTE_COST, "cpu", rules.MAX_RECOMPUTE_COST["cuda"])
    inputs = torch.randn(2, 8, 5, 5), torch.randn(4, 4, 1, 1)
    mean, var = torch.rand(4), torch.rand(4)
    found = kernels(shuffled, *inputs)
    for step in found:
        parts = [s.buffer for s in step.body if isinstance(s, ir.Load) and s.within]
        assert len([name for name in parts if "constant" not in name]) <= 2, step  # not the mean and the variance
    # a unit has two: a copy of its half, and a concatenation that normalises its part
    assert len(found) == 8
    check(shuffled, *inputs)


REFUSED: dict[str, tuple[Any, tuple[torch.Tensor, ...], str]] = {
    "a call": (lambda x, y: (x @ y.t()).relu(), (X, Y), "call"),
    "a reduction over another's outer index": (lambda x: (x.exp().sum(1).exp()).sum(0), (X,), "inner"),
    "a dear broadcast producer": (lambda x, b: x + b.exp(), (X, B), "repeat"),
    "a part of what is stored": (lambda x: ((a := x.exp()), a[1:4, ::2].sum(0)), (X,), "partial"),
    "two places of one producer": (lambda x: (a := x.exp())[:3] + a[3:], (X,), "address"),
    "a reduction for each broadcast index": (lambda x, y: (x.sum(1), y.t() @ y, x.sum(1)[:3].exp()), (X, Y), "repeat"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_by_kind(name: str) -> None:
    program, inputs, kind = REFUSED[name]
    assert kind in {refusal.kind for _, _, refusal in fused(program, *inputs).refusals}
    check(program, *inputs)


def test_a_step_in_between_is_a_cycle() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        a = x.exp()
        return a + a @ y

    square = torch.randn(6, 6)
    kinds = {refusal.kind for _, _, refusal in fused(program, square, square).refusals}
    assert kinds == {"call", "cycle"}
    check(program, square, square)


def test_a_body_does_not_grow_without_bound() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(150):
            x = x.sin() + 1
        return x

    done = fused(program, torch.randn(4))
    assert {r.kind for _, _, r in done.refusals} == {"size"}
    assert 1 < len(done.program.steps) < 4


def test_every_kind_of_refusal_is_documented() -> None:
    for name, (program, inputs, _) in REFUSED.items():
        for _, _, refusal in fused(program, *inputs).refusals:
            assert refusal.kind in REFUSALS, name
            assert refusal.reason


def test_every_rewrite_is_recorded() -> None:
    done = fused(lambda x: F.softmax(x.sin(), -1) * 2, X)
    assert len(done.rewrites) == 6  # sin, amax, sub, exp, sum, div, mul became one
    assert all(r.bytes_saved >= 0 and r.reason and r.rule in ("copy", "producer", "sibling") for r in done.rewrites)
    assert set(done.rewrites_by_loops["forward_0"]) == set(done.rewrites)
    assert done.rewrites[-1].after == "mul"


def test_bytes_saved_of_one_rewrite() -> None:
    (rewrite,) = fused(lambda x: x.exp().sin(), X).rewrites
    assert (rewrite.rule, rewrite.bytes_saved) == ("producer", 2 * X.numel() * 4)
    (rewrite,) = fused(lambda x: ((a := x.exp()), a.sin()), X).rewrites
    assert rewrite.bytes_saved == X.numel() * 4  # still written, no longer read


def test_bytes_saved_add_up_to_the_difference_in_traffic() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = (x * 2 + y).relu()
        return F.softmax(a / a.sum(-1, keepdim=True), -1), a.argmax(1)

    x, y = torch.randn(64, 32), torch.randn(64, 32)
    compile_ = recorded(program, x, y)
    (kernel,) = compile_.kernels
    whole, row = x.nbytes, 64 * 4  # softmax is max, sub, exp, sum, div
    apart = whole * (2 + 3 + 2 + 1 + 2 + 1 + 2 + 2 + 1 + 2 + 1) + row * (1 + 1 + 1 + 1 + 1 + 1) + 64 * 8
    moved = (kernel.bytes_read or 0) + (kernel.bytes_written or 0)
    assert sum(f.bytes_saved or 0 for f in compile_.fusions) == apart - moved


def test_common_subexpressions_are_eliminated() -> None:
    (loops,) = kernels(lambda x: (x.exp() + 1, x.exp() * 2), X)
    assert [type(s).__name__ for s in loops.body].count("Load") == 1
    assert sum(isinstance(s, ir.Compute) and s.op == "exp" for s in loops.body) == 1


def test_contiguous_sizes_are_merged() -> None:
    (loops,) = kernels(lambda x: x.exp(), torch.randn(2, 3, 4, 5))
    assert loops.outer == (120,)
    (loops,) = kernels(lambda x, b: x + b, torch.randn(2, 3, 4, 5), torch.randn(5))
    assert loops.outer == (24, 5)
    (loops,) = kernels(lambda x: x.sum((2, 3)), torch.randn(2, 3, 4, 5))
    assert (loops.outer, loops.inner) == ((6,), (20,))


def test_loops_are_not_moved_across_a_mutation() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a = x.exp()
        x.copy_(a)
        return a + 1, x.exp()

    steps = fuse(lower(make_fx(program)(X.clone()), "forward")).program.steps
    assert [type(s).__name__ for s in steps] == ["Loops", "Call", "Loops", "Loops"]


def test_index_map_of_a_transposed_slice() -> None:
    # stored as [4, 6], read at [i, j] -> [1 + 2*j, i]
    rows = affine.solve_index_map(Address((6, 1)), (4, 6), Address((1, 12), 6), (6, 2))
    assert rows == {0: Address((0, 2), 1), 1: Address((1, 0))}


def test_index_map_that_needs_a_split() -> None:
    assert affine.solve_index_map(Address((3, 1)), (2, 3), Address((1,)), (6,)) == affine.SizeSplit(0, 3)
    cut = affine.split_size(ir.Loops("f", (6,), (), (ir.Store("b", Address((1,)), "x"),)), affine.SizeSplit(0, 3))
    assert (cut.outer, cut.body[0].address.strides) == ((2, 3), (3, 1))  # type: ignore[union-attr]
    assert affine.solve_index_map(Address((3, 1)), (2, 3), Address((3, 1)), (2, 3)) == {
        0: Address((1, 0)),
        1: Address((0, 1)),
    }


def test_index_map_within_a_range_of_two_indices() -> None:
    # stored as [9, 4] and read at [i0, i1, i2] -> [i0, 4*i1 + i2 - 4] where i1 is 1: a part of a concatenation whose
    # 8 channels are divided into 2 x 4
    channel = Address((0, 4, 1), -4)
    read = Address((4, 4, 1), -4)
    within = [ir.Range(channel, 4)]
    rows = affine.solve_index_map(Address((4, 1)), (9, 4), read, (9, 2, 4), within=within)
    assert rows == {0: Address((1, 0, 0)), 1: channel}
    assert affine.solve_index_map(Address((4, 1)), (9, 4), read, (9, 2, 4)) is None
    assert affine.solve_index_map(Address((4, 1)), (9, 3), read, (9, 2, 4), within=within) is None


def test_accesses_without_an_index_map() -> None:
    assert affine.solve_index_map(Address((4, 1)), (2, 3), Address((3, 1)), (2, 3)) is None  # a gap after each row
    assert affine.solve_index_map(Address((1, 1)), (2, 3), Address((1,)), (2,)) is None  # two indices at one address
    assert affine.solve_index_map(Address((1,)), (4,), Address((1,), 1), (4,)) is None  # beyond the end


# ---- requests of the user --------------------------------------------------------------------


def recorded(program: Any, *inputs: torch.Tensor, **options: Any) -> Compile:
    """Compiles and runs `program`, compares the result with eager's, and returns the record."""
    gm = trace(program, *inputs)
    record = Record()
    compile_ = record.compile(record.frame("program", "program.py", 1, "root"))
    record_graph(compile_, "forward", "forward", gm)
    run = compile_kernels(gm, "forward", compile_, Options(**options))()
    torch.testing.assert_close(run(list(inputs)), outputs(program(*inputs)))
    return compile_


def kernel_count(compile_: Compile) -> int:
    return sum(k.language == "cpp" for k in compile_.kernels)


def test_two_nodes_kept_apart() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.sin().exp().cos().tanh()

    assert kernel_count(recorded(program, X)) == 1
    apart = recorded(program, X, keep_apart=(("tanh", "exp"),))
    assert kernel_count(apart) == 2
    assert [r.kind for r in apart.refusals] == ["asked"]
    assert sum(f.bytes_saved or 0 for f in apart.fusions) == 2 * 2 * X.nbytes, "sin into exp and cos into tanh"
    assert kernel_count(recorded(program, X, keep_apart=(("sin", "exp"), ("exp", "cos")))) == 3
    siblings = recorded(lambda x: (x.sum(1), x.amax(1)), X, keep_apart=(("sum_1", "amax"),))
    assert kernel_count(siblings) == 2


def test_requests_that_cannot_be_met_have_a_reason() -> None:
    def refused(program: Any, *inputs: torch.Tensor, **requests: Any) -> list[tuple[str, str, str]]:
        return [(r.kind, r.first, r.second) for r in recorded(program, *inputs, **requests).refusals]

    y = torch.randn(X.shape[1], 4)
    unknown = refused(lambda x: x.sin().exp(), X, keep_apart=(("sin", "nothing"),), force_fuse=(("a", "b"),))
    assert unknown == [("unknown", "sin", "nothing"), ("unknown", "a", "b")]
    through = refused(lambda x, y: (x.sin() @ y).exp(), X, y, force_fuse=(("sin", "exp"),))
    assert ("cycle", "forward_0", "forward_1") in through
    alone = refused(lambda x, y: (x.sin(), y.exp()), X, y, force_fuse=(("sin", "exp"),))
    assert alone == [("unrelated", "forward_0", "forward_1")]
    assert refused(lambda x, y: (x.sin() @ y).exp(), X, y, force_fuse=(("mm", "exp"),)) == [
        ("call", "forward_0", "mm"),
        ("call", "mm", "forward_1"),
    ]
    turned = refused(lambda x: (x.sum(0), x.sum(1)), X, force_fuse=(("sum_1", "sum_2"),))
    assert turned == [("columns", "forward_0", "forward_1")]


def test_force_fuse_ignores_cost() -> None:
    def dear(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return x + b.exp()

    plain = recorded(dear, X, B)
    assert (kernel_count(plain), [r.kind for r in plain.refusals]) == (2, ["repeat"])
    assert kernel_count(recorded(dear, X, B, force_fuse=(("exp", "add"),))) == 1


def test_impossible_force_fuse_has_a_reason() -> None:
    requests = recorded(lambda x: x.exp().sum(1).cos().sum(0), X, force_fuse=(("sum_1", "sum_2"),))
    assert "inner" in {r.kind for r in requests.refusals}
    with pytest.raises(UsageError, match="keep_apart must be a sequence of pairs"):
        Options(keep_apart=("add", "mul"))  # type: ignore[arg-type]
