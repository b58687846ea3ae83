"""In-place updates of inputs: removes the copy that functionalization makes of an updated input.

An example is a key-value cache to which each token adds a row.  In a functional graph, the update makes a new tensor,
which the caller copies into the input.  The loops before and after, of which the first copy the whole cache:

>>> updated("aten.index_copy(cache, 0, index, row)", cache="f32[8]", index="i64[2]", row="f32[2]")
index_copy: for i0 < 8:
    v0: f32 = load cache[i0]
    store index_copy[i0] = v0
index_copy: for i0 < 2:
    v1: f32 = load row[i0]
    v2: i64 = load index[i0]
    v3: i64 = v2 below 8
    store index_copy[v3] put v1
---
index_copy: for i0 < 2:
    v1: f32 = load row[i0]
    v2: i64 = load index[i0]
    v3: i64 = v2 below 8
    store cache[v3] put v1

The input is updated directly if that cannot be observed: no other step reads the input, and the stored values do not
depend on it, so that running the graph again after a failure leaves the same values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch.fx as fx

from compiler_core.loops import ir


def write_in_place(program: ir.Program, new_values: Mapping[str, str]) -> ir.Program:
    """Makes updates of inputs in-place where possible.

    `new_values` has, for the buffer of each result that is the new value of an input, the name of that input.
    """
    for updated, original in new_values.items():
        if (copy := _removable_copy(program, updated, original)) is not None:
            program = _replace_buffer(
                program.with_steps([s for s in program.steps if s is not copy]), updated, original
            )
    return program


def _removable_copy(program: ir.Program, updated: str, original: str) -> ir.Step | None:
    """Returns the step that copies the input `original` to `updated`, if all writes can go to the input."""
    new, old = program.buffers[updated], program.buffers[original]
    # a kernel for the CPU may have written some elements when it reports a position that is out of range
    alike = (new.size, new.stride, new.dtype, new.device) == (old.size, old.stride, old.dtype, old.device)
    if new.kind != "loops" or not alike or old.device.type != "cuda":
        return None
    returned = [r.buffer for r in program.results if isinstance(r, ir.TensorView)]
    copy, *puts = (s for s in program.steps if updated in s.writes)
    readers = [s for s in program.steps if original in s.reads]
    if not puts or readers != [copy] or original in returned or returned.count(updated) != 1:
        return None
    return (
        copy
        if _is_plain_copy(copy, updated, original) and all(_only_replaces_elements(s, updated) for s in puts)
        else None
    )


def _is_plain_copy(step: ir.Step, updated: str, original: str) -> bool:
    """Whether `step` only copies each element of `original` to the same address in `updated`."""
    if not isinstance(step, ir.Loops) or len(step.body) != 2:
        return False
    load, store = step.body
    if not isinstance(load, ir.Load) or not isinstance(store, ir.Store) or load.within:
        return False
    return (load.buffer, store.buffer, store.value, store.mode) == (original, updated, load.name, "=") and (
        load.address == store.address
    )


def _only_replaces_elements(step: ir.Step, updated: str) -> bool:
    """Whether `step` replaces elements of `updated` with values that do not depend on `updated`."""
    if not isinstance(step, ir.Loops) or updated in step.reads:
        return False
    return all(s.mode == "put" for s in step.body if isinstance(s, ir.Store) and s.buffer == updated)


def _replace_buffer(program: ir.Program, updated: str, original: str) -> ir.Program:
    """Returns `program` with the buffer `original` in place of `updated`."""

    def view(value: Any) -> Any:
        return (
            replace(value, buffer=original) if isinstance(value, ir.TensorView) and value.buffer == updated else value
        )

    def step(each: ir.Step) -> ir.Step:
        if isinstance(each, ir.Call):
            args, kwargs = fx.node.map_aggregate((each.args, each.kwargs), view)
            return replace(
                each, args=args, kwargs=dict(kwargs), reads=tuple(original if r == updated else r for r in each.reads)
            )
        body = (
            replace(s, buffer=original) if isinstance(s, ir.Load | ir.Store) and s.buffer == updated else s
            for s in each.body
        )
        return replace(each, body=tuple(body))

    buffers = {name: buffer for name, buffer in program.buffers.items() if name != updated}
    return replace(
        program, buffers=buffers, steps=tuple(map(step, program.steps)), results=tuple(map(view, program.results))
    )
