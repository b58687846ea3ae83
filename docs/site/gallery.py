"""The programs of the site's gallery: each becomes a page with a live explorer."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

import compiler_core
from compiler_core.records import Record, View


class Example(NamedTuple):
    """A program of the gallery, and how it is recorded."""

    title: str
    text: str
    """What to look at."""
    program: Callable[..., object]
    arguments: tuple[torch.Tensor, ...] = ()
    options: Mapping[str, Any] = MappingProxyType({})
    panes: tuple[str, ...] = ()
    engine: Any = "core"


def cos_cos(x: torch.Tensor) -> None:
    y = torch.cos(torch.cos(x))
    y.sum().backward()


def two_branches() -> None:
    def bar(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        x = a / (torch.abs(a) + 1)
        if b.sum() < 0:
            b = b * -1
        return x * b

    compiled = compiler_core.compile(bar, backend="eager")
    compiled(torch.randn(10), torch.rand(10)), compiled(torch.randn(10), -torch.rand(10))


def softmax(x: torch.Tensor) -> torch.Tensor:
    shifted = x - x.amax(-1, keepdim=True)
    powers = shifted.exp()
    return powers / powers.sum(-1, keepdim=True)


def sizes() -> None:
    def mean_free(x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(0)

    compiled = compiler_core.compile(mean_free, backend="aot_eager")
    for rows in (8, 16, 24):
        compiled(torch.randn(rows, 4))


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    weights = torch.softmax(q @ k.T / 32**0.5, -1)
    (weights @ v).sum().backward()


line = torch.linspace(-1, 1, 1000, requires_grad=True)
rows = torch.randn(64, 100)
queries, keys, values = (torch.randn(16, 32, requires_grad=True) for _ in range(3))
EXAMPLES = {
    "cos_cos": Example("cos(cos(x))", "One tensor is saved for the backward, not two.", cos_cos, (line,)),
    "two_branches": Example(
        "A branch on values", "The graph breaks at the `if`; each side is a resume function.", two_branches,
        panes=("source", "decompiled"),
    ),
    "softmax": Example(
        "Softmax, for a GPU that is not here", "Five operators in one Triton kernel, down to SASS.", softmax,
        (rows,), {"target": "sm_90"}, ("source", "fusion", "machine"),
    ),
    "sizes": Example(
        "Sizes that change", "The second size makes the number of rows a symbol.", sizes, panes=("source", "sizes"),
    ),
    "attention": Example(
        "Attention and its gradients", "The minimum cut chooses what the backward gets.", attention,
        (queries, keys, values),
        panes=("source", "partition"),
    ),
    "stock": Example(
        "The same in stock torch.compile", "Stock's own graphs, guards and kernels, in the same explorer.", softmax,
        (rows,),
        engine="torch",
    ),
}  # fmt: skip


def alone(program: Callable[..., object]) -> Callable[..., object]:
    """Returns a function as if it were the only one in its file, so that the explorer shows nothing else."""
    text, name = inspect.getsource(program), f"{program.__name__}.py"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace = dict(globals())
    exec(compile(text, name, "exec"), namespace)
    found: Callable[..., object] = namespace[program.__name__]
    return found


def record_of(example: Example) -> Record:
    """Runs an example and returns its record."""
    program = alone(example.program)
    with compiler_core.record(example.title, engine=example.engine) as record:
        if example.engine == "torch":
            torch.compile(program)(*example.arguments)
        elif example.program in (two_branches, sizes):
            program()  # it compiles its function itself
        else:
            compiler_core.compile(program, **example.options)(*example.arguments)
    record.find_problems()
    if example.panes:
        record.views = [View(example.title, list(example.panes))]
    return record
