"""Checks that the time of capture is linear in the number of executed instructions, for many kinds of programs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import compiler_core
from compiler_core.api.compile import record_of

Program = tuple[Callable[..., Any], tuple[Any, ...]]
SIZES = (10, 100, 1000)
ROUNDS = 3
AT_MOST = 1.5
"""The greatest allowed ratio of the time per unit with 1,000 units to that with 100; caches cause some growth."""


def written(body: Iterator[str], parameters: str = "x") -> Callable[..., Any]:
    """Returns a function with these lines as its body."""
    source = "\n    ".join([f"def program({parameters}):", *body, "return x"])
    scope: dict[str, Any] = {"torch": torch}
    exec(compile(source, f"<program of {len(source)}>", "exec"), scope)
    result: Callable[..., Any] = scope["program"]
    return result


def lines(n: int) -> Program:
    return written(f"x = x + {i % 7}" for i in range(n)), (torch.randn(4),)


def operations_on_numbers(n: int) -> Program:
    def program(x: torch.Tensor) -> torch.Tensor:
        total = 0
        for i in range(n):
            total += i % 3
        return x + total

    return program, (torch.randn(4),)


def layers(n: int) -> Program:
    model = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()) for _ in range(n // 5)))
    return model, (torch.randn(2, 4),)


def tensor_arguments(n: int) -> Program:
    def program(xs: list[torch.Tensor]) -> torch.Tensor:
        total = xs[0]
        for x in xs:
            total = total + x
        return total

    return program, ([torch.randn(4) for _ in range(n)],)


def plain_arguments(n: int) -> Program:
    def program(x: torch.Tensor, settings: dict[str, int]) -> torch.Tensor:
        return x + sum(settings.values())

    return program, (torch.randn(4), {f"k{i}": i for i in range(n)})


class Plain:
    pass


def attributes_set(n: int) -> Program:
    body = (f"o.a{i} = x + {i}" for i in range(n))
    return written(body, "x, o"), (torch.randn(4), Plain())


def objects_changed(n: int) -> Program:
    def program(x: torch.Tensor, objects: list[Any]) -> torch.Tensor:
        for o in objects:
            o.seen = 1
        return x + 1

    return program, (torch.randn(4), [Plain() for _ in range(n)])


def list_appended(n: int) -> Program:
    def program(x: torch.Tensor, found: list[Any]) -> torch.Tensor:
        for i in range(n):
            found.append(i)
        return x + 1

    return program, (torch.randn(4), [])


def calls(n: int) -> Program:
    def add(x: torch.Tensor, y: int) -> torch.Tensor:
        return x + y

    def program(x: torch.Tensor) -> torch.Tensor:
        for i in range(n):
            x = add(x, i)
        return x

    return program, (torch.randn(4),)


def values_returned(n: int) -> Program:
    def program(x: torch.Tensor) -> list[torch.Tensor]:
        return [x + i for i in range(n)]

    return program, (torch.randn(4),)


def objects_made(n: int) -> Program:
    def program(x: torch.Tensor) -> list[Any]:
        found = []
        for i in range(n):
            o = Plain()
            o.value = i  # type: ignore[attr-defined]
            found.append(o)
        return [x + 1, found]

    return program, (torch.randn(4),)


def modules_in_modules(n: int) -> Program:
    """A tree of modules: many, but not deeply nested."""

    class Block(torch.nn.Module):
        def __init__(self, size: int) -> None:
            super().__init__()
            self.parts = torch.nn.ModuleList(Block(size // 4) for _ in range(4 if size >= 4 else 0))
            self.weight = torch.nn.Parameter(torch.randn(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for part in self.parts:
                x = part(x)
            return x * self.weight

    return Block(n), (torch.randn(4),)


MANY = [
    lines, operations_on_numbers, layers, tensor_arguments, plain_arguments, attributes_set, objects_changed,
    list_appended, calls, values_returned, objects_made, modules_in_modules,
]  # fmt: skip


@pytest.mark.parametrize("many", MANY, ids=lambda many: many.__name__)
def test_time_is_linear(many: Callable[[int], Program]) -> None:
    micros = {n: statistics.median(_per_unit(many, n) for _ in range(ROUNDS)) for n in SIZES}
    print(f"\n{many.__name__:24}" + "".join(f"  {n:>5}: {micros[n]:8.1f} us each" for n in SIZES))
    assert micros[1000] <= AT_MOST * micros[100]


def _per_unit(many: Callable[[int], Program], n: int) -> float:
    program, args = many(n)
    fn = compiler_core.compile(program, backend=lambda gm, inputs: gm.forward, strict=True)
    start = time.process_time()
    fn(*args)
    seconds = time.process_time() - start
    assert len(record_of(fn).compiles) == 1
    return seconds / n * 1e6


def test_many_breaks() -> None:
    """The code after each break is compiled once."""
    micros = {n: statistics.median(_breaks(n) for _ in range(ROUNDS)) for n in (4, 40)}
    print("\nbreaks" + "".join(f"  {n:>5}: {t:8.1f} us each" for n, t in micros.items()))


def _breaks(n: int) -> float:
    program = written(line for i in range(n) for line in (f"x = x + {i}", "torch._dynamo.graph_break()"))
    fn = compiler_core.compile(program, backend=lambda gm, inputs: gm.forward, strict=True)
    start = time.process_time()
    fn(torch.randn(4))
    return (time.process_time() - start) / n * 1e6
