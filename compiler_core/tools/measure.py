"""Times the kernels of a record on the devices of this machine.

Each graph's program is loaded from the record (`replay`) and run as a whole many times, with random inputs like those
it was compiled for, so caches are in the state in which the program leaves them.  The time of a kernel is that of its
fastest run, or on a GPU the median (`device_timer`).  The run of each graph as a whole is timed too, in turn with the
same graph in eager PyTorch (`timing.eager_graph`), so that the time of launches and the gain are known.  It takes a
fraction of a second for each graph, and does not change the user's values, random state or memory.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import torch

from compiler_core.errors import UsageError
from compiler_core.records import Artifact, Compile, Device, GraphTime, Kernel, Record
from compiler_core.tools import replay
from compiler_core.tools.roofline import PEAKS
from compiler_core.tools.timing.device_timer import WHOLE, Clock, time_parts, time_wholes
from compiler_core.tools.timing.eager_graph import EagerGraph, synchronize, time_operations

MAX_DRAWS = 20
"""How often random inputs are drawn again if an index among them is out of range."""
COPY_BYTES = 1 << 27
"""Bytes of each of the two tensors of the memory benchmark, more than caches hold."""


def measure(record: Record) -> None:
    """Times each kernel of a record on the device it was compiled for.

    Sets `Kernel.time_ns` (nanoseconds of one run) and `Kernel.timed_on`, `Compile.graph_times` and
    `Compile.eager_times`, and adds the devices to `Record.devices`. A graph that cannot run on this machine gets a
    note in the record with the reason.

    Args:
        record: a record made in this process.

    Raises:
        UsageError: the record was read from a file; timing it would run code from that file.

    Example::

        compiler_core.measure(record)
        for kernel in record.compiles[0].kernels:
            print(kernel.name, kernel.time_ns)
    """
    replay.check_made_here(record)
    with preserved_state():
        for compile_ in record.compiles:
            _measure_compile(record, compile_)
        known = {device.target for device in record.devices}
        used = {k.timed_on for c in record.compiles for k in c.kernels if k.timed_on}
        record.devices += [this_device(cuda=target != "cpu") for target in sorted(used - known)]


@contextmanager
def preserved_state() -> Iterator[None]:
    """Context manager that restores the random state at the end and frees the GPU memory that was used."""
    in_use: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = range(torch.cuda.device_count()) if in_use else ()
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            torch.cuda.empty_cache()  # does nothing if no GPU was used


def _measure_compile(record: Record, compile_: Compile) -> None:
    """Times the kernels of a compile; its whole graphs are timed in turn with the same in eager PyTorch."""
    compile_.graph_times.clear()
    runs: list[Callable[[Clock], None]] = []
    wholes: list[GraphTime] = []
    eager: EagerGraph | None = None
    with ExitStack() as at_end:
        for wrapper in replay.wrappers(compile_, parts=True):
            with replay.note_failures(record, f"{compile_.id}: the kernels of {wrapper.name} were not timed"):
                program, target = _time_kernels(compile_, wrapper, at_end)
                part, direction, _ = replay.place_of(wrapper)
                if not part:  # the time of a part is not that of the graph
                    runs.append(functools.partial(_run_whole, program))
                    wholes.append(GraphTime(cast(Any, direction), "compiled", 0.0, target))
        if not runs:
            return
        target = wholes[0].timed_on
        with replay.note_failures(record, f"{compile_.id}: eager PyTorch was not timed"):
            eager = EagerGraph(compile_)
            at_end.callback(eager.release)
            for direction in ("forward", "backward") if eager.has_backward else ("forward",):
                run = functools.partial(eager.run_whole, which=direction)
                run(Clock())  # what fails here is not timed
                runs.append(run)
                wholes.append(GraphTime(cast(Any, direction), "eager", 0.0, target))
        for each, ns in zip(wholes, time_wholes(runs), strict=True):
            each.ns = ns
        compile_.graph_times = wholes
        with replay.note_failures(record, f"{compile_.id}: eager PyTorch was not timed"):
            if eager is not None:
                time_operations(eager, compile_, cuda=target != "cpu")


def _time_kernels(compile_: Compile, wrapper: Artifact, at_end: ExitStack) -> tuple[replay.LoadedProgram, str]:
    """Times the kernels of a wrapper, and returns its program without a clock, and the target of its device."""
    clock = Clock()

    def before(kernel: Kernel) -> None:
        clock.begin(kernel.key)

    def after(kernel: Kernel, _: Any) -> None:
        clock.end(kernel.key)

    def run(clock_of_run: Clock) -> None:
        nonlocal clock
        clock = clock_of_run
        program.run()

    program = _in_range(lambda: replay.load(compile_, wrapper, before, after))
    at_end.callback(program.release)
    timed = replay.kernels_of(compile_, wrapper).values()
    on_gpu, on_cpu = _on_gpu(program, timed), {kernel.key for kernel in timed if kernel.device == "cpu"}
    times = time_parts(run, cuda=on_gpu, on_cpu=on_cpu)
    for kernel in compile_.kernels:
        if kernel.key in times:
            kernel.time_ns = times[kernel.key]
            kernel.timed_on = this_target(cuda=on_gpu and kernel.key not in on_cpu)
    whole = replay.load(compile_, replay.launched(compile_, wrapper))
    at_end.callback(whole.release)
    whole.inputs[:] = program.inputs
    return whole, this_target(cuda=on_gpu)


def _run_whole(program: replay.LoadedProgram, clock: Clock) -> None:
    clock.begin(WHOLE)
    program.run()
    synchronize(program.inputs)
    clock.end(WHOLE)


def _in_range(load: Callable[[], replay.LoadedProgram]) -> replay.LoadedProgram:
    """Loads a program until its random inputs have no index out of range, at most `MAX_DRAWS` times."""
    program = load()
    for _ in range(MAX_DRAWS):
        try:
            program.run()
        except IndexError:
            program.release()
            program = load()
        else:
            break
    return program


def _on_gpu(program: replay.LoadedProgram, kernels: Collection[Kernel]) -> bool:
    """Whether the program runs on a GPU; UsageError if on several, since one clock cannot time these."""
    gpus = {kernel.device for kernel in kernels if kernel.device and kernel.device.startswith("cuda")}
    if len(gpus) > 1:
        raise UsageError(f"its kernels run on several GPUs: {', '.join(sorted(gpus))}")
    return bool(gpus) or program.on_gpu


def this_target(*, cuda: bool) -> str:
    """Returns the target name of this machine's CPU or first GPU, as in `codegen.machine_code.stages`."""
    if not cuda:
        return "cpu"
    if torch.version.hip:
        return str(torch.cuda.get_device_properties(0).gcnArchName).partition(":")[0]
    return "sm_{}{}".format(*torch.cuda.get_device_capability())


@functools.cache
def this_device(*, cuda: bool) -> Device:
    """Returns this machine's CPU or first GPU, with the speed of its memory: that of the fastest copy."""
    where = "cuda" if cuda else "cpu"
    source = torch.zeros(COPY_BYTES, dtype=torch.uint8, device=where)
    target = torch.empty_like(source)

    def run(clock: Clock) -> None:
        clock.begin("copy")
        target.copy_(source)
        clock.end("copy")

    copy_ns = time_parts(run, cuda=cuda, quantile=0.0)["copy"]  # a bound is the speed when nothing disturbs
    target_name = this_target(cuda=cuda)
    peak = PEAKS.get(target_name, PEAKS["sm_90" if cuda else "cpu"]).operations
    operations = peak if cuda else peak * torch.get_num_threads()
    name = torch.cuda.get_device_name() if cuda else f"{_cpu_name()}, {torch.get_num_threads()} threads"
    return Device(target_name, name, 2 * COPY_BYTES / copy_ns, operations)


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
