"""Compares the capture of real architectures with stock torch.compile: graphs, breaks, guards, seconds, results.

make bench ARGS='-k models'                              the thirteen with a limit
python -m tests.benchmarks.bench_models all --train      all of them, or those named
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch._dynamo

import compiler_core
from compiler_core.api.compile import record_of
from compiler_core.tools.testing import break_kinds, difference, graph_count
from tests.cases.architectures import FIRST, MODELS, loss_of

ROUNDS = 3
ROW = "{:<18} {:>6} {:>6} {:>6} {:>6} {:>8} {:>8} {:>6}  {}"
HEAD = ("architecture", "graphs", "stock", "breaks", "guards", "seconds", "stock", "ratio", "results")


@dataclass
class Run:
    """A cold compile: the first call of a new model."""

    seconds: float
    graphs: int
    result: Any
    breaks: int = 0
    guards: int = 0


def test_models() -> None:
    """One graph if stock has one, equal results, and at most stock's time."""
    for train in (False, True):
        rows = list(table(FIRST, train, ROUNDS))
        assert all(same and core.graphs == stock.graphs == 1 for _, core, stock, _, same in rows)
        assert all(ratio <= 1 for _, _, _, ratio, _ in rows)


def table(names: Sequence[str], train: bool, rounds: int) -> Iterator[tuple[str, Run, Run, float, bool]]:
    """Yields each architecture and prints a line for it."""
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
    """Returns the runs of median time.  Engines alternate; a first round, which fills PyTorch's caches, is dropped."""
    runs: dict[Any, list[Run]] = {_core: [], _stock: []}
    for i in range(rounds + 1):
        for engine in list(runs)[:: -1 if i % 2 else 1]:
            run = engine(name, train)
            runs[engine] += [run] if i else []
    core, stock = (sorted(found, key=lambda run: run.seconds)[len(found) // 2] for found in runs.values())
    return core, stock, core.seconds / stock.seconds


def _core(name: str, train: bool) -> Run:
    compiler_core.reset()  # a compile of an equal model would be used again
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
    seconds, result = _timed(model, model, arguments, train)
    return Run(seconds, 0, result)


def _fresh(name: str, train: bool) -> tuple[torch.nn.Module, dict[str, Any]]:
    torch.manual_seed(0)
    model, arguments = MODELS[name]()
    return model.train(train), arguments


def _timed(run: Any, model: torch.nn.Module, arguments: dict[str, Any], train: bool) -> tuple[float, Any]:
    """Returns the seconds of the first call, and its results (in training with the gradients)."""
    torch.manual_seed(1)
    gc.collect()
    with torch.set_grad_enabled(train):
        start = time.perf_counter()
        output = run(**arguments)
        seconds = time.perf_counter() - start
        if train:
            loss_of(output).backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    return seconds, (output, gradients, dict(model.named_buffers()))


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=FIRST, help="architectures; all")
    parser.add_argument("--train", action="store_true", help="forward and backward instead of inference")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    names = list(MODELS) if options.names == ["all"] else options.names
    rows = list(table(names, options.train, options.rounds))
    core, stock = sum(row[1].seconds for row in rows), sum(row[2].seconds for row in rows)
    print(f"together {core:.2f} s, stock {stock:.2f} s, ratio {core / stock:.2f}")


if __name__ == "__main__":
    main()
