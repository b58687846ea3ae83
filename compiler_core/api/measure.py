"""How long the kernels of a record take on the device that is here.

Each graph's program is made again from the record (`replay`) and runs as a whole, with inputs like those that it was
compiled for, many times over; what is noted of a kernel is the median of its times, in its place in the program and
with the caches as the program leaves them (`device_timer`).  It takes a fraction of a second for each graph, and
leaves the user's values, random numbers and memory as they are.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from compiler_core.api import replay
from compiler_core.api.roofline import PEAKS
from compiler_core.backends.device_timer import Clock, time_parts
from compiler_core.errors import UsageError
from compiler_core.records import Artifact, Compile, Device, Kernel, Record

COPIED = 1 << 27
"""Bytes of each of the two tensors of the plain copy: more than caches hold."""


def measure(record: Record) -> None:
    """Time each kernel of a record on the device that is here: `Kernel.time_ns` and `Record.devices`.

    This runs the record's code, so it is refused (UsageError) for a record that was read and not made here.  A note
    says of what could not run here, and why.
    """
    replay.refuse_strangers(record)
    with undisturbed():
        for compile_ in record.compiles:
            for wrapper in replay.wrappers(compile_):
                with replay.noting(record, f"{compile_.id}: the kernels of {wrapper.name} were not timed"):
                    _measure(compile_, wrapper)
        known = {device.target for device in record.devices}
        used = {k.timed_on for c in record.compiles for k in c.kernels if k.timed_on}
        record.devices += [this_device(cuda=target != "cpu") for target in sorted(used - known)]


@contextmanager
def undisturbed() -> Iterator[None]:
    """What runs inside draws random numbers of its own, and gives back the memory that it took."""
    in_use: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = range(torch.cuda.device_count()) if in_use else ()
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            torch.cuda.empty_cache()  # of a GPU that was used


def _measure(compile_: Compile, wrapper: Artifact) -> None:
    clock = Clock()

    def begin(kernel: Kernel) -> None:
        clock.begin(kernel.key)

    def end(kernel: Kernel, _: Any) -> None:
        clock.end(kernel.key)

    def run(running: Clock) -> None:
        nonlocal clock
        clock = running
        program.run()

    program = replay.load(compile_, wrapper, begin, end)
    timed = replay.kernels_of(compile_, wrapper).values()
    on_gpu, on_cpu = _on_gpu(program, timed), {kernel.key for kernel in timed if kernel.device == "cpu"}
    try:
        times = time_parts(run, cuda=on_gpu, on_cpu=on_cpu)
    finally:
        program.let_go()
    for kernel in compile_.kernels:
        if kernel.key in times:
            kernel.time_ns = times[kernel.key]
            kernel.timed_on = this_target(cuda=on_gpu and kernel.key not in on_cpu)


def _on_gpu(program: replay.Runnable, kernels: Collection[Kernel]) -> bool:
    """Whether the program has work for a GPU; UsageError where it has for several, on which no one clock goes."""
    gpus = {kernel.device for kernel in kernels if kernel.device and kernel.device.startswith("cuda")}
    if len(gpus) > 1:
        raise UsageError(f"its kernels run on several GPUs: {', '.join(sorted(gpus))}")
    return bool(gpus) or program.on_gpu


def this_target(*, cuda: bool) -> str:
    """What the device here is called among `codegen.stages.targets`."""
    if not cuda:
        return "cpu"
    if torch.version.hip:
        return str(torch.cuda.get_device_properties(0).gcnArchName).partition(":")[0]
    return "sm_{}{}".format(*torch.cuda.get_device_capability())


@functools.cache
def this_device(*, cuda: bool) -> Device:
    """The device here, with the speed of its memory."""
    where = "cuda" if cuda else "cpu"
    source = torch.zeros(COPIED, dtype=torch.uint8, device=where)
    target = torch.empty_like(source)

    def run(clock: Clock) -> None:
        clock.begin("copy")
        target.copy_(source)
        clock.end("copy")

    took, name = time_parts(run, cuda=cuda)["copy"], this_target(cuda=cuda)
    peak = PEAKS.get(name, PEAKS["sm_90" if cuda else "cpu"]).operations
    return Device(name, _name(cuda), 2 * COPIED / took, peak if cuda else peak * torch.get_num_threads())


def _name(cuda: bool) -> str:
    return torch.cuda.get_device_name() if cuda else f"{_cpu()}, {torch.get_num_threads()} threads"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
