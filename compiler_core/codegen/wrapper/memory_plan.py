"""The memory plan of a program: when each buffer that it makes is dead, and which one takes its place.

A buffer of ours whose readers are all loops of ours is nobody else's when the last of them has run, and the next
buffer of as many bytes, type and device is laid into its memory.  All others (what a call of PyTorch's makes, or
may have kept a view of, or what a forward saved) are let go, and PyTorch's allocator has them again; but a few small
ones on the CPU, which take longer to make than to fill, are kept for the next run.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from compiler_core.loops import ir
from compiler_core.support.size_expr import Int, prod

KEPT = 1 << 14
"""Bytes that a program may keep from run to run, at most."""


@dataclass(frozen=True)
class MemoryPlan:
    """`dies`: the step after which each name that a step made, or a forward saved, is dead; results never are."""

    dies: dict[str, int]
    takes: dict[str, str] = field(default_factory=dict)
    """The dead buffer in whose memory a buffer lies."""
    kept: tuple[str, ...] = ()
    """The buffers that are kept for the next run."""
    made: dict[str, int] = field(default_factory=dict)
    """The step that makes each buffer, and each result of several tensors of which some have no name."""
    bytes: dict[str, int] = field(default_factory=dict)
    """What each of those takes."""
    peak_before: int = 0
    """Bytes, were every buffer kept to the end."""
    peak: int = 0


def plan(program: ir.Program) -> MemoryPlan:
    """When the memory of each buffer is free, and for which one."""
    own = _own_bytes(program)
    made = _made(program, own)
    dies = _last_uses(program)
    takes = _taken(program, dies)
    kept, before = _kept(program, dies, takes), sum(own[name] for name in made)
    return MemoryPlan(dies, takes, kept, made, own, before, _peak(made, dies, takes, own))


def as_taken(program: ir.Program) -> ir.Program:
    """`program`, whose loops make tensors of the size and strides in which they are taken: no window need be opened."""
    calls = (view for s in program.steps if isinstance(s, ir.Call) for view in views((s.args, s.kwargs)))
    windows: dict[str, list[ir.View]] = {}
    for view in (*dict.fromkeys(calls), *views(program.results)):
        windows.setdefault(view.buffer, []).append(view)
    buffers = dict(program.buffers)
    for name, (view, *others) in windows.items():
        buffer = buffers.get(name)
        if buffer is not None and buffer.kind == "loops" and not others and _same_elements(view, buffer):
            buffers[name] = replace(buffer, size=view.size, stride=view.stride)
    return replace(program, buffers=buffers)


def _same_elements(view: ir.View, buffer: ir.Buffer) -> bool:
    """Whether both are dense, and of as many elements."""
    numbers = (*view.size, *view.stride, *buffer.size, *buffer.stride)
    if not all(isinstance(n, int) for n in numbers) or view.offset != 0:
        return False
    return prod(view.size) == buffer.numel and _is_dense(view) and _is_dense(buffer)


def _is_dense(tensor: ir.View | ir.Buffer) -> bool:
    reached: Int = 1
    for stride, size in sorted((s, n) for s, n in zip(tensor.stride, tensor.size, strict=True) if n != 1):
        if stride != reached:
            return False
        reached *= size
    return True


def _made(program: ir.Program, own: Mapping[str, int]) -> dict[str, int]:
    """The step that makes each name; what is taken out of several results was made with them."""
    made: dict[str, int] = {}
    calls: dict[str, int] = {}
    for at, step in enumerate(program.steps):
        source = step.args[0] if isinstance(step, ir.Call) and step.target is operator.getitem else None
        calls[step.name] = calls.get(source.name, at) if isinstance(source, ir.Result) else at
        made.update((name, calls[step.name]) for name in step.makes if name in own)
    return made


def _last_uses(program: ir.Program) -> dict[str, int]:
    last: dict[str, int] = {}
    made = {name for step in program.steps for name in step.writes}
    for at, step in enumerate(program.steps):
        drawn = (name for name in step.needs if name in made)
        last.update(dict.fromkeys((*step.reads, *step.writes, *drawn), at))
    results = {v.buffer for v in views(program.results)}
    results.update(r.name for r in program.results if isinstance(r, ir.Result))
    others = set(program.inputs).difference(program.saved) | program.constants.keys()
    return {name: at for name, at in last.items() if name not in results | others}


def _taken(program: ir.Program, dies: dict[str, int]) -> dict[str, str]:
    """For each buffer of a loop, the dead one whose memory it can have."""
    ours = _ours(program)
    takes: dict[str, str] = {}
    free: dict[tuple[Any, ...], list[str]] = {}
    dead = dead_after(dies)
    for at, step in enumerate(program.steps):
        for name in step.makes if isinstance(step, ir.Loops) else ():
            if waiting := free.get(_kind(program.buffers[name])):
                takes[name] = waiting.pop()
        for name in dead.get(at, ()):
            # what a step reads may not lie where it writes
            if name in ours:
                free.setdefault(_kind(program.buffers[name]), []).append(name)
    return takes


def _ours(program: ir.Program) -> set[str]:
    """The buffers that nobody but loops of ours sees, if they are no results."""
    made = {name for step in program.steps if isinstance(step, ir.Loops) for name in step.makes}
    return made - {name for step in program.steps if isinstance(step, ir.Call) for name in step.reads}


def _kept(program: ir.Program, dies: Mapping[str, int], takes: Mapping[str, str]) -> tuple[str, ...]:
    found: list[str] = []
    rest = KEPT
    alone = _ours(program) & dies.keys() - takes.keys() - set(takes.values())
    for name in (name for step in program.steps for name in step.makes if name in alone):
        buffer = program.buffers[name]
        if buffer.device.type == "cpu" and isinstance(buffer.numel, int) and buffer.bytes <= rest:
            found.append(name)
            rest -= buffer.bytes
    return tuple(found)


def dead_after(dies: dict[str, int]) -> dict[int, list[str]]:
    """The names that are dead after each step."""
    dead: dict[int, list[str]] = {}
    for name, last in dies.items():
        dead.setdefault(last, []).append(name)
    return dead


def _kind(buffer: ir.Buffer) -> tuple[Any, ...]:
    extent = sum(((n - 1) * s for n, s in zip(buffer.size, buffer.stride, strict=True)), start=1)
    return buffer.dtype, buffer.device, repr(buffer.numel), repr(extent)


def _own_bytes(program: ir.Program) -> dict[str, int]:
    """What making each buffer takes; a view of another takes nothing."""
    calls = [s for s in program.steps if isinstance(s, ir.Call)]
    views_of_others = {s.name for s in calls if _makes_a_view(s)}
    own = {name: 0 if name in views_of_others else b.bytes for name, b in program.buffers.items()}
    return own | {s.name: s.unnamed for s in calls if s.unnamed}


def _makes_a_view(call: ir.Call) -> bool:
    schema = getattr(call.target, "_schema", None)
    return schema is not None and any(r.alias_info is not None for r in schema.returns)


def _peak(made: Mapping[str, int], dies: Mapping[str, int], takes: Mapping[str, str], own: Mapping[str, int]) -> int:
    """The most bytes that the program's own buffers take at one time."""
    taken = set(takes.values())
    changes = [(at, 0, own[name]) for name, at in made.items() if name not in takes]
    changes += [(dies[name], 1, -own[name]) for name in made if name in dies and name not in taken]
    # a step makes its buffers before those die that it is the last to read
    return max(itertools.accumulate(change for _, _, change in sorted(changes)), default=0)


def views(value: Any) -> Iterator[ir.View]:
    """The windows in nested arguments."""
    if isinstance(value, ir.View):
        yield value
    elif isinstance(value, dict):
        yield from views(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from views(inner)
