"""Runs: consecutive C++ kernels that one C function calls, so that Python makes one call in place of many.

A call from Python takes 0.1 us, and an allocation 0.3 us, as long as many kernels run.  The buffers that only a run
uses get their places here: in one workspace, or in the memory of a result before that is written.  Each result is a
tensor that owns its memory; Python allocates it before the call.

Kernels stay by themselves if their sizes are symbolic.  A run ends before it would take so long that an interrupt
waits noticeably, or need more memory than the kernels one by one (`MAX_MORE_BYTES`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from compiler_core.codegen.wrapper.memory_plan import MAX_RETAINED_BYTES, MemoryPlan, plan
from compiler_core.loops import ir
from compiler_core.support.size_expr import hint, span
from compiler_core.support.texts import unused_name

MAX_STACK_BYTES = 1 << 14
"""A workspace of at most this size is on the stack, which costs nothing."""
MAX_MORE_BYTES = MAX_RETAINED_BYTES
"""How much more memory a program with runs may need at its peak: what kernels one by one retain between its calls."""
MAX_OPERATIONS = 1 << 24
"""How many operations a run has at most, unless it is one kernel: some milliseconds."""
ALIGNMENT = 64
"""The alignment of all buffers, as PyTorch's allocator has it."""


@dataclass(frozen=True)
class _Space:
    """Memory from byte `start` to `end`, in use by elements of `dtype` from step `first` to step `last`."""

    dtype: torch.dtype
    start: int
    end: int
    first: int
    last: int


def with_runs(program: ir.Program, by_kernel: MemoryPlan) -> tuple[ir.Program, MemoryPlan]:
    """Returns the program with the buffers of workspaces, and its plan with runs in place of kernels.

    Both are unchanged if there are no runs.  `by_kernel` is the plan of the program's kernels one by one.
    """
    runs = list(_RunPlanner(program, by_kernel).runs())
    if not runs:
        return program, by_kernel
    workspaces = {run.workspace.name: run.workspace for run in runs if run.workspace}
    with_workspaces = replace(program, buffers=program.buffers | workspaces)
    planned = plan(with_workspaces, list(_steps(program, runs)), overwrites=bool(by_kernel.overwritten))
    needs_more = _memory(with_workspaces, planned)[1] > _memory(program, by_kernel)[1] + MAX_MORE_BYTES
    return (program, by_kernel) if needs_more else (with_workspaces, planned)


def _steps(program: ir.Program, runs: Sequence[ir.Run]) -> Iterator[ir.Step | ir.Run]:
    at = 0
    for run in runs:
        yield from program.steps[at : run.first]
        yield run
        at = run.first + len(run.kernels)
    yield from program.steps[at:]


