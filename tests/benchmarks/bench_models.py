"""Capture of real architectures beside stock torch.compile: graphs, breaks, guards, seconds, equal results.

    make bench ARGS='-k models'                              the thirteen that the bar is about
    python -m tests.benchmarks.bench_models all --train      all of them, or those that are named
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch._dynamo

import compiler_core
from compiler_core.api import record_of
from compiler_core.testing import break_kinds, difference, graph_count
from tests.architectures import FIRST, MODELS, loss_of

ROUNDS = 3
ROW = "{:<18} {:>6} {:>6} {:>6} {:>6} {:>8} {:>8} {:>6}  {}"
HEAD = ("architecture", "graphs", "stock", "breaks", "guards", "seconds", "stock", "ratio", "results")


@dataclass
class Run:
    """One cold compile: the first call of a fresh model."""

    seconds: float
    graphs: int
    result: Any
    breaks: int = 0
    guards: int = 0


def test_models() -> None:
    """One graph where stock has one, equal results, and at most its time."""
    for train in (False, True):
        rows = list(table(FIRST, train, ROUNDS))
        assert all(same and core.graphs == stock.graphs == 1 for _, core, stock, _, same in rows)
        assert all(ratio <= 1 for _, _, _, ratio, _ in rows)


def table(names: Sequence[str], train: bool, rounds: int) -> Iterator[tuple[str, Run, Run, float, bool]]:
    """Prints a line for each architecture, and yields it."""
    print("\ntraining" if train else "\ninference", ROW.format(*HEAD), sep="\n")
    with _one_thread():
        for name in names:
            core, stock, ratio = compare(name, train, rounds)
            found = difference(_eager(name, train).result, core.result)
            seconds = (f"{core.seconds:.3f}", f"{stock.seconds:.3f}", f"{ratio:.2f}")
            counts = (core.graphs, stock.graphs, core.breaks, core.guards)
            print(ROW.format(name, *counts, *seconds, found or "equal"), flush=True)
            yield name, core, stock, ratio, not found


def compare(name: str, train: bool, rounds: int) -> tuple[Run, Run, float]:
    """The runs of median time; the engines take turns, and the first round, which fills PyTorch's caches, is not counted."""
    runs: dict[Any, list[Run]] = {_core: [], _stock: []}
    for i in range(rounds + 1):
        for engine in list(runs)[:: -1 if i % 2 else 1]:
            run = engine(name, train)
            runs[engine] += [run] if i else []
    core, stock = (sorted(found, key=lambda run: run.seconds)[len(found) // 2] for found in runs.values())
    return core, stock, core.seconds / stock.seconds


def _core(name: str, train: bool) -> Run:
    model, arguments = _fresh(name, train)
    compiled = compiler_core.compile(model, backend="eager", strict=True)
    seconds, result = _timed(compiled, model, arguments, train)
    record = record_of(compiled)
    guards = sum(len(c.guards) for c in record.compiles)
    return Run(seconds, graph_count(record), result, len(break_kinds(record)), guards)


def _stock(name: str, train: bool) -> Run:
    torch._dynamo.reset()
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        graphs.append(graph)
        return graph

    model, arguments = _fresh(name, train)
    seconds, result = _timed(torch.compile(model, backend=backend), model, arguments, train)
    return Run(seconds, len(graphs), result)


def _eager(name: str, train: bool) -> Run:
    model, arguments = _fresh(name, train)
    return Run(*_timed(model, model, arguments, train)[:1], 0, _timed(model, *_fresh_again(model, arguments), train)[1])
