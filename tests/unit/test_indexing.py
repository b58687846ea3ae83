"""Elements read and written where tensors of indices say: eager's values, eager's errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import compiler_core
from compiler_core import ir
from compiler_core.lower import lower
from tests.kernel_programs import check, trace

aten = torch.ops.aten


def calls(program: Any, *inputs: torch.Tensor) -> list[str]:
    """What is left to PyTorch."""
    return [str(s.target) for s in lower(trace(program, *inputs), "forward").steps if isinstance(s, ir.Call)]


def loops(program: Any, *inputs: torch.Tensor) -> int:
    """How many kernels run `program`, which leaves nothing to PyTorch."""
    compile_ = check(program, *inputs)
    assert [k.name for k in compile_.kernels if k.language == "extern"] == []
    return len(compile_.kernels)


def below(n: int, *size: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.randint(n, size, dtype=dtype)


READS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "gather": (lambda x, i: x.gather(1, i), lambda: (torch.randn(7, 9), below(9, 7, 4))),
    "gather_fewer_rows": (lambda x, i: x.gather(1, i), lambda: (torch.randn(7, 9), below(9, 3, 20))),
    "gather_rows": (lambda x, i: x.t().gather(-2, i), lambda: (torch.randn(7, 9), below(9, 3, 5))),
    "take_along_dim": (lambda x, i: torch.take_along_dim(x, i, 0), lambda: (torch.randn(6, 5), below(6, 2, 5))),
    "index_select": (lambda x, i: x.index_select(1, i), lambda: (torch.randn(4, 6, 3), below(6, 8))),
    "index_select_int32": (
        lambda x, i: x.index_select(0, i),
        lambda: (torch.randn(4, 6).bfloat16(), below(4, 5, dtype=torch.int32)),
    ),
    "embedding": (lambda w, i: F.embedding(i, w) * 2, lambda: (torch.randn(20, 8), below(20, 3, 5))),
    "embedding_of_one": (lambda w, i: F.embedding(i, w), lambda: (torch.randn(20, 8), below(20))),
    "embedding_in_one": (lambda w, i: F.embedding(i, w), lambda: (torch.randn(1, 8), below(1, 6))),
    "index_first": (lambda x, i: x[i], lambda: (torch.randn(7, 9), below(14, 4) - 7)),
    "index_last": (lambda x, i: x[..., i], lambda: (torch.randn(7, 9, 3), below(6, 4, 2) - 3)),
    "index_both": (lambda x, i, j: x[i, j], lambda: (torch.randn(7, 9), below(7, 4, 1), below(9, 5))),
    "index_together": (
        lambda x, i, j: x[:, i, j],
        lambda: (torch.randn(3, 7, 9, 2), below(7, 4), below(18, 5, 1) - 9),
    ),
    "index_apart": (
        lambda x, i, j: x[i, :, j],
        lambda: (torch.randn(7, 3, 9, 2), below(7, 4), below(9, 5, 1, dtype=torch.int32)),
    ),
    "index_with_none": (lambda x, i: x[:, None, i, 1:3], lambda: (torch.randn(3, 7, 5), below(7, 4))),
    "index_transposed": (lambda x, i: x.t()[i].t() + 1, lambda: (torch.randn(7, 9), below(9, 4))),
    "index_of_integers": (lambda x, i: x[i] + i, lambda: (below(100, 9), below(9, 5))),
    "index_of_half": (lambda x, i: x[i] * 2, lambda: (torch.randn(9, 3).half(), below(9, 5))),
    "index_of_bool": (lambda x, i: ~x[i], lambda: (torch.randn(9, 3) > 0, below(9, 5))),
    "index_computed": (lambda x, i: x[(i * 2 + 1) % 7], lambda: (torch.randn(7, 5), below(50, 6))),
    "index_twice": (lambda x, i, j: x[i][j], lambda: (torch.randn(9, 4), below(9, 8), below(8, 5))),
    "index_of_sum": (lambda x, i: x.sum(1)[i], lambda: (torch.randn(9, 40), below(9, 8))),
    "sum_of_index": (lambda x, i: x[i].sum(1), lambda: (torch.randn(9, 40), below(9, 8))),
    "softmax_of_index": (lambda x, i: torch.softmax(x[i] * 2, -1), lambda: (torch.randn(9, 300), below(9, 8))),
    "columns": (lambda x, i: (x[i] + 1).sum(0), lambda: (torch.randn(40, 70), below(40, 90))),
    "flip": (lambda x: (x.flip(0, -1) + 1, x.t().flip(1).sum(0)), lambda: (torch.randn(7, 9, 1)[..., 0],)),
    "flip_of_reduction": (lambda x: x.flip(1) - x.sum(1).flip(0)[:, None], lambda: (torch.randn(7, 9),)),
    "cross_entropy": (lambda x, i: F.cross_entropy(x, i), lambda: (torch.randn(9, 40), below(40, 9))),
    "nan": (
        lambda x, i: x[i] + x.gather(0, i),
        lambda: (torch.tensor([float("nan"), float("inf"), -0.0, 1.0]), below(4, 9)),
    ),
}


@pytest.mark.parametrize("name", READS)
def test_reads_equal_eagers(name: str) -> None:
    program, inputs = READS[name]
    torch.manual_seed(len(name))
    loops(program, *inputs())


def test_reads_are_part_of_other_kernels() -> None:
    x, i = torch.randn(50, 8), below(50, 20)
    assert loops(lambda x, i: F.embedding(i, x * 2).relu() + 1, x, i) == 1
    assert loops(lambda x, i: torch.softmax(x[i] + i[:, None], -1), x, i) == 1
    assert loops(lambda x, i: x[i.flip(0)].sum(-1), x, i) == 1
    assert loops(lambda x, y: F.cross_entropy(x, y, reduction="none"), x, below(8, 50)) == 1


BAD: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "gather": (lambda x, i: x.gather(0, i.view(-1, 1)), (5, -1)),
    "index_select": (lambda x, i: x.index_select(0, i) + 1, (5, -1)),
    "embedding": (lambda x, i: F.embedding(i, x), (5, -1)),
    "index": (lambda x, i: x[i].sum(), (5, -6)),
    "index_column": (lambda x, i: torch.softmax(x[:, i], 0), (7, -8)),
    "cross_entropy": (lambda x, i: F.cross_entropy(x[: i.numel()], i), (7, -1)),
}


@pytest.mark.parametrize("name", BAD)
def test_an_index_out_of_range_raises_what_eager_raises(name: str) -> None:
    program, bad = BAD[name]
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
