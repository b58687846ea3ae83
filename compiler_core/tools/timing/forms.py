"""The forms of a call: plain PyTorch, compiled, pinned, stock."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from compiler_core.api.compile import compile
from compiler_core.errors import UsageError
from compiler_core.records import Record
from compiler_core.support.tensors import tensors_in
from compiler_core.tools.pin import pin
from compiler_core.tools.recording import record
from compiler_core.torch_private import ExperimentalConfig, counters, tree_leaves

SAMPLE_S = 500e-6
"""The least time of one sample: shorter calls are repeated within it."""
MAX_SAMPLE_S = 20e-3
"""The most time of a sample with repeated calls."""
MAX_REPEATS = 1024
WARM_UP_CALLS = 3


@dataclass
class Form:
    """One form of a call."""

    name: str
    call: Callable[[], Any]
    after_first: Callable[[], Callable[[], Any]] | None = None
    """Called after the first call; returns what is called from then on."""


def form_of(fn: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Form:
    """Returns the form of a call that a name stands for; UsageError for an unknown name."""
    engine, _, mode = name.partition(":")
    if name == "eager":
        return Form(name, lambda: fn(*args, **kwargs))
    if engine == "core":
        compiled = compile(fn, mode=mode or "default")
        return Form(name, lambda: compiled(*args, **kwargs))
    if engine == "stock":
        by_stock = torch.compile(fn, mode=mode or None)
        return Form(name, lambda: by_stock(*args, **kwargs))
    if name == "pinned":
        return _pinned_form(compile(fn), args, kwargs)
    raise UsageError(f"unknown engine {name!r}; choose from eager, core, pinned, stock, core:MODE and stock:MODE")


def _pinned_form(compiled: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Form:
    def pinned() -> Callable[[], Any]:
        chosen = pin(compiled)
        return lambda: chosen(*args, **kwargs)

    return Form("pinned", lambda: compiled(*args, **kwargs), pinned)


def with_backward(form: Form) -> Form:
    """Returns a form that also runs the backward pass of the sum of the results.

    A call raises UsageError if no result requires a gradient.
    """

    def backward_of(call: Callable[[], Any]) -> Callable[[], Any]:
        def both() -> None:
            outputs = [t for t in tensors_in(tree_leaves(call())) if t.requires_grad]
            if not outputs:
                raise UsageError("backward=True needs a result that requires a gradient")
            torch.autograd.backward([t.sum() for t in outputs])

        return both

    after_first = form.after_first
    return Form(form.name, backward_of(form.call), after_first and (lambda: backward_of(after_first())))


@dataclass
class Run:
    """One form of a call that is timed.

    `gradients`: the leaves whose gradients are dropped before each call.
    """

    form: Form
    gradients: Sequence[torch.Tensor] = ()
    first_seconds: float = 0.0
    call_seconds: float = 0.0
    """The time of one call, roughly."""
    compiled_again: int = 0
    compiles: Record = field(default_factory=Record)
    """The record of its compiles by our engine."""

    def __post_init__(self) -> None:
        self._call = self.form.call

    def warm_up(self, restore: Callable[[], None]) -> None:
        """Compiles and warms up.  `restore` is called after each call."""
        with record() as self.compiles:
            self.first_seconds = self.timed(1)
            restore()
            if self.form.after_first:
                self._call = self.form.after_first()
            for _ in range(WARM_UP_CALLS):
                self.timed(1)
                restore()
            repeats = 1
            while True:  # calls in a row may also differ from the first ones
                self.call_seconds = self.timed(repeats)
                restore()
                if self.call_seconds * repeats >= SAMPLE_S or repeats >= MAX_REPEATS:
                    break
                repeats *= 2

    def sample(self, repeats: int) -> float:
        """Returns the seconds of one call, on average over `repeats`, and counts compiles meanwhile."""
        before = _stock_compiles()
        with record() as found:
            took = self.timed(repeats)
        self.compiled_again += len(found.compiles) + _stock_compiles() - before
        return took

    def timed(self, repeats: int) -> float:
        """Returns the seconds of one call, on average over `repeats`."""
        for leaf in self.gradients:
            leaf.grad = None
        call = self._call
        elapsed = stopwatch()
        for _ in range(repeats):
            call()
        return elapsed() / repeats

    def peak_bytes(self) -> int:
        """Returns the most bytes that one call held at a time, of those that it allocated: on GPUs, or on the CPU."""
        for leaf in self.gradients:
            leaf.grad = None
        if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return _peak_on_cpu(self._call)
        devices = range(torch.cuda.device_count())
        before = [torch.cuda.memory_allocated(device) for device in devices]
        for device in devices:
            torch.cuda.reset_peak_memory_stats(device)
        on_cpu = _peak_on_cpu(self._call)
        on_gpus = sum(
            torch.cuda.max_memory_allocated(device) - held for device, held in zip(devices, before, strict=True)
        )
        return on_gpus or on_cpu


def common_repeats(runs: Sequence[Run]) -> int:
    """Returns how many calls a sample of each form has.

    It is the same for all, so that what one sample costs besides its calls is the same: enough for the fastest, unless
    samples of the slowest would take too long.
    """
    fastest, slowest = (choose(max(run.call_seconds, 1e-9) for run in runs) for choose in (min, max))
    return max(1, min(math.ceil(SAMPLE_S / fastest), math.ceil(MAX_SAMPLE_S / slowest), MAX_REPEATS))


def stopwatch() -> Callable[[], float]:
    """Starts a stopwatch, and returns the function that stops it and returns the seconds.

    With one GPU in use, CUDA events on the current stream measure the time; otherwise the clock of the host does, and
    it waits until the GPUs have finished.
    """
    synchronize()
    if torch.cuda.is_initialized() and torch.cuda.device_count() == 1:  # type: ignore[no-untyped-call]
        cuda: Any = torch.cuda
        events = [cuda.Event(enable_timing=True) for _ in range(2)]
        events[0].record()

        def between_events() -> float:
            events[1].record()
            synchronize()
            return float(events[0].elapsed_time(events[1])) / 1e3

        return between_events
    began = time.perf_counter()

    def on_the_host() -> float:
        synchronize()
        return time.perf_counter() - began

    return on_the_host


def synchronize() -> None:
    """Waits until the GPUs have finished."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        for device in range(torch.cuda.device_count()):
            torch.cuda.synchronize(device)


def _stock_compiles() -> int:
    """Returns how many frames stock torch.compile has compiled, or tried to."""
    return int(counters["frames"]["total"])


def _peak_on_cpu(call: Callable[[], None]) -> int:
    """Returns the most bytes that `call` held at a time.  `torch.profiler` also counts them, but prints to stderr."""
    legacy: Any = torch.autograd
    config = legacy.ProfilerConfig(legacy.ProfilerState.CPU, False, True, False, False, False, ExperimentalConfig())
    legacy._enable_profiler_legacy(config)
    try:
        call()
    finally:
        threads = legacy._disable_profiler_legacy()
    changes = [e.cpu_memory_usage() for thread in threads for e in thread if e.kind() == "memory_alloc"]
    return max(itertools.accumulate(changes), default=0)
