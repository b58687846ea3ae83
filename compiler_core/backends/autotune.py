"""Autotuning: which blocks make each Triton kernel fastest on the GPU that is here.

Every candidate (`codegen.blocks.candidates`) is built and timed, the candidates of a kernel one after another on the
same tensors.  All tries are in the record, and on disk, by the kernel's text and the GPU: the next process reads them.
The sum of a row may differ in its last bits from one way to another, as it does from eager's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Literal

import torch
from torch.utils._python_dispatch import _disable_current_modes

from compiler_core.backends.device_timer import Clock, time_parts
from compiler_core.codegen.build import disk_cache
from compiler_core.codegen.triton import module as triton_module
from compiler_core.codegen.triton import printer as triton
from compiler_core.codegen.wrapper.example_inputs import below_of, random_tensor
from compiler_core.errors import BuildError, MissingTool
from compiler_core.loops import ir
from compiler_core.loops.schedule.block_sizes import Blocks, as_printed, candidates
from compiler_core.records import Compile, RecordError, Tried, Tuning, from_plain
from compiler_core.support.size_expr import hint


def tune(program: ir.Program, which: Literal["forward", "backward"], compile_: Compile) -> Mapping[str, Blocks]:
    """The fastest blocks for each of the program's Triton kernels, by their names; what was tried is in
    `Compile.tunings`."""
    note = Tuning(which)
    compile_.tunings.append(note)
    program = program.in_language("triton")
    if not program.steps:
        note.reason = "C++ kernels have no block sizes to choose; Triton kernels, on a GPU, have"
        return {}
    if not torch.cuda.is_available():
        note.reason = "PyTorch finds no GPU here, and what is tuned is timed"
        return {}
    target = triton_module.current_target()
    note.target = f"{target.arch}" if target.backend == "hip" else f"sm_{target.arch}"
    # the user's modes do not see it, nor their random stream
    with compile_.step("build", f"tune {which}"), _disable_current_modes(), torch.random.fork_rng(devices=()):
        found = {s.name: _tune(program, s, note) for s in program.steps if isinstance(s, ir.Loops)}
    return {name: blocks for name, blocks in found.items() if blocks is not None}


def _tune(program: ir.Program, loops: ir.Loops, note: Tuning) -> Blocks | None:
    if loops.symbols or loops.scalars:
        note.tried.append(
            Tried(loops.name, "", why_not="its sizes are symbolic: what is best for one is not for others")
        )
        return None
    alone, choices = program.with_steps([loops]), candidates(as_printed(loops))
    texts = [triton.generate(alone, {loops.name: blocks}).text for blocks in choices]
    key = _key(texts)
    tried = _known(key, len(choices))
    if tried is None:
        tried = [Tried(loops.name, blocks.text()) for blocks in choices]
        _try_all(alone, loops, texts, tried)
        _keep(key, tried)
    note.tried += tried
    return next((blocks for blocks, each in zip(choices, tried, strict=True) if each.chosen), None)


def _key(texts: list[str]) -> str:
    """Where the tries are kept: by the kernel in all its forms, which have its sizes in them, and by what runs it."""
    import triton as tool

    parts = (*texts, torch.cuda.get_device_name(), str(triton_module.current_target()), tool.__version__)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _keep(key: str, tried: list[Tried]) -> None:
    try:
        disk_cache.write("tuned", key, json.dumps([asdict(replace(each, cached=True)) for each in tried]).encode())
    except MissingTool as error:
        disk_cache.note(error)


def _known(key: str, count: int) -> list[Tried] | None:
    """What an earlier run found."""
    text = disk_cache.read("tuned", key)
    if text is None:
        return None
    try:
        found: list[Tried] = from_plain(json.loads(text), list[Tried], "tuned")
    except (ValueError, RecordError):
        return None
    return found if len(found) == count else None


def _try_all(alone: ir.Program, loops: ir.Loops, texts: list[str], tried: list[Tried]) -> None:
    """Build every candidate, time those that run, choose the fastest."""
    given = [_example(alone, name) for name in loops.arguments]
    kernels = [triton_module.load(text)[loops.name] for text in texts]
    ready: list[tuple[Tried, Callable[..., object]]] = []
    for each, kernel, made in zip(tried, kernels, triton_module.compiled(kernels), strict=True):
        try:
            if isinstance(made, BuildError):
                raise made
            launch = triton_module.launcher(kernel, made)
            launch(*given)
            each.registers, each.spilled_bytes = made.n_regs, made.n_spills
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
        min((each for each, _ in ready), key=lambda each: each.time_ns or 0).chosen = True


def _example(alone: ir.Program, name: str) -> torch.Tensor:
    buffer = alone.buffers[name]
    size, stride = (tuple(map(hint, numbers)) for numbers in (buffer.size, buffer.stride))
    return random_tensor(size, stride, buffer.dtype, str(buffer.device), below_of(alone, name))
