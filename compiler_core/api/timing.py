"""Times a call side by side: as plain PyTorch, compiled by Cutaway, and compiled by stock torch.compile.

All forms are warmed up and then run in turn, in rounds, so that what slows the machine down for a while slows all of
them.  A form is called faster or slower only if it was so in nearly all rounds.
"""

from __future__ import annotations

import gc
import itertools
import math
import statistics
import time as clock
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from compiler_core.api.compile import compile, record
from compiler_core.api.measure import preserved_state
from compiler_core.api.testing.observed_run import external_state
from compiler_core.errors import UsageError
from compiler_core.records import Record
from compiler_core.support.tensors import tensors_in

MIN_ROUNDS, MAX_ROUNDS = 11, 2000
SAMPLE_S = 500e-6
"""The least time of one sample: shorter calls are repeated within it."""
WARM_UP_CALLS = 3
AGREEMENT = 0.9
"""The share of rounds in which one form must be faster than the other to be called so."""

MAX_VARIATION = 3
"""How many times the first decile the last one may be; beyond it, the times deserve a warning."""


@dataclass(frozen=True)
class Timing:
    """The time of one form of a call."""

    name: str
    seconds: tuple[float, ...]
    """The time of one call in each round."""
    compile_seconds: float
    """How much longer the first call took than the median call."""
    peak_bytes: int
    """The most memory that one call held at a time, of what it allocated itself."""
    problems: int | None = None
    """The number of costly and blocking problems in the record of the compile; None if there is no record."""

    @property
    def median(self) -> float:
        """The median time of a call, in seconds."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> tuple[float, float]:
        """The first and last decile of the times, in seconds."""
        deciles = statistics.quantiles(self.seconds, n=10)
        return deciles[0], deciles[-1]

    def speed(self, other: Timing) -> float:
        """Returns how many times as fast as `other` it is: the median of the rounds' ratios."""
        return statistics.median(b / a for a, b in zip(self.seconds, other.seconds, strict=True))

    def differs(self, other: Timing) -> bool:
        """Returns whether it was faster than `other`, or slower, in nearly all rounds."""
        faster = statistics.mean(a < b for a, b in zip(self.seconds, other.seconds, strict=True))
        return not 1 - AGREEMENT < faster < AGREEMENT


@dataclass(frozen=True)
class Timings:
    """The times of all forms of a call, the first of which is the reference; `str` prints them."""

    rows: tuple[Timing, ...]

    def __getitem__(self, name: str) -> Timing:
        return next(row for row in self.rows if row.name == name)

    def verdict(self, name: str) -> str:
        """Returns one line on a form, compared with the reference."""
        first, row = self.rows[0], self[name]
        parts = [f"{first.name} {_time(first.median)} → {row.name} {_time(row.median)} ({self._ratio(row)})"]
        parts.append(f"compiled in {_time(row.compile_seconds)}{self._pays_off(row)}")
        if first.peak_bytes:
            change = row.peak_bytes / first.peak_bytes - 1
            parts.append(f"peak memory {change:+.0%}" if abs(change) >= 0.005 else "the same peak memory")
        if row.problems is not None:
            parts.append(f"{row.problems} problem{'s' * (row.problems != 1)}")
        return " · ".join(parts)

    def _ratio(self, row: Timing) -> str:
        speed = row.speed(self.rows[0])
        if not row.differs(self.rows[0]):
            return "no difference beyond noise"
        return f"{speed:.2f}x" if speed >= 0.1 else f"{speed:.2g}x"

    def _pays_off(self, row: Timing) -> str:
        gain = self.rows[0].median - row.median
        if gain <= 0 or not row.differs(self.rows[0]):
            return ""
        return f", pays off after {math.ceil(row.compile_seconds / gain):,} calls"

    def __str__(self) -> str:
        head = ("", "median", "10 % to 90 %", "speed", "compile", "peak memory")
        lines = table_lines([head, *map(self._cells, self.rows)])
        verdicts = [self.verdict(row.name) for row in self.rows[1:]]
        return "\n".join([*verdicts, *lines, *self._warnings()])

    def _warnings(self) -> list[str]:
        varying = [row.name for row in self.rows if row.spread[1] > MAX_VARIATION * row.spread[0]]
        if not varying:
            return []
        return [
            f"The times of {' and '.join(varying)} vary more than {MAX_VARIATION}-fold: the machine is busy, or the "
            "calls do not all do the same."
        ]

    def _cells(self, row: Timing) -> tuple[str, ...]:
        is_first = row is self.rows[0]
        return (
            row.name, _time(row.median), " to ".join(map(_time, row.spread)), "" if is_first else self._ratio(row),
            "" if is_first else _time(row.compile_seconds), f"{row.peak_bytes / 1024:,.0f} KiB",
        )  # fmt: skip


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns one line for each row, with the columns aligned to the left; all rows have the same number of cells."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return [line.rstrip() for line in lines]