class _RunPlanner:
    """Finds the runs of one program."""

    def __init__(self, program: ir.Program, by_kernel: MemoryPlan) -> None:
        self._program, self._last_uses = program, by_kernel.last_uses
        self._before, peak = _memory(program, by_kernel)
        self._limit = peak + MAX_MORE_BYTES
        self._taken = {*program.buffers, *(step.name for step in program.steps)}
        called = {name for step in program.steps if isinstance(step, ir.Call) for name in step.reads}
        self._internal = by_kernel.last_uses.keys() - called

    def runs(self) -> Iterator[ir.Run]:
        """Yields the runs in order."""
        for first, kernels in self._segments():
            yield from self._runs_of(first, kernels)

    def _segments(self) -> Iterator[tuple[int, list[ir.Loops]]]:
        """Yields the kernels that may be one run as to their sizes and time, with the number of the first."""
        kernels: list[ir.Loops] = []
        operations = 0
        for at, step in enumerate([*self._program.steps, None]):
            is_kernel = isinstance(step, ir.Loops) and self._may_be_in_run(step)
            cost = max(step.operations, _elements(step)) if isinstance(step, ir.Loops) else 0
            if kernels and (not is_kernel or operations + cost > MAX_OPERATIONS):
                yield at - len(kernels), kernels
                kernels, operations = [], 0
            if isinstance(step, ir.Loops) and is_kernel:
                kernels, operations = [*kernels, step], operations + cost

    def _may_be_in_run(self, loops: ir.Loops) -> bool:
        buffers = (self._program.buffers[name] for name in loops.arguments)
        is_fixed = not loops.symbols and all(isinstance(n, int) for b in buffers for n in (*b.size, *b.stride))
        return is_fixed and self._program.language(loops) == "cpp"

    def _runs_of(self, first: int, kernels: list[ir.Loops]) -> Iterator[ir.Run]:
        """Yields one run, or those of both halves if it would need more memory than kernels one by one."""
        if len(kernels) < 2:
            return
        run = self._run(first, kernels)
        buffers = self._program.buffers
        made = sum(
            _aligned(_extent(buffers[name])) for name in run.makes if name in buffers and buffers[name].kind == "loops"
        )
        workspace = run.workspace.bytes if run.workspace and run.workspace.kind == "loops" else 0
        if self._before[first] + made + workspace <= self._limit:
            yield run
            return
        half = len(kernels) // 2
        yield from self._runs_of(first, kernels[:half])
        yield from self._runs_of(first + half, kernels[half:])

    def _run(self, first: int, kernels: Sequence[ir.Loops]) -> ir.Run:
        """Returns the run of these kernels, with the places of the buffers that only it uses."""
        buffers = self._program.buffers
        steps = range(first, first + len(kernels))
        made = {name: at for at, each in zip(steps, kernels, strict=True) for name in each.makes}
        made = {name: at for name, at in made.items() if buffers[name].kind == "loops"}
        inside = dict.fromkeys(
            n for n in made if n in self._internal and self._last_uses[n] in steps and _extent(buffers[n])
        )
        last = kernels[-1].name.removeprefix(f"{self._program.name}_")
        name = unused_name(f"{kernels[0].name}_to_{last}", self._taken)
        workspace = unused_name(f"{name}_workspace", self._taken)
        results = {n: self._space(n, at, steps.stop) for n, at in made.items() if n not in inside}
        memory = {n: [space] for n, space in results.items()} | {workspace: []}
        places: dict[str, tuple[str, int]] = {}
        # from the end on, because it is the end where a result takes its memory
        for each in sorted(inside, key=lambda n: (-_extent(buffers[n]), -self._last_uses[n])):
            wanted = self._space(each, made[each], self._last_uses[each])
            free = (n for n, s in results.items() if s.dtype is wanted.dtype and s.first > wanted.last)
            for of in (*(n for n in free if results[n].end >= wanted.end), workspace):
                offset = _lowest_place(memory[of], wanted)
                if of == workspace or offset + wanted.end <= results[of].end:
                    memory[of].append(replace(wanted, start=offset, end=offset + wanted.end))
                    places[each] = of, offset
                    break
        size = max((space.end for space in memory[workspace]), default=0)
        kind: Literal["stack", "loops"] = "stack" if size <= MAX_STACK_BYTES else "loops"
        area = ir.Buffer(workspace, torch.uint8, (size,), (1,), torch.device("cpu"), kind) if size else None
        return ir.Run(name, tuple(kernels), first, {n: places[n] for n in inside}, area)

    def _space(self, name: str, first: int, last: int) -> _Space:
        buffer = self._program.buffers[name]
        return _Space(buffer.dtype, 0, _extent(buffer), first, last)


def _lowest_place(used: Sequence[_Space], wanted: _Space) -> int:
    """Returns the first byte from which as many bytes are free as `wanted` has, in its steps.

    Elements of another type never take the same place: compilers assume that these are apart.
    """
    offset, dtype, first, last = 0, wanted.dtype, wanted.first, wanted.last
    taken = [(s.start, s.end) for s in used if s.dtype is not dtype or (s.first <= last and first <= s.last)]
    for start, end in sorted(taken):
        if offset + wanted.end <= start:
            break
        offset = max(offset, _aligned(end))
    return offset


def _memory(program: ir.Program, planned: MemoryPlan) -> tuple[list[int], int]:
    """Returns the bytes that are allocated before each step of a plan, and the most at any time.

    Saved tensors count until they are released, and a workspace on the stack does not.
    """
    sizes = {name: _aligned(_extent(program.buffers[name])) for name in program.saved if name in planned.last_uses}
    at_start = sum(sizes.values())
    changes = [[0, 0] for _ in planned.steps]
    for name, at in planned.producers.items():
        buffer = program.buffers.get(name)
        sizes[name] = _aligned(_extent(buffer) if buffer and planned.bytes[name] else planned.bytes[name])
        changes[at][0] += 0 if name in planned.reuses or (buffer and buffer.kind == "stack") else sizes[name]
    reused = set(planned.reuses.values())
    for name, at in planned.last_uses.items():
        is_stack = name in program.buffers and program.buffers[name].kind == "stack"
        changes[at][1] += 0 if name in reused or is_stack else sizes.get(name, 0)
    before, most, now = [], 0, at_start
    for allocated, freed in changes:
        before.append(now)
        most = max(most, now + allocated)
        now += allocated - freed
    return before, most


def _elements(loops: ir.Loops) -> int:
    return hint(loops.outer_numel) * hint(loops.inner_numel)


def _extent(buffer: ir.Buffer) -> int:
    """Returns the bytes of memory of a buffer, from its first element to the end of the last one."""
    if not hint(buffer.numel):
        return 0
    return hint(span(buffer.size, buffer.stride)) * buffer.dtype.itemsize


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
