"""The programs of the site's gallery: each becomes a page with a live explorer."""

from __future__ import annotations

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
    program: Callable[[], object]
    options: Mapping[str, Any] = MappingProxyType({})
    panes: tuple[str, ...] = ()
    engine: Any = "core"


def cos_cos() -> None:
    x = torch.linspace(-1, 1, 1000, requires_grad=True)
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


def softmax() -> torch.Tensor:
    x = torch.randn(64, 100)
    shifted = x - x.amax(-1, keepdim=True)
    powers = shifted.exp()
    return powers / powers.sum(-1, keepdim=True)


def sizes() -> None:
    def mean_free(x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(0)

    compiled = compiler_core.compile(mean_free, backend="aot_eager")
    for rows in (8, 16, 24):
        compiled(torch.randn(rows, 4))


def attention() -> None:
    q, k, v = (torch.randn(16, 32, requires_grad=True) for _ in range(3))
    weights = torch.softmax(q @ k.T / 32**0.5, -1)
    (weights @ v).sum().backward()


EXAMPLES = {
    "cos_cos": Example("cos(cos(x))", "One tensor is saved for the backward, not two.", cos_cos),
    "two_branches": Example(
        "A branch on values", "The graph breaks at the `if`; each side is a resume function.", two_branches,
        panes=("source", "decompiled"),
    ),
    "softmax": Example(
        "Softmax, for a GPU that is not here", "Five operators in one Triton kernel, down to SASS.", softmax,
        {"target": "sm_90"}, ("source", "fusion", "machine"),
    ),
    "sizes": Example(
        "Sizes that change", "The second size makes the number of rows a symbol.", sizes, panes=("source", "sizes"),
    ),
    "attention": Example(
        "Attention and its gradients", "The minimum cut chooses what the backward gets.", attention,
        panes=("source", "partition"),
    ),
    "stock": Example(
        "The same in stock torch.compile", "Stock's own graphs, guards and kernels, in the same explorer.", softmax,
        engine="torch",
    ),
}  # fmt: skip


def record_of(example: Example) -> Record:
    """Runs an example and returns its record."""
    with compiler_core.record(example.title, engine=example.engine) as record:
        if example.engine == "torch":
            torch.compile(example.program)()
        elif example.program in (two_branches, sizes):
            example.program()  # it compiles its function itself
        else:
            compiler_core.compile(example.program, **example.options)()
    record.find_problems()
    if example.panes:
        record.views = [View(example.title, list(example.panes))]
    return record
