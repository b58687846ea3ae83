"""Runs the sweep: compiles points with the pipeline and checks the results."""

from __future__ import annotations

import argparse
import itertools
import json
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from compiler_core.codegen.triton import module as triton_module
from compiler_core.loops import ir
from compiler_core.tools import triton_names
from tests.sweeps.cuda_sweep import drawn, forced, overflow, programs
from tests.sweeps.cuda_sweep.drawn import Drawn
from tests.sweeps.cuda_sweep.pipeline import Graph, Lowered, lowered, lowered_calls
from tests.sweeps.cuda_sweep.programs import Point
from tests.sweeps.cuda_sweep.ptx import Compiler

SECONDS = 40
"""Processor seconds allowed for a point; most take 0.1 s, and Triton takes 1 s for each new kernel."""


Item = Point | Drawn


class _TooLong(BaseException):
    pass


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@dataclass
class Sweep:
    """Checks points; `wrong` has the faults by point."""

    compiler: Compiler = field(default_factory=Compiler)
    wrong: dict[str, list[str]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    """Points that PyTorch runs, with the reasons that the record would state."""
    points: int = 0
    symbolic: int = 0
    """The graphs with symbolic sizes."""

    def go(self, points: Iterable[Item], seconds: float) -> None:
        end = time.monotonic() + seconds
        torch.manual_seed(0)
        for point in points:
            self.points += 1
            if problems := self._problems(point):
                self.wrong[point.text()] = problems
                print(point.text(), *problems, sep="\n    ", file=sys.stderr, flush=True)
            if time.monotonic() > end:
                break

    def text(self) -> str:
        return (
            f"{self.points} points ({len(self.refused)} left to PyTorch), {self.symbolic} graphs with symbolic sizes, "
            f"{self.compiler.compiled} kernels compiled, {len(self.wrong)} points with problems"
        )

    def _problems(self, point: Item) -> list[str]:
        try:
            with _at_most(SECONDS):
                return self._found(point)
        except _TooLong:
            return [f"takes longer than {SECONDS} s:\n{traceback.format_exc(limit=-8)}"]

    def _found(self, point: Item) -> list[str]:
        found = _lowered(point)
        if found.failed:
            return [found.failed]
        if found.refused:
            self.refused[point.text()] = found.refused.splitlines()[0]
        self.symbolic += sum(bool(graph.program.symbols) for graph in found.graphs)
        return [problem for graph in found.graphs for problem in _in_graph(graph, self.compiler)]


def _lowered(item: Item) -> Lowered:
    if isinstance(item, Drawn):
        return lowered_calls(item.module().program, item.calls(), item.dynamic)
    return lowered(item.case().program, item.without_memory, item.dynamic)


def _in_graph(graph: Graph, compiler: Compiler) -> Iterator[str]:
    compile(graph.wrapper, "wrapper", "exec")
    if not graph.kernels:
        return
    unknown = list(triton_names.undefined_names(graph.kernels))
    yield from unknown
    for step in graph.program.steps:
        if isinstance(step, ir.Loops) and f"\ndef {step.name}(" in graph.kernels and not step.symbols:
            grid = triton_module.load(graph.kernels)[step.name].grid
            if isinstance(grid, int):
                yield from overflow.problems_in(graph.kernels, step.name, grid)
    if not unknown:
        yield from compiler.problems(graph.kernels)


def _points(given: argparse.Namespace) -> Iterator[Item]:
    symbolic = programs.SYMBOLIC if given.symbolic else ("",)
    keys = [p for p in programs.key_points(symbolic) if given.only in p.program]
    if not keys and not given.only.startswith(("random_", "drawn_")):
        raise SystemExit(f"no program has {given.only!r} in its name")
    found: Iterator[Item] = programs.random_points(given.seed, symbolic)
    if given.symbolic:
        found = _in_turn(found, drawn.endless(given.seed))
    found = (item for item in found if given.only in item.text().split()[0])
    return itertools.chain(keys, itertools.islice(found, given.count))


def _in_turn(*iterators: Iterator[Any]) -> Iterator[Any]:
    return (item for items in zip(*iterators, strict=False) for item in items)


def _parsed(text: str) -> Item:
    return Drawn.parsed(text) if text.startswith("drawn_") else Point.parsed(text)


def sample(count: int) -> list[Item]:
    """Returns the points of the normal suite, always the same: half at sizes for which rules differ, a quarter at
    random sizes, a quarter with symbolic sizes."""
    draw = random.Random(0)
    keys = draw.sample(list(programs.key_points()), count // 2)
    symbolic = draw.sample(list(programs.key_points(programs.SYMBOLIC)), count // 8)
    drawn_programs = itertools.islice(drawn.endless(1), count // 8)
    others = itertools.islice(programs.random_points(1), count - count // 2 - 2 * (count // 8))
    return [*keys, *others, *symbolic, *drawn_programs]


def _sweep(given: argparse.Namespace) -> dict[str, Any]:
    done = Sweep(Compiler(given.most_kernels))
    points = sample(given.sample) if given.sample else _points(given)
    done.go(map(_parsed, given.points) if given.points else points, given.seconds)
    reasons = (f"{n} x {why}" for why, n in Counter(done.refused.values()).items())
    print(done.text(), *sorted(reasons), sep="\n    ", file=sys.stderr)
    return {"wrong": done.wrong, "points": done.points, "symbolic": done.symbolic, "compiled": done.compiler.compiled}


def _forced(given: argparse.Namespace) -> dict[str, Any]:
    items: Iterable[forced.Forced] = map(forced.Forced.parsed, given.points)
    if given.sample:
        items = forced.sample(given.sample)
    elif not given.points:
        found = forced.every(given.seed, given.only, programs.SYMBOLIC if given.symbolic else ("",))
        drawn_too = given.symbolic and not given.only
        items = itertools.islice(_in_turn(found, forced.every_drawn(given.seed)) if drawn_too else found, given.count)
    return forced.run(items, given.seconds)


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(prog="python -m tests.sweeps.cuda_sweep")
    options.add_argument("--forced", action="store_true", help="strategies at small sizes, in Triton's interpreter")
    options.add_argument("--symbolic", action="store_true", help="symbolic sizes, and random tensor programs")
    options.add_argument("--count", type=int, default=2000, help="so many random points, beside those of all programs")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only", default="", help="programs whose names have this in them")
    options.add_argument("--sample", type=int, default=0, help="so many points that are always the same")
    options.add_argument("--seconds", type=float, default=1e9)
    options.add_argument("--most-kernels", type=int, default=1 << 60, help="to compile; of the others, the texts alone")
    options.add_argument("points", nargs="*", help="points as the sweep prints them, each as one argument")
    given = options.parse_args(arguments)
    done = _forced(given) if given.forced else _sweep(given)
    if given.sample:
        json.dump(done, sys.stdout)
    else:
        sys.exit(bool(done["wrong"]))
