"""Reads and writes at indices from tensors, and parts of tensors: values and errors equal eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import compiler_core
from compiler_core.loops import ir
from compiler_core.loops.lower import lower
from tests.cases.kernel_programs import check, trace

aten = torch.ops.aten


def calls(program: Any, *inputs: torch.Tensor) -> list[str]:
    """Returns the operators that are called."""
    return [str(s.target) for s in lower(trace(program, *inputs), "forward").steps if isinstance(s, ir.Call)]


def loops(program: Any, *inputs: torch.Tensor) -> int:
    """Checks `program`, which must have no calls, and returns the number of its kernels."""
    compile_ = check(program, *inputs)
    assert [k.name for k in compile_.kernels if k.language == "extern"] == []
    return len(compile_.kernels)


def random_indices(n: int, *size: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.randint(n, size, dtype=dtype)


READS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "gather": (lambda x, i: x.gather(1, i), lambda: (torch.randn(7, 9), random_indices(9, 7, 4))),
    "gather_fewer_rows": (lambda x, i: x.gather(1, i), lambda: (torch.randn(7, 9), random_indices(9, 3, 20))),
    "gather_rows": (lambda x, i: x.t().gather(-2, i), lambda: (torch.randn(7, 9), random_indices(9, 3, 5))),
    "take_along_dim": (
        lambda x, i: torch.take_along_dim(x, i, 0),
        lambda: (torch.randn(6, 5), random_indices(6, 2, 5)),
    ),
    "index_select": (lambda x, i: x.index_select(1, i), lambda: (torch.randn(4, 6, 3), random_indices(6, 8))),
    "index_select_int32": (
        lambda x, i: x.index_select(0, i),
        lambda: (torch.randn(4, 6).bfloat16(), random_indices(4, 5, dtype=torch.int32)),
    ),
    "embedding": (lambda w, i: F.embedding(i, w) * 2, lambda: (torch.randn(20, 8), random_indices(20, 3, 5))),
    "embedding_of_one": (lambda w, i: F.embedding(i, w), lambda: (torch.randn(20, 8), random_indices(20))),
    "embedding_in_one": (lambda w, i: F.embedding(i, w), lambda: (torch.randn(1, 8), random_indices(1, 6))),
    "index_first": (lambda x, i: x[i], lambda: (torch.randn(7, 9), random_indices(14, 4) - 7)),
    "index_last": (lambda x, i: x[..., i], lambda: (torch.randn(7, 9, 3), random_indices(6, 4, 2) - 3)),
    "index_both": (lambda x, i, j: x[i, j], lambda: (torch.randn(7, 9), random_indices(7, 4, 1), random_indices(9, 5))),
    "index_together": (
        lambda x, i, j: x[:, i, j],
        lambda: (torch.randn(3, 7, 9, 2), random_indices(7, 4), random_indices(18, 5, 1) - 9),
    ),
    "index_apart": (
        lambda x, i, j: x[i, :, j],
        lambda: (torch.randn(7, 3, 9, 2), random_indices(7, 4), random_indices(9, 5, 1, dtype=torch.int32)),
    ),
    "index_with_none": (lambda x, i: x[:, None, i, 1:3], lambda: (torch.randn(3, 7, 5), random_indices(7, 4))),
    "index_transposed": (lambda x, i: x.t()[i].t() + 1, lambda: (torch.randn(7, 9), random_indices(9, 4))),
    "index_of_integers": (lambda x, i: x[i] + i, lambda: (random_indices(100, 9), random_indices(9, 5))),
    "index_of_half": (lambda x, i: x[i] * 2, lambda: (torch.randn(9, 3).half(), random_indices(9, 5))),
    "index_of_bool": (lambda x, i: ~x[i], lambda: (torch.randn(9, 3) > 0, random_indices(9, 5))),
    "index_computed": (lambda x, i: x[(i * 2 + 1) % 7], lambda: (torch.randn(7, 5), random_indices(50, 6))),
    "index_twice": (lambda x, i, j: x[i][j], lambda: (torch.randn(9, 4), random_indices(9, 8), random_indices(8, 5))),
    "index_of_sum": (lambda x, i: x.sum(1)[i], lambda: (torch.randn(9, 40), random_indices(9, 8))),
    "sum_of_index": (lambda x, i: x[i].sum(1), lambda: (torch.randn(9, 40), random_indices(9, 8))),
    "softmax_of_index": (lambda x, i: torch.softmax(x[i] * 2, -1), lambda: (torch.randn(9, 300), random_indices(9, 8))),
    "columns": (lambda x, i: (x[i] + 1).sum(0), lambda: (torch.randn(40, 70), random_indices(40, 90))),
    "flip": (lambda x: (x.flip(0, -1) + 1, x.t().flip(1).sum(0)), lambda: (torch.randn(7, 9, 1)[..., 0],)),
    "flip_of_reduction": (lambda x: x.flip(1) - x.sum(1).flip(0)[:, None], lambda: (torch.randn(7, 9),)),
    "cross_entropy": (lambda x, i: F.cross_entropy(x, i), lambda: (torch.randn(9, 40), random_indices(40, 9))),
    "nan": (
        lambda x, i: x[i] + x.gather(0, i),
        lambda: (torch.tensor([float("nan"), float("inf"), -0.0, 1.0]), random_indices(4, 9)),
    ),
}


@pytest.mark.parametrize("name", READS)
def test_reads_equal_eager(name: str) -> None:
    program, inputs = READS[name]
    torch.manual_seed(len(name))
    loops(program, *inputs())


def two(*size: int, of: tuple[int, ...] = ()) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(size), torch.randn(of or size)


PARTS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "cat": (lambda x, y: torch.cat([x.relu(), y * 2], 1) + 1, lambda: two(5, 8)),
    "cat_rows": (lambda x, y: torch.cat([x, y, x]), lambda: (torch.randn(5, 8), torch.randn(1, 8))),
    "cat_of_types": (lambda x, y: torch.cat([x, y], -1), lambda: (torch.randn(5, 3).half(), torch.randn(5, 4))),
    "cat_transposed": (lambda x, y: torch.cat([x.t(), y], 1).exp(), lambda: (torch.randn(5, 8), torch.randn(8, 1))),
    "cat_of_rows": (lambda x, y: torch.cat([x.expand(5, 8), y], 1) * 2, lambda: (torch.randn(8), torch.randn(5, 8))),
    "cat_of_reductions": (lambda x, y: torch.cat([x.sum(1, True), y], 1).tanh(), lambda: two(5, 30)),
    "cat_reduced": (lambda x, y: torch.softmax(torch.cat([x, y * 3], 1), 1), lambda: two(5, 40)),
    "cat_columns_reduced": (lambda x, y: torch.cat([x, y * 3]).sum(0), lambda: two(50, 40)),
    "cat_of_cat": (lambda x, y: torch.cat([torch.cat([x, y], 1), torch.cat([y, x], 1)]), lambda: two(5, 4)),
    "cat_sliced": (lambda x, y: torch.cat([x, y], 1)[:, 3:9] * 2, lambda: two(5, 8)),
    "cat_flat": (lambda x, y: torch.cat([x, y], 1).view(-1).cos(), lambda: two(6, 8)),
    "cat_indexed": (
        lambda x, i: torch.cat([x, x * 2])[i] + torch.cat([x[i], x])[i],
        lambda: (torch.randn(9, 4), random_indices(9, 9)),
    ),
    "cat_of_indexed": (
        lambda x, i: torch.cat([x[i] * 2, x, x[i - 9]], 1),
        lambda: (torch.randn(9, 4), random_indices(9, 9)),
    ),
    "cat_of_integers": (lambda x, y: torch.cat([x, y > 4]), lambda: (random_indices(9, 7), random_indices(9, 5))),
    "stack": (lambda x, y: torch.stack([x, y * 2, x], 1), lambda: two(5, 8)),
    "stack_last": (lambda x, y: torch.stack([x, y], -1).flatten(1) * 2, lambda: two(5, 8)),
    "rotary": (
        lambda q, a: q * a.cos() + torch.cat([-q.chunk(2, -1)[1], q.chunk(2, -1)[0]], -1) * a.sin(),
        lambda: two(2, 5, 16),
    ),
    "pad": (lambda x, y: (F.pad(x, (1, 2), value=3.0) * 2, F.pad(y, (0, 1, 2, 0), value=-1.0)), lambda: two(5, 8)),
    "pad_and_crop": (lambda x, y: F.pad(x * 2, (-1, 2, 1, -2)) - F.pad(y * 2, (-3, 4, -1, 0)), lambda: two(5, 8)),
    "pad_reduced": (lambda x, y: F.pad(x.exp(), (3, 0), value=1).sum(1) + y[:, 0], lambda: two(5, 8)),
    "roll_windows": (
        lambda x: (x.roll((-3, 2), (1, 2)) * 2, x.roll((1, 4, -1), (0, 1, 0)), x.roll((1, 2, 3), (0, 1, 2)).sum(0)),
        lambda: (torch.randn(3, 8, 7),),
    ),
    "roll": (lambda x, y: (x.roll(3, 1) * 2, y.roll(-2, 0), x.roll(16, 1)), lambda: two(5, 8)),
    "nan": (
        lambda x, y: torch.cat([x, y.log()]) * 0 + F.pad(x, (0, 4), value=float("-inf")),
        lambda: (torch.tensor([float("nan"), -1, 2, 0]), torch.tensor([-1.0, 0, 1, float("inf")])),
    ),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_equal_eager(name: str) -> None:
    program, inputs = PARTS[name]
    torch.manual_seed(len(name))
    loops(program, *inputs())


def test_writes_to_slices_are_loops() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x * 2
        z[:, 2:5] = y[:, :3]
        z[1] = y[0] + 1
        z[-1:, :2] += 1
        return z.relu()

    loops(program, *two(6, 9))
    assert (
        loops(lambda x, y: torch.slice_scatter(x * 2, y + 1, 1, 2, 5).relu(), torch.randn(6, 9), torch.randn(6, 3)) == 1
    )
    assert loops(lambda x, y: torch.select_scatter(x * 2, y + 1, 1, -2).relu(), torch.randn(6, 9), torch.randn(6)) == 1
    assert calls(lambda x: torch.slice_scatter(x, x[:, ::2], 1, 0, 9, 2), torch.randn(4, 9))


def interleaved(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = torch.empty_like(x)
    z[:, ::2], z[:, 1::2] = y, y + x[:, ::2]
    return z * 3


MOVES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "even columns": (lambda x, y: torch.slice_scatter(x, y * 2, 1, 0, 8, 2) + 1, lambda: two(6, 8, of=(6, 4))),
    "odd rows": (lambda x, y: x.slice_scatter(y, 0, 1, None, 2).relu(), lambda: two(6, 8, of=(3, 8))),
    "of a transposed": (lambda x, y: x.t().slice_scatter(y.t(), -2, 2, step=4), lambda: two(6, 8, of=(6, 2))),
    "of channels last": (
        lambda x, y: x.movedim(-1, 1).slice_scatter(y, 2, 0, step=3), lambda: two(2, 6, 4, 3, of=(2, 3, 2, 4))
    ),
    "written": (interleaved, lambda: two(6, 8, of=(6, 4))),
    "repeat": (lambda x: x.repeat(2, 1, 3) * 2, lambda: (torch.randn(4, 5),)),
    "repeat of a transposed": (lambda x: x.t().repeat(1, 2).sum(1), lambda: (torch.randn(4, 5),)),
    "repeat of a number": (lambda x: x.sum().repeat(3), lambda: (torch.randn(4),)),
    "cat of nothing": (lambda x: torch.cat([x.new_empty(0), x.cos()], -2) * 2, lambda: (torch.randn(2, 4, 5),)),
    "cat without rows": (lambda x: torch.cat([x[:, 9:], x, x + 1], 1), lambda: (torch.randn(4, 9),)),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_strided_slices_repeats_and_empty_parts(name: str) -> None:
    program, inputs = MOVES[name]
    loops(program, *inputs())


def test_gradients_of_strided_slices() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1).cos()

    x = torch.randn(2, 6, 8, 5, requires_grad=True)
    with compiler_core.record() as record:
        found = torch.autograd.grad(compiler_core.compile(program, backend="cpp", strict=True)(x).sum(), x)
    torch.testing.assert_close(found, torch.autograd.grad(program(x).sum(), x))
    assert not [k.name for c in record.compiles for k in c.kernels if k.language == "extern"]


def test_parts_are_fused_with_producers_and_consumers() -> None:
    for name in ("cat", "cat_of_cat", "cat_flat", "cat_indexed", "stack", "rotary", "cat_reduced"):
        program, inputs = PARTS[name]
        assert loops(program, *inputs()) == 1, name


def test_many_parts_are_a_call() -> None:
    x = torch.randn(2, 3)
    assert calls(lambda x: torch.cat([x] * 9), x) == ["aten.cat.default"]
    check(lambda x: torch.cat([x] * 9) + torch.stack([x] * 9).sum(0)[:1], x)


def test_reads_are_fused() -> None:
    x, i = torch.randn(50, 8), random_indices(50, 20)
    assert loops(lambda x, i: F.embedding(i, x * 2).relu() + 1, x, i) == 1
    assert loops(lambda x, i: torch.softmax(x[i] + i[:, None], -1), x, i) == 1
    assert loops(lambda x, i: x[i.flip(0)].sum(-1), x, i) == 1
    assert loops(lambda x, y: F.cross_entropy(x, y, reduction="none"), x, random_indices(8, 50)) == 1


WRITES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "scatter_add": (
        lambda x, i, s: x.scatter_add(1, i, s * 2) + 1,
        lambda: (torch.randn(7, 9), random_indices(9, 5, 20), torch.randn(7, 20)),
    ),
    "scatter_add_rows": (
        lambda x, i, s: torch.zeros_like(x).scatter_add(0, i, s),
        lambda: (torch.randn(7, 9), random_indices(7, 50, 9), torch.randn(50, 9)),
    ),
    "scatter_add_of_integers": (
        lambda x, i, s: x.scatter_add(0, i, s),
        lambda: (random_indices(9, 20), random_indices(20, 100), random_indices(9, 100)),
    ),
    "scatter": (
        lambda x, i, s: (x.scatter(1, i, s * 2), x.scatter(1, i, 0.5)),
        lambda: (torch.randn(7, 9), torch.stack([torch.randperm(9)[:4] for _ in range(7)]), torch.randn(7, 5)),
    ),
    "index_add": (
        lambda x, i, s: (x * 2).index_add(0, i, s, alpha=0.5).relu(),
        lambda: (torch.randn(7, 300), random_indices(7, 40), torch.randn(40, 300)),
    ),
    "index_add_columns": (
        lambda x, i, s: x.index_add(-1, i, s),
        lambda: (torch.randn(300, 7).half(), random_indices(7, 4), torch.randn(300, 4).half()),
    ),
    "index_copy": (
        lambda x, i, s: (x.index_copy(0, i, s) * 2, x[:, :40].t().index_copy(-1, i, s[:, :40].t())),
        lambda: (torch.randn(7, 300), torch.randperm(7)[:4], torch.randn(4, 300)),
    ),
    "index_put": (
        lambda x, i, s: x.index_put((i,), s) + 1,
        lambda: (torch.randn(9, 4), torch.randperm(9)[:5] - 9, torch.randn(5, 1)),
    ),
    "index_put_two": (
        lambda x, i, j: x.index_put((i, j), i.float()),
        lambda: (torch.randn(9, 4), torch.randperm(9)[:4], torch.randperm(4)),
    ),
    "index_put_of_half": (
        lambda x, i, s: aten.index_put(x, [None, i], s),
        lambda: (torch.randn(3, 9, 2).bfloat16(), torch.randperm(9)[:5], torch.randn(3, 5, 2).bfloat16()),
    ),
    "index_put_add": (
        lambda x, i, j, s: x.index_put((i, j), s * 3, accumulate=True),
        lambda: (torch.randn(9, 4), random_indices(18, 30, 1) - 9, random_indices(4, 20), torch.randn(30, 20)),
    ),
    "index_put_add_of_half": (
        lambda x, i, s: x.index_put((i,), s, accumulate=True),
        lambda: (torch.randn(9, 4).bfloat16(), random_indices(9, 30), torch.randn(30, 4).bfloat16()),
    ),
    "embedding_backward": (
        lambda g, i: aten.embedding_dense_backward(g * 2, i, 9, 3, False),
        lambda: (torch.randn(2, 30, 70), random_indices(9, 2, 30)),
    ),
    "embedding_backward_of_half": (
        lambda g, i: aten.embedding_dense_backward(g, i, 9, -1, False) + 1,
        lambda: (torch.randn(30, 70).half(), random_indices(9, 30, dtype=torch.int32)),
    ),
    "mask": (
        lambda x, m: (x.index_put((m,), x[0, 1]), torch.where(m, x, x.index_put((m,), m[0, 0].float()))),
        lambda: (torch.randn(5, 6), torch.randn(5, 6) > 0),
    ),
    "nan": (
        lambda x, i, s: x.scatter_add(0, i, s),
        lambda: (torch.randn(4), random_indices(4, 6), torch.tensor([float("nan"), float("inf"), 1, 2, -0.0, 3])),
    ),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_equal_eager(name: str) -> None:
    program, inputs = WRITES[name]
    torch.manual_seed(len(name))
    loops(program, *inputs())


def test_result_is_defined_before_additions() -> None:
    def program(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.exp()
        z = y.clamp(max=2)
        return torch.softmax(z, 1), z.index_add(0, i, y[i]) - y.sum(1, True)

    loops(program, torch.randn(5, 6), random_indices(5, 9))
    loops(lambda x, i: x.cos().index_put((i,), x.cos()[i] + x.cos().sum()), torch.randn(5, 6), random_indices(5, 9))


def test_scatter_loops_are_parallel_over_independent_indices() -> None:
    x, i, s = torch.randn(100, 700), random_indices(100, 3000), torch.randn(3000, 700)
    loops(lambda x, i, s: x.index_add(0, i, s), x, i, s)
    loops(lambda x, i, s: x.t().index_add(1, i, s.t()), x, i, s)
    j = random_indices(700, 100, 9000)
    loops(lambda x, j: x.scatter_add(1, j, j.float()), x, j)


def test_gradients_of_reads() -> None:
    def program(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        rows = F.embedding(i, x, padding_idx=2)
        return (rows * x[i, :4].sum() + torch.cat([x[i], rows], 1)[:, 1:].roll(2, 1)[:, : x.shape[1]]).sum(0)

    fast = compiler_core.compile(program, backend="cpp", strict=True)
    for dtype in (torch.float64, torch.bfloat16):
        x, i = torch.randn(9, 40, dtype=dtype).requires_grad_(), random_indices(9, 30)
        got, want = (torch.autograd.grad(f(x, i).sum(), x)[0] for f in (fast, program))
        assert (got - want).double().norm() < (1e-9 if dtype is torch.float64 else 0.05) * want.double().norm()


def test_losses() -> None:
    x, y, weight = torch.randn(30, 9), random_indices(9, 30), torch.rand(9)
    y[::7] = -100
    for reduction in ("none", "mean", "sum"):
        for w in (None, weight):
            for smoothing in (0.0, 0.1):

                def program(x: torch.Tensor, y: torch.Tensor, w: Any = w) -> torch.Tensor:
                    return F.cross_entropy(x, y, w, reduction=reduction, label_smoothing=smoothing)  # noqa: B023

                fast = compiler_core.compile(program, backend="cpp", strict=True)
                leaf = x.clone().requires_grad_()
                torch.testing.assert_close(fast(leaf, y), program(leaf, y))
                got, want = (torch.autograd.grad(f(leaf, y).cos().sum(), leaf)[0] for f in (fast, program))
                torch.testing.assert_close(got, want)


def test_reasons_for_calls() -> None:
    x, m = torch.randn(5, 6), torch.randn(5, 6) > 0
    count = int(m.sum())
    steps = lower(trace(lambda x, m: x.index_put((m,), x.view(-1)[:count]) + 1, x, m), "forward").steps
    assert [s.reason for s in steps if isinstance(s, ir.Call)] == ["the number of values depends on a mask"]
    compile_ = check(lambda x: torch.slice_scatter(x, x[:, ::4], 1, 0, 6, 4) + 1, x)
    assert any("whether it contains an index would need a division" in r.reason for r in compile_.refusals)


def dynamic(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> Any:
    rows = F.embedding(i, x) * 2, x[i - 1], x.gather(0, i[:, None].expand(-1, x.shape[1]))
    joined = torch.cat([x.relu(), y * 2], 1) + 1, torch.cat([x, x + 1, y]), torch.stack([x, y], 1).cos()
    moved = F.pad(x, (1, 2, 0, 3)).exp(), x.flip(0) + 1, torch.roll(x, 1, 1), torch.softmax(torch.cat([x, y], 1), 1)
    written = x.index_add(0, i, x[i] * 2), x.index_put((i,), y[0, 0]), torch.slice_scatter(x, y[:, 2:] * 2, 1, 1, -1)
    lost = F.cross_entropy(x, i % x.shape[1], reduction="sum")
    return *rows, *joined, *moved, *written, lost


def divided(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
    rows, columns = x.shape
    return i % columns, i // rows, torch.fmod(i, columns), torch.div(i, rows, rounding_mode="trunc"), i % (rows * 2 + 1)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8])
def test_division_by_a_symbolic_size(dtype: torch.dtype) -> None:
    """A size is not zero, but as an int8 it may be: those are left to PyTorch."""
    with compiler_core.record() as record:
        fast = compiler_core.compile(divided, backend="cpp", strict=True, dynamic=True)
        for rows, columns in ((5, 7), (12, 40), (300, 33)):
            x, i = torch.randn(rows, columns), torch.randint(-128, 128, (97,)).to(dtype)
            torch.testing.assert_close(fast(x, i), divided(x, i))
    (compile_,) = record.compiles
    assert any(k.language == "extern" for k in compile_.kernels) == (dtype is torch.int8)


def test_symbolic_sizes() -> None:
    with compiler_core.record() as record:
        fast = compiler_core.compile(dynamic, backend="cpp", strict=True, dynamic=True)
        for rows, columns in ((5, 7), (12, 40), (300, 33)):
            x, y, i = torch.randn(rows, columns), torch.randn(rows, columns), torch.randperm(rows)
            torch.testing.assert_close(fast(x, i, y), dynamic(x, i, y))
        i[-1] = rows
        with pytest.raises(IndexError, match="index out of range in self"):
            fast(x, i, y)
    results = [k.name for c in record.compiles for k in c.kernels if k.language == "extern"]
    assert not results, "these are left to PyTorch"


def test_a_row_of_an_embedding_whose_number_is_computed_from_a_size_has_no_gradient() -> None:
    """Whether the number is negative is not known: then no row is left out."""
    program = lambda w, i: torch.embedding(w, i, i.shape[0] - 5)  # noqa: E731
    fast = compiler_core.compile(program, backend="cpp", strict=True, dynamic=True)
    for count in (3, 6, 9):
        w, i = torch.randn(7, 4, requires_grad=True), torch.arange(count) % 7
        got, expected = (torch.autograd.grad(f(w, i).sum(), w)[0] for f in (fast, program))
        assert torch.equal(got, expected)


OUT_OF_RANGE: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "gather": (lambda x, i: x.gather(0, i.view(-1, 1)), (5, -1)),
    "index_select": (lambda x, i: x.index_select(0, i) + 1, (5, -1)),
    "embedding": (lambda x, i: F.embedding(i, x), (5, -1)),
    "index": (lambda x, i: x[i].sum(), (5, -6)),
    "index_column": (lambda x, i: torch.softmax(x[:, i], 0), (7, -8)),
    "index of zeros": (lambda x, i: torch.zeros(5)[i] + x[0, 0], (5, -6)),
    "gather of ones": (lambda x, i: torch.ones(5).gather(0, i) + x[0, 0], (5, -1)),
    "cross_entropy": (lambda x, i: F.cross_entropy(x[: i.numel()], i), (7, -1)),
    "scatter_add": (lambda x, i: x.scatter_add(0, i.view(-1, 1), x), (5, -1)),
    "index_put": (lambda x, i: x.index_put((i,), x[0] * 2), (5, -6)),
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_an_index_out_of_range_raises_what_eager_raises(name: str) -> None:
    program, bad = OUT_OF_RANGE[name]
    fast = compiler_core.compile(program, backend="cpp", strict=True)
    x = torch.randn(5, 7)
    for wrong in (*bad, 2**40, -(2**63)):
        for at in (0, 2):
            good, index = torch.tensor([1, 2, 0]), torch.tensor([1, 2, 0])
            index[at] = wrong
            torch.testing.assert_close(fast(x, good), program(x, good))
            with pytest.raises((IndexError, RuntimeError)) as eager:
                program(x, index)
            with pytest.raises(type(eager.value)) as ours:
                fast(x, index)
            assert str(ours.value) == str(eager.value)
            assert ours.value.__context__ is None