def time(
    fn: Callable[..., Any],
    *args: Any,
    engines: Sequence[str] | Mapping[str, Callable[..., Any]] = ("eager", "core"),
    backward: bool = False,
    seconds: float = 2.0,
    **kwargs: Any,
) -> Timings:
    """Times a call as plain PyTorch and compiled, side by side.

    The function runs hundreds of times, with the same arguments, and its side effects happen each time.  Random states
    and gradients are restored afterwards.  With tensors on a GPU, a sample ends when the GPU has finished.

    Args:
        fn: the function or module.
        args, kwargs: the arguments of the call.
        engines: the forms to compare, of which the first is the reference: ``eager``, ``core`` and ``stock``, the
            latter two also with a mode, as in ``stock:max-autotune``; or functions to call, by name.
        backward: also run the backward pass of the sum of the results.
        seconds: for how long all forms together are timed, besides compiling.

    Returns:
        The times, the time to compile, and the peak memory of each form.

    Raises:
        UsageError: an unknown engine, or `backward` without a result that requires a gradient.

    Example::

        print(compiler_core.time(model, x, engines=("eager", "core", "stock"), backward=True))
    """
    forms = dict(engines) if isinstance(engines, Mapping) else {name: _form(fn, name) for name in engines}
    if not forms:
        raise UsageError("time() needs at least one engine")
    leaves = tensors_in(tree_leaves((args, kwargs))) + _external_tensors(fn)
    cuda = any(t.is_cuda for t in leaves)
    with preserved_state(), _preserved_gradients(leaves):
        runs = {name: _Run(form, args, kwargs, backward, cuda, leaves) for name, form in forms.items()}
        records = {name: run.warm_up() for name, run in runs.items()}
        samples = _sample(list(runs.values()), seconds)
        peaks = [run.peak_bytes() for run in runs.values()]
    rows = []
    for (name, run), times, peak in zip(runs.items(), samples, peaks, strict=True):
        compile_seconds = max(0.0, run.first_seconds - statistics.median(times))
        rows.append(Timing(name, tuple(times), compile_seconds, peak, _problems(records[name])))
    return Timings(tuple(rows))


def _form(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    engine, _, mode = name.partition(":")
    if name == "eager":
        return fn
    if engine == "core":
        form: Callable[..., Any] = compile(fn, mode=mode or "default")
        return form
    if engine == "stock":
        return torch.compile(fn, mode=mode or None)
    raise UsageError(f"unknown engine {name!r}; choose from eager, core, stock, core:MODE and stock:MODE")


def _external_tensors(fn: Callable[..., Any]) -> list[torch.Tensor]:
    """Returns the tensors that a function finds in globals and cells, and the parameters and buffers of modules."""
    found: list[torch.Tensor] = []
    for value in external_state(fn).values():
        found += [*value.parameters(), *value.buffers()] if isinstance(value, torch.nn.Module) else [value]
    return found


def _problems(found: Record) -> int | None:
    if not found.compiles:
        return None
    return sum(problem.grade != "expected" for problem in found.problems)


@contextmanager
def _preserved_gradients(leaves: Sequence[torch.Tensor]) -> Iterator[None]:
    before = [(t, t.grad) for t in leaves if t.is_leaf and t.requires_grad]
    try:
        yield
    finally:
        for tensor, grad in before:
            tensor.grad = grad


class _Run:
    """One form of the call, ready to be timed."""

    def __init__(
        self,
        form: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        backward: bool,
        cuda: bool,
        leaves: Sequence[torch.Tensor],
    ) -> None:
        self._form, self._args, self._kwargs, self._backward, self._cuda = form, args, kwargs, backward, cuda
        self._leaves = [t for t in leaves if t.is_leaf and t.requires_grad] if backward else []
        self.first_seconds = 0.0
        self.repeats = 1

    def call(self) -> None:
        result = self._form(*self._args, **self._kwargs)
        if self._backward:
            outputs = [t for t in tensors_in(tree_leaves(result)) if t.requires_grad]
            if not outputs:
                raise UsageError("backward=True needs a result that requires a gradient")
            torch.autograd.backward([t.sum() for t in outputs])

    def warm_up(self) -> Record:
        """Compiles and warms up; returns the record."""
        with record() as found:
            self.first_seconds = self.timed(1)
            took = min(self.timed(1) for _ in range(WARM_UP_CALLS))
        self.repeats = min(1000, max(1, math.ceil(SAMPLE_S / max(took, 1e-7))))
        return found

    def timed(self, repeats: int) -> float:
        """Returns the seconds of one call, on average over `repeats`."""
        for leaf in self._leaves:
            leaf.grad = None
        self._synchronize()
        began = clock.perf_counter()
        for _ in range(repeats):
            self.call()
        self._synchronize()
        return (clock.perf_counter() - began) / repeats

    def peak_bytes(self) -> int:
        """Returns the most bytes that one call held at a time, of those that it allocated."""
        for leaf in self._leaves:
            leaf.grad = None
        if self._cuda:
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            self.call()
            return torch.cuda.max_memory_allocated() - before
        return _peak_on_cpu(self.call)

    def _synchronize(self) -> None:
        if self._cuda:
            torch.cuda.synchronize()


def _peak_on_cpu(call: Callable[[], None]) -> int:
    """Returns the most bytes that `call` held at a time.  `torch.profiler` knows them, too, but prints to stderr."""
    legacy: Any = torch.autograd
    config = legacy.ProfilerConfig(
        legacy.ProfilerState.CPU, False, True, False, False, False, torch._C._profiler._ExperimentalConfig()
    )
    legacy._enable_profiler_legacy(config)
    try:
        call()
    finally:
        threads = legacy._disable_profiler_legacy()
    changes = [e.cpu_memory_usage() for thread in threads for e in thread if e.kind() == "memory_alloc"]
    return max(itertools.accumulate(changes), default=0)


def _sample(runs: Sequence[_Run], seconds: float) -> list[list[float]]:
    """Returns the seconds of one call of each form in each round.  Each round begins with another form."""
    samples: list[list[float]] = [[] for _ in runs]
    end = clock.perf_counter() + seconds
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for round_ in range(MAX_ROUNDS):
            if round_ >= MIN_ROUNDS and clock.perf_counter() > end:
                break
            for at in range(len(runs)):
                index = (round_ + at) % len(runs)
                samples[index].append(runs[index].timed(runs[index].repeats))
    finally:
        if was_enabled:
            gc.enable()
    return samples


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"
