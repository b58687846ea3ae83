"""Writes to an input without a copy of it: a cache of keys that takes one more row at each token.

A functional graph makes a new tensor with every write, which the caller copies into the input::

    new[i0] = load cache[i0]; store new[i0]            store cache[position] = row
    store new[position] = row                  ->
    cache.copy_(new), by the caller

The write goes to the input itself where nothing can tell: no other step reads the input, and what is put does not
depend on it, so that running the graph once more after a failure leaves the same values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch.fx as fx

from compiler_core.loops import ir


def write_in_place(program: ir.Program, new_values: Mapping[str, str]) -> ir.Program:
    """`program`, which writes to inputs where it may; `new_values`: for a result's buffer the input that takes it."""
    for made, given in new_values.items():
        if (copy := _removable_copy(program, made, given)) is not None:
            program = _renamed(program.with_steps([s for s in program.steps if s is not copy]), made, given)
    return program


def _removable_copy(program: ir.Program, made: str, given: str) -> ir.Step | None:
    """The step that copies the input `given` to `made`, if all writes to `made` can go to the input."""
    new, old = program.buffers[made], program.buffers[given]
    # kernels for the CPU report a position that is out of range when some have written already
    alike = (new.size, new.stride, new.dtype, new.device) == (old.size, old.stride, old.dtype, old.device)
    if new.kind != "loops" or not alike or old.device.type != "cuda":
        return None
    shown = [r.buffer for r in program.results if isinstance(r, ir.View)]
    copy, *puts = (s for s in program.steps if made in s.writes)
    readers = [s for s in program.steps if given in s.reads]
    if not puts or readers != [copy] or given in shown or shown.count(made) != 1:
        return None
    return copy if _copies(copy, made, given) and all(_puts(s, made) for s in puts) else None


def _copies(step: ir.Step, made: str, given: str) -> bool:
    """Whether all that `step` does is to store each element of `given` at its place in `made`."""
    if not isinstance(step, ir.Loops) or len(step.body) != 2:
        return False
    load, store = step.body
    if not isinstance(load, ir.Load) or not isinstance(store, ir.Store) or load.within:
        return False
    return (load.buffer, store.buffer, store.value, store.how) == (given, made, load.name, "=") and (
        load.address == store.address
    )


def _puts(step: ir.Step, made: str) -> bool:
    """Whether `step` replaces elements of `made` with what no element of it decides."""
    if not isinstance(step, ir.Loops) or made in step.reads:
        return False
    return all(s.how == "put" for s in step.body if isinstance(s, ir.Store) and s.buffer == made)


def _renamed(program: ir.Program, made: str, given: str) -> ir.Program:
    """`program` with the buffer `given` wherever it says `made`."""

    def view(value: Any) -> Any:
        return replace(value, buffer=given) if isinstance(value, ir.View) and value.buffer == made else value

    def step(each: ir.Step) -> ir.Step:
        if isinstance(each, ir.Call):
            args, kwargs = fx.node.map_aggregate((each.args, each.kwargs), view)
            return replace(
                each, args=args, kwargs=dict(kwargs), reads=tuple(given if r == made else r for r in each.reads)
            )
        body = (
            replace(s, buffer=given) if isinstance(s, ir.Load | ir.Store) and s.buffer == made else s for s in each.body
        )
        return replace(each, body=tuple(body))

    buffers = {name: buffer for name, buffer in program.buffers.items() if name != made}
    return replace(
        program, buffers=buffers, steps=tuple(map(step, program.steps)), results=tuple(map(view, program.results))
    )
