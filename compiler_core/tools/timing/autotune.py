"""Autotuning: finds the fastest block sizes of each Triton kernel by measurement on the current GPU.

All candidates (`candidate_blocks`) of a kernel are built, and timed on the same tensors.  The trials are in
the record, and cached on disk by the text of the kernel and the GPU.  The sum of a row may differ in its last bits
between block sizes, as it does from eager's.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Literal

import torch

from compiler_core.codegen.build import disk_cache
from compiler_core.codegen.triton import module as triton_module
from compiler_core.codegen.triton import printer
from compiler_core.config import Options
from compiler_core.errors import BuildError, MissingTool
from compiler_core.loops import ir
from compiler_core.loops.schedule.block_sizes import (
    MAX_BLOCK_ELEMENTS,
    MAX_WARPS,
    Blocks,
    choose_blocks,
    next_power_of_2,
    shape_for_triton,
)
from compiler_core.records import Compile, RecordError, Tuning, TuningTrial, from_plain
from compiler_core.records.timings import MIN_DIFFERENCE
from compiler_core.support.size_expr import hint
from compiler_core.tools.example_inputs import index_bound, random_tensor
from compiler_core.tools.timing.device_timer import Clock, time_parts
from compiler_core.torch_private import disable_current_modes


def tuned_blocks(
    program: ir.Program, which: Literal["forward", "backward"], compile_: Compile, options: Options
) -> Mapping[str, Blocks]:
    """Returns the block sizes of Triton kernels that options ask for, by name: the fastest, or those that are named."""
    tuned = tune(program, which, compile_) if options.tune else printer.NO_TUNED_BLOCKS
    return with_requested(tuned, options.block_sizes, program, which, compile_)


def tune(program: ir.Program, which: Literal["forward", "backward"], compile_: Compile) -> Mapping[str, Blocks]:
    """Returns the fastest block sizes for each of the program's Triton kernels, by name.

    The trials, or the reason why there are none, are added to `Compile.tunings`.
    """
    note = Tuning(which)
    compile_.tunings.append(note)
    program = program.in_language("triton")
    if not program.steps:
        note.reason = "C++ kernels have no block sizes to choose; only Triton kernels have"
        return {}
    if not torch.cuda.is_available():
        note.reason = "tuning measures time on a GPU, and PyTorch finds none"
        return {}
    target = triton_module.current_target()
    note.target = f"{target.arch}" if target.backend == "hip" else f"sm_{target.arch}"
    # hide the trials from the user's dispatch modes and random generator
    with compile_.step("build", f"tune {which}"), disable_current_modes(), torch.random.fork_rng(devices=()):
        found = {s.name: _tune_kernel(program, s, note) for s in program.steps if isinstance(s, ir.Loops)}
    return {name: blocks for name, blocks in found.items() if blocks is not None}


def with_requested(
    tuned: Mapping[str, Blocks],
    requests: Sequence[tuple[str, str, int]],
    program: ir.Program,
    which: Literal["forward", "backward"],
    compile_: Compile,
) -> Mapping[str, Blocks]:
    """Returns `tuned` with the block sizes that the user asked for (`Options.block_sizes`), which are recorded.

    They hold for the kernels in Triton, also those that are printed for a target only.
    """
    wanted: dict[str, dict[str, int]] = {}
    for kernel, name, value in requests:
        wanted.setdefault(kernel, {})[name] = value
    found, trials = dict(tuned), []
    for loops in (s for s in program.steps if isinstance(s, ir.Loops) and s.name in wanted):
        usual = found.get(loops.name) or choose_blocks(shape_for_triton(loops))
        asked = Blocks(**{**asdict(usual), **wanted[loops.name]})
        why_not = _why_not(asked, usual)
        trials.append(TuningTrial(loops.name, asked.text(), why_not=why_not, chosen=not why_not))
        if not why_not:
            found[loops.name] = asked
    if trials:
        compile_.tunings.append(Tuning(which, tried=trials))
    return found


def _why_not(asked: Blocks, usual: Blocks) -> str:
    if asked.j and not usual.j:
        return "it has no inner indices, so that j must stay 0"
    if asked.i * max(asked.j, 1) > MAX_BLOCK_ELEMENTS:
        return f"a block has at most {MAX_BLOCK_ELEMENTS:,} elements"
    return f"a program has at most {MAX_WARPS} warps" if asked.num_warps > MAX_WARPS else ""


def _tune_kernel(program: ir.Program, loops: ir.Loops, note: Tuning) -> Blocks | None:
    if loops.symbols or loops.scalars:
        note.tried.append(
            TuningTrial(loops.name, "", why_not="its sizes are symbolic: the best block sizes depend on them")
        )
        return None
    alone, choices = program.with_steps([loops]), candidate_blocks(shape_for_triton(loops))
    texts = [printer.generate(alone, {loops.name: blocks}).text for blocks in choices]
    key = _cache_key(texts)
    tried = _load_trials(key, len(choices))
    if tried is None:
        tried = [TuningTrial(loops.name, blocks.text()) for blocks in choices]
        _time_candidates(alone, loops, texts, tried)
        _store_trials(key, tried)
    note.tried += tried
    return next((blocks for blocks, each in zip(choices, tried, strict=True) if each.chosen), None)


def _cache_key(texts: list[str]) -> str:
    """Returns the key of the trials: the kernel's text for each candidate, which contains its sizes, and the GPU."""
    import triton

    parts = (*texts, torch.cuda.get_device_name(), str(triton_module.current_target()), triton.__version__)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _store_trials(key: str, tried: list[TuningTrial]) -> None:
    try:
        disk_cache.write("tuned", key, json.dumps([asdict(replace(each, cached=True)) for each in tried]).encode())
    except MissingTool as error:
        disk_cache.report_problem(error)


