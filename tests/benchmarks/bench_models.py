"""Compares the capture of real architectures with stock torch.compile: graphs, breaks, guards, seconds, results.

make bench ARGS='-k models'                              the thirteen with a limit
python -m tests.benchmarks.bench_models all --train      all of them, or those named
... all --rounds 1 --limit 300                           each in a separate process, of so many seconds
python -m tests.benchmarks.bench_models --generate       generation: how often each engine compiles
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch._dynamo

import compiler_core
from compiler_core.api.compile import record_of
from compiler_core.tools.testing import break_kinds, difference, graph_count
from tests.benchmarks.bench_networks import figures_of
from tests.cases.architectures import FIRST, GROUPED, MODELS, build, loss_of, tokens

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


@dataclass
class Row:
    """What both engines make of an architecture."""

    name: str
    graphs: int
    stock_graphs: int
    breaks: int
    guards: int
    seconds: float
    stock_seconds: float
    difference: str
    """From the results of eager; empty if they are equal."""

    def __str__(self) -> str:
        ratio = self.seconds / self.stock_seconds
        seconds = (f"{self.seconds:.3f}", f"{self.stock_seconds:.3f}", f"{ratio:.2f}")
        counts = (self.graphs, self.stock_graphs, self.breaks, self.guards)
        return ROW.format(self.name, *counts, *seconds, self.difference or "equal")


def test_models() -> None:
    """One graph if stock has one, equal results, and at most stock's time."""
    for train in (False, True):
        rows = list(table(FIRST, train, ROUNDS))
        assert all(not row.difference and row.graphs == row.stock_graphs == 1 for row in rows)
        assert all(row.seconds <= row.stock_seconds for row in rows)


def table(names: Sequence[str], train: bool, rounds: int, limit: float = 0) -> Iterator[Row]:
    """Yields a row for each architecture and prints it.  With `limit`, each has a process of so many seconds."""
    print("\ntraining" if train else "\ninference", ROW.format(*HEAD), sep="\n")
    with _one_thread():
        for name in names:
            if limit:
                one = ["-m", "tests.benchmarks.bench_models", name, "--one", "--rounds", str(rounds)]
                found = figures_of([sys.executable, *one, *["--train"] * train], os.environ, limit)
                if "problem" in found:
                    print(name, found["problem"], flush=True)
                    continue
                row = Row(**found)
            else:
                row = compare(name, train, rounds)
            print(row, flush=True)
            yield row


def compare(name: str, train: bool, rounds: int) -> Row:
    """Compares the runs of median time.  Engines alternate; a first round, which fills PyTorch's caches, is dropped."""
    runs: dict[Any, list[Run]] = {_core: [], _stock: []}
    for i in range(rounds + 1):
        for engine in list(runs)[:: -1 if i % 2 else 1]:
            run = engine(name, train)
            runs[engine] += [run] if i else []
    core, stock = (sorted(found, key=lambda run: run.seconds)[len(found) // 2] for found in runs.values())
    found = difference(_eager(name, train).result, core.result)
    counts = (core.graphs, stock.graphs, core.breaks, core.guards)
    return Row(name, *counts, core.seconds, stock.seconds, (found or "")[:200])


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


GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99, "n_positions": 64}
T5 = {"d_model": 32, "num_layers": 2, "num_heads": 4, "d_kv": 8, "vocab_size": 99, "decoder_start_token_id": 0}
GENERATING: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("Llama", "ForCausalLM", GROUPED),
    "mistral": ("Mistral", "ForCausalLM", GROUPED | {"sliding_window": 4}),
    "qwen2": ("Qwen2", "ForCausalLM", GROUPED),
    "gpt2": ("GPT2", "LMHeadModel", GPT2),
    "t5": ("T5", "ForConditionalGeneration", T5),
}
"""Architectures that generate text: the prefix of their class, its ending, and the settings."""


def generate() -> None:
    """Prints how many graphs each engine compiles while a compiled model continues two prompts by 12 tokens each."""
    print(f"\n{'generation':12} {'cache':8} {'ours':>5} {'stock':>5}  results")
    for name in GENERATING:
        for cache in ("dynamic", "static"):
            _, want = _generated(name, cache, lambda function, backend: function)
            ours, got = _generated(name, cache, lambda f, backend: compiler_core.compile(f, backend=backend))
            stock, _ = _generated(name, cache, lambda f, backend: torch.compile(f, backend=backend))
            print(f"{name:12} {cache:8} {ours:5} {stock:5}  {difference(want, got) or 'equal'}", flush=True)


def _generated(name: str, cache: str, engine: Callable[..., Any]) -> tuple[int, Any]:
    """Returns how many graphs an engine compiled, and the tokens."""
    torch._dynamo.reset()
    compiler_core.reset()
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        graphs.append(graph)
        return graph

    torch.manual_seed(0)
    model: Any = build(*GENERATING[name]).eval()
    prompts = [tokens(length=length) for length in (5, 8)]
    model.forward = engine(model.forward, backend)
    settings = {"max_new_tokens": 12, "min_new_tokens": 12, "do_sample": False, "cache_implementation": cache}
    made = [model.generate(prompt, **settings) for prompt in prompts]
    return len(graphs), made


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
    parser.add_argument("--limit", type=float, default=0, help="seconds of a separate process for each")
    parser.add_argument("--one", action="store_true", help="print a row as JSON")
    parser.add_argument("--generate", action="store_true", help="count the compiles of generation")
    options = parser.parse_args()
    names = list(MODELS) if options.names == ["all"] else options.names
    if options.generate:
        generate()
    elif options.one:
        with _one_thread():
            print(json.dumps(asdict(compare(names[0], options.train, options.rounds))))
    else:
        rows = list(table(names, options.train, options.rounds, options.limit))
        core, stock = sum(row.seconds for row in rows), sum(row.stock_seconds for row in rows)
        graphs, of_stock = sum(row.graphs for row in rows), sum(row.stock_graphs for row in rows)
        print(f"{len(rows)} together {core:.2f} s, stock {stock:.2f} s, ratio {core / stock:.2f}", end=", ")
        print(f"graphs {graphs}, stock {of_stock}, equal {sum(not row.difference for row in rows)}")


if __name__ == "__main__":
    main()
