"""Operators on lists of tensors (``torch._foreach_add``) are decomposed to one operation for each tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
import torch

import compiler_core
from compiler_core.api.compile import record_of

Tensors: TypeAlias = list[torch.Tensor]
FUNCTIONS = [name for name in sorted(dir(torch)) if name.startswith("_foreach_") and not name.endswith("_")]
UNARY = [name for name in FUNCTIONS if getattr(torch.ops.aten, name).overloads()[0] == "default"]
NUMBERS = [2.0, 3.0, 0.5]
CALLS: dict[str, list[tuple[Any, ...]]] = {
    "add": [(2.0,), (NUMBERS,), ("list",)],
    "sub": [(2.0,), (NUMBERS,), ("list",)],
    "mul": [(2.0,), (NUMBERS,), ("list",), ("scalar",)],
    "div": [(2.0,), (NUMBERS,), ("list",), ("scalar",)],
    "pow": [(2.0,), (NUMBERS,), ("list",)],
    "maximum": [(0.4,), (NUMBERS,), ("list",)],
    "minimum": [(0.4,), (NUMBERS,), ("list",)],
    "clamp_min": [(0.4,), (NUMBERS,), ("list",)],
    "clamp_max": [(0.4,), (NUMBERS,), ("list",)],
    "lerp": [("list", 0.3), ("list", NUMBERS), ("list", "list")],
    "addcmul": [("list", "list", 0.3), ("list", "list", NUMBERS)],
    "addcdiv": [("list", "list", 0.3), ("list", "list", NUMBERS)],
    "norm": [(2,), (1,), (float("inf"),)],
}


def tensors(dtype: torch.dtype = torch.float32) -> Tensors:
    return [torch.rand(shape).to(dtype) + 0.5 for shape in ((3,), (2, 4), ())]


def checked(f: Callable[..., Any], lists: list[Tensors]) -> None:
    own = [[t.clone() for t in each] for each in lists]
    run = compiler_core.compile(f, backend="cpp")
    torch.testing.assert_close(f(*lists), run(*own))
    torch.testing.assert_close(lists, own)
    compile_ = record_of(run).compiles[0]
    assert not compile_.breaks
    wrapper = next(a.text for a in compile_.artifacts if a.name == "forward.wrapper")
    assert "foreach" not in wrapper


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_functions_of_one_list(dtype: torch.dtype) -> None:
    names = [n for n in UNARY if n != "_foreach_mm"]

    def f(x: Tensors) -> list[Tensors]:
        return [getattr(torch, name)(x) for name in names]

    x = tensors(dtype)
    run = compiler_core.compile(f, backend="cpp")
    tolerance = 0.02 if dtype is torch.bfloat16 else None
    torch.testing.assert_close(f(x), run(x), equal_nan=True, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CALLS)
def test_functions_of_several_arguments(name: str) -> None:
    def f(x: Tensors, y: Tensors, z: Tensors) -> Tensors:
        lists = iter([y, z] * 9)
        found: Tensors = []
        for call in CALLS[name]:
            args = [next(lists) if a == "list" else z[2] if a == "scalar" else a for a in call]
            found += getattr(torch, f"_foreach_{name}")(x, *args)
        return found

    checked(f, [tensors() for _ in range(3)])


def test_writes_and_the_rest() -> None:
    def f(x: Tensors, y: Tensors, z: Tensors) -> Any:
        torch._foreach_mul_(x, 2.0)
        torch._foreach_add_(x, y, alpha=3)
        torch._foreach_lerp_(y, z, 0.5)
        torch._foreach_copy_(z, x)
        torch._foreach_zero_(x)
        return torch._foreach_pow(2.0, y), torch._foreach_norm(z, 2, dtype=torch.float64)

    checked(f, [tensors() for _ in range(3)])


def test_gradients_go_through_lists() -> None:
    def f(x: Tensors, y: Tensors) -> Any:
        return sum(t.sum() for t in torch._foreach_addcmul(x, y, y, 0.5))

    lists = [[t.requires_grad_() for t in tensors()] for _ in range(2)]
    wanted = torch.autograd.grad(f(*lists), [*lists[0], *lists[1]])
    found = torch.autograd.grad(compiler_core.compile(f, backend="cpp")(*lists), [*lists[0], *lists[1]])
    torch.testing.assert_close(wanted, found)
