"""Programs of n operations each, by kind: what compiling them takes should grow with n and no faster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

Program = Callable[..., Any]
ROWS, COLUMNS = 64, 32


def writes(n: int) -> Program:
    def program(x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        for i in range(n):
            x[i % ROWS] = x[(7 * i + 3) % ROWS] + 1
        return x

    return program


def writes_of_slices(n: int) -> Program:
    def program(x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        for i in range(n):
            start, other = 4 * i % ROWS, (4 * i + 20) % ROWS
            x[start : start + 4] = x[other : other + 4] * 2
        return x

    return program


def pointwise(n: int) -> Program:
    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(n):
            x = (x * 1.01).sin()
        return x

    return program


def independent(n: int) -> Program:
    return lambda x: [x[i % ROWS] * (i + 1) for i in range(n)]


def reductions(n: int) -> Program:
    return lambda x: [(x + i).sum(1) for i in range(n)]


def normalised(n: int) -> Program:
    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(n):
            x = x - x.mean(1, keepdim=True) * 0.5
        return x

    return program


def products(n: int) -> Program:
    def program(x: torch.Tensor) -> torch.Tensor:
        w = x[:COLUMNS]
        for _ in range(n):
            x = (x @ w).tanh()
        return x

    return program


def joined(n: int) -> Program:
    return lambda x: torch.cat([x * i for i in range(n)])


def stacked(n: int) -> Program:
    return lambda x: torch.stack([x[i % ROWS].sin() for i in range(n)])


def views(n: int) -> Program:
    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(n):
            x = x.t().unsqueeze(0).squeeze(0).t()
        return x + 1

    return program


def scans(n: int) -> Program:
    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(n):
            x = x.cumsum(0) * 0.5
        return x

    return program


def dropouts(n: int) -> Program:
    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(n):
            x = F.dropout(x, 0.1) * 1.1
        return x

    return program


def sums_between_writes(n: int) -> Program:
    def program(x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        for i in range(n):
            x[i % ROWS] = x.sum(0)
        return x

    return program


def overlapping_writes(n: int) -> Program:
    """Each reads a part that several of those before wrote."""

    def program(x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        for i in range(n):
            start = i % (ROWS - 8)
            x[start : start + 4] = x[start + 2 : start + 6] * 2
        return x

    return program


def writes_across(n: int) -> Program:
    """To columns, of what rows hold."""

    def program(x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        for i in range(n):
            start = i % (COLUMNS - 4)
            x[:, start : start + 3] *= x[i % ROWS, 5:8].sum()
        return x

    return program


KINDS: dict[str, Callable[[int], Program]] = {
    f.__name__: f
    for f in (
        *(
            writes,
            writes_of_slices,
            overlapping_writes,
            writes_across,
            sums_between_writes,
            pointwise,
            independent,
            reductions,
            normalised,
            products,
        ),
        *(joined, stacked, views, scans, dropouts),
    )
}


def example() -> torch.Tensor:
    return torch.randn(ROWS, COLUMNS)
