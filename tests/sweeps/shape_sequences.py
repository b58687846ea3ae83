"""Runs programs on random sequences of shapes: values equal eager's, with at most as many compiles as stock.

``python -m tests.sweeps.shape_sequences --count 50`` compares so many sequences; ``make shapes N=50`` does that.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from compiler_core.api.compile import compile, record_of
from compiler_core.records import Record
from compiler_core.tools.testing import difference

LIMIT = 64
"""The recompile limit, high enough that neither compiler reaches it."""


@dataclass(frozen=True)
class Difference(Exception):
    """A sequence of calls with more compiles than stock, or with other values than eager."""

    program: str
    shapes: Sequence[tuple[int, ...]]
    what: str

    def __str__(self) -> str:
        return f"{self.program} over {list(self.shapes)}: {self.what}"


# ---- the programs, of two tensors and a number


def pointwise(x, y, n):
    return (x.sin() * 2 + 1).sum(), y.cos()


def together(x, y, n):
    return x[: min(x.shape[0], y.shape[0])].sum() + y.sum(0) * n


def reshaped(x, y, n):
    rows, columns = x.shape
    return x.reshape(columns, rows) @ x, y.flatten() * y.numel(), x.view(-1, 1)


def sliced(x, y, n):
    half = x.shape[0] // 2
    return x[:half], x[half:], torch.cat([y, y[1:]]), y[-1]


def counted(x, y, n):
    return x * n, y * (n + x.shape[0]), torch.arange(x.shape[0]) + n


def branched(x, y, n):
    if x.shape[0] > 6:
        return x.sum(0) + 1
    return x.sum(0) - y.shape[1]


def scaled(x, y, n):
    return x @ x.t() / x.shape[1] ** 0.5, y * (1 / n if n > 0 else n)


def attended(x, y, n):
    scores = x @ y[:, : x.shape[1]].t() if x.shape[1] <= y.shape[1] else x @ x.t()
    return scores.softmax(-1).sum(0)


def stopped(x, y, n):
    size = x.shape[0] + n
    z = x.sum(0) * size
    torch._dynamo.graph_break()
    return z + size, y * z.shape[0]


def called(x, y, n):
    if x.sum() > 0:
        return _inner(x, n) + 1
    return _inner(y, n)


def _inner(x, n):
    return x.mean(0, keepdim=True).expand(x.shape[0], -1).sum(1) * n


PROGRAMS: list[Callable[..., Any]] = [
    pointwise, together, reshaped, sliced, counted, branched, scaled, attended, stopped, called,
]  # fmt: skip


# ---- the comparison


def sequence(rng: random.Random) -> list[tuple[int, ...]]:
    """Returns for some calls the sizes of ``x`` and ``y``, and the number; most stay the same from call to call."""
    shape, found = [rng.choice((2, 3, 5, 8)) for _ in range(5)], []
    for _ in range(6):
        for i in range(5):
            if rng.random() < 0.4:
                shape[i] = rng.choice((1, 2, 3, 4, 5, 6, 7, 8, 13))
        found.append(tuple(shape))
    return found


def arguments(shape: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor, int]:
    a, b, c, d, n = shape
    return torch.randn(a, b), torch.randn(c, d), n


def compare(program: Callable[..., Any], shapes: Sequence[tuple[int, ...]], backend: Any = "eager") -> tuple[int, int]:
    """Returns the numbers of our and of stock's compiles; raises `Difference`."""
    ours = compile(program, backend=backend, recompile_limit=LIMIT, strict=True)
    counts: list[int] = []
    torch._dynamo.reset()
    with torch._dynamo.config.patch(recompile_limit=LIMIT, capture_scalar_outputs=False):
        stock = torch.compile(program, backend=_counting(counts))
        for shape in shapes:
            inputs = arguments(shape)
            found = difference(_outcome(program, inputs), _outcome(ours, inputs), 0 if backend == "eager" else 1e-4)
            if found is not None:
                raise Difference(program.__name__, shapes, f"at {shape}: {found}")
            _outcome(stock, inputs)
    compiles = graphs(record_of(ours))
    if compiles > len(counts):
        raise Difference(program.__name__, shapes, f"{compiles} graphs, {len(counts)} with stock")
    return compiles, len(counts)


def _outcome(function: Callable[..., Any], inputs: Sequence[Any]) -> Any:
    try:
        return function(*inputs)
    except Exception as error:
        return type(error).__name__


def graphs(record: Record) -> int:
    return sum(a.pane == "captured" for c in record.compiles for a in c.artifacts)


def _counting(counts: list[int]) -> Callable[..., Any]:
    def backend(gm: torch.fx.GraphModule, examples: Any) -> Any:
        counts.append(1)
        return gm.forward

    return backend


def run(count: int, seed: int, backend: str) -> int:
    """Runs `count` sequences, prints those that differ and returns their number."""
    rng, totals, failures = random.Random(seed), [0, 0], 0
    for i in range(count):
        program, shapes = PROGRAMS[i % len(PROGRAMS)], sequence(rng)
        try:
            totals = [a + b for a, b in zip(totals, compare(program, shapes, backend), strict=True)]
        except Difference as found:
            failures += 1
            print(found, flush=True)
    print(f"{count} sequences, {failures} differ; {totals[0]} graphs, {totals[1]} with stock torch.compile")
    return failures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="eager")
    given = parser.parse_args()
    raise SystemExit(run(given.count, given.seed, given.backend) > 0)