def _load_trials(key: str, count: int) -> list[TuningTrial] | None:
    """Returns the trials of an earlier run, or None."""
    text = disk_cache.read("tuned", key)
    if text is None:
        return None
    try:
        found: list[TuningTrial] = from_plain(json.loads(text), list[TuningTrial], "tuned")
    except (ValueError, RecordError):
        return None
    return found if len(found) == count else None


def _time_candidates(alone: ir.Program, loops: ir.Loops, texts: list[str], tried: list[TuningTrial]) -> None:
    """Builds every candidate, times those that run, and marks the fastest as chosen: the default, if none is faster."""
    given = [_example_tensor(alone, name) for name in loops.arguments]
    kernels = [triton_module.load(text)[loops.name] for text in texts]
    ready: list[tuple[TuningTrial, Callable[..., object]]] = []
    for each, kernel, binary in zip(tried, kernels, triton_module.compile_all(kernels), strict=True):
        try:
            if isinstance(binary, BuildError):
                raise binary
            launch = triton_module.make_launcher(kernel, binary)
            launch(*given)
            each.registers, each.spilled_bytes = binary.n_regs, binary.n_spills
            ready.append((each, launch))
        except Exception as error:  # too much shared memory, for instance
            each.why_not = f"{error}".partition("\n")[0] or type(error).__name__

    def run(clock: Clock) -> None:
        for number, (_, launch) in enumerate(ready):
            clock.begin(number)
            launch(*given)
            clock.end(number)

    times = time_parts(run, cuda=True)
    for number, (each, _) in enumerate(ready):
        each.time_ns = times[number]
    if ready:
        best, default = min((each for each, _ in ready), key=lambda each: each.time_ns or 0), tried[0]
        within_noise = (default.time_ns or math.inf) * (1 - MIN_DIFFERENCE) <= (best.time_ns or 0)
        (default if within_noise else best).chosen = True


def _example_tensor(alone: ir.Program, name: str) -> torch.Tensor:
    buffer = alone.buffers[name]
    size, stride = (tuple(map(hint, numbers)) for numbers in (buffer.size, buffer.stride))
    return random_tensor(size, stride, buffer.dtype, str(buffer.device), index_bound(alone, name))


def candidate_blocks(loops: ir.Loops) -> list[Blocks]:
    """Returns the block sizes to try, first those of `choose_blocks`."""
    usual = choose_blocks(loops)
    found = [usual]
    most_i = next_power_of_2(hint(loops.row_numel))
    for i in (usual.i, usual.i // 2, usual.i * 2):
        for j, stages in _inner_candidates(loops, usual):
            for warps in (usual.num_warps, usual.num_warps // 2, usual.num_warps * 2):
                fits = 1 <= i <= most_i and i * max(j, 1) <= MAX_BLOCK_ELEMENTS and 1 <= warps <= MAX_WARPS
                # change one of i and (j, stages) at a time, besides the warps
                if fits and (i == usual.i or (j, stages) == (usual.j, usual.stages)):
                    found.append(replace(usual, i=i, j=j, stages=stages, num_warps=warps))
    return list(dict.fromkeys(found))


def _inner_candidates(loops: ir.Loops, usual: Blocks) -> list[tuple[int, int]]:
    """Returns block sizes and stages for the inner indices: a whole row at once, or parts of it."""
    if not usual.j or loops.column_stores:
        return [(usual.j, usual.stages)]
    row = next_power_of_2(hint(loops.inner_numel))
    if usual.tiled:
        return [(j, 1) for j in (usual.j, usual.j // 2, usual.j * 2) if 1 <= j <= row]
    whole = [(row, 1)] if row <= MAX_BLOCK_ELEMENTS else []
    return [*whole, *((j, stages) for j in sorted({1024, 4096, usual.j}) if j < row for stages in (1, 3))]
