"""In-place updates of inputs: without a copy if that cannot be observed, otherwise with one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from compiler_core.autograd.trace import decompositions
from compiler_core.loops import ir
from compiler_core.loops.lower import lower
from tests.cases.captured import put_on_a_gpu

SIZES = (2, 8, 4), (1,), (2, 1, 4)


def lowered(program: Callable[..., Any], device: str = "cuda") -> ir.Program:
    """Lowers `program` of a cache, a position and a row, whose first result is the new value of the cache."""
    cache, _, row = (torch.zeros(size) for size in SIZES)
    gm = make_fx(program, decomposition_table=decompositions.decomposition_table())(cache, torch.tensor([3]), row)
    if device == "cuda":
        put_on_a_gpu(gm)
    outputs: Any = gm.graph.output_node().args[0]
    outputs[0].meta["new_value_of"] = "cache_1"
    return lower(gm, "forward")


def write_row(cache: torch.Tensor, position: torch.Tensor, row: torch.Tensor) -> Any:
    new = torch.index_copy(cache, 1, position, row * 2)
    return new, new.sum(-1)


def put_row(cache: torch.Tensor, position: torch.Tensor, row: torch.Tensor) -> Any:
    return (torch.index_put(cache, (torch.zeros_like(position), position), row[0]),)


@pytest.mark.parametrize("program", [write_row, put_row])
def test_update_of_an_input_is_in_place(program: Callable[..., Any]) -> None:
    result = lowered(program)
    assert result.in_place == ("cache_1",)
    assert next(v.buffer for v in result.results if isinstance(v, ir.TensorView)) == "cache_1"
    assert not any("cache_1" in s.makes for s in result.steps if isinstance(s, ir.Loops)), "nothing copies it"


def read_and_write(cache: torch.Tensor, position: torch.Tensor, row: torch.Tensor) -> Any:
    return torch.index_copy(cache, 1, position, row), cache.sum()


def add_row(cache: torch.Tensor, position: torch.Tensor, row: torch.Tensor) -> Any:
    return (torch.index_add(cache, 1, position, row),)


def update_from_itself(cache: torch.Tensor, position: torch.Tensor, row: torch.Tensor) -> Any:
    return (torch.index_copy(cache, 1, position, cache[:, :1]),)


def twice(cache: torch.Tensor, position: torch.Tensor, row: torch.Tensor) -> Any:
    new = torch.index_copy(cache, 1, position, row)
    return torch.index_copy(new, 1, position + 1, new[:, :1]), row.sum()


def return_both(cache: torch.Tensor, position: torch.Tensor, row: torch.Tensor) -> Any:
    return torch.index_copy(cache, 1, position, row), cache


@pytest.mark.parametrize("program", [read_and_write, add_row, update_from_itself, twice, return_both])
def test_update_that_depends_on_the_input_is_not_in_place(program: Callable[..., Any]) -> None:
    assert lowered(program).in_place == ()


def test_no_in_place_update_of_a_value_that_is_returned_twice() -> None:
    def program(cache: torch.Tensor, position: torch.Tensor, row: torch.Tensor) -> Any:
        new = torch.index_copy(cache, 1, position, row)
        return new, new

    assert lowered(program).in_place == ()


def test_no_in_place_update_on_the_cpu() -> None:
    assert lowered(write_row, "cpu").in_place == (), "a kernel may have written when it meets a wrong position"
