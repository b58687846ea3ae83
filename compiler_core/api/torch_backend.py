"""The backend ``cutaway`` of stock `torch.compile`: ``torch.compile(fn, backend="cutaway")``.

PyTorch finds it by the entry-point group ``torch_dynamo_backends``.  Stock captures and guards; its graph goes through
our joint graph, partition and kernels.  The open record (`compiler_core.record()`) gets a compile for each graph.

`record_foreign_graph` also records the graphs of the symbolic tracer or of the user."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx as fx

from compiler_core.api.compiled import new_record, open_record
from compiler_core.capture.guard_collector import add_lines
from compiler_core.codegen.source import check_target
from compiler_core.config import Options
from compiler_core.errors import UsageError
from compiler_core.hook.failures import only_recorded
from compiler_core.hook.skip_rules import is_library_file
from compiler_core.pipeline.graph import compile_graph
from compiler_core.records import Compile, Record
from compiler_core.support.fx_graphs import record_graph
from compiler_core.torch_private import FakeTensor, FakeTensorMode, TracingContext, detect_fake_mode

_FILE = re.compile(r'File "(.+)", line (\d+), in (.+)')


def record_foreign_graph(gm: fx.GraphModule, record: Record) -> Compile:
    """Adds a compile with the captured graph to `record`, its nodes linked to the user's lines."""
    stacks = {n: _FILE.findall(n.meta.get("stack_trace") or "") for n in gm.graph.nodes}
    # the innermost line of the user's, or else of a library
    locations = {
        n: next((line for line in reversed(stack) if not is_library_file(line[0])), stack[-1])
        for n, stack in stacks.items()
        if stack
    }
    filename, line, name = next(iter(locations.values()), ("<unknown>", "1", gm.__class__.__name__))
    frame = record.frame(name, filename, int(line), "root")
    # The ids of stock's frames are not their positions in the list.
    frame.id = 1 + max((each.id for each in record.frames if each is not frame), default=-1)
    compile_ = record.compile(frame)
    for each in dict.fromkeys(file for file, _, _ in locations.values()):
        add_lines(record, each, [int(number) for file, number, _ in locations.values() if file == each])
    for node in gm.graph.nodes:
        item = record.line(locations[node][0], int(locations[node][1])) if node in locations else None
        node.meta |= {"origin": (item,) if item else (), "rule": "capture"}
    with only_recorded(compile_, "capture", "the captured graph"):
        record_graph(compile_, "captured", "captured", gm)
    compile_.outcome = "compiled"
    return compile_


def cutaway(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str = "default",
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compiles a graph of stock's to our kernels.

    Args:
        gm: the graph that Dynamo captured.
        example_inputs: its inputs, real or fake tensors and numbers.
        mode: as for `compiler_core.compile`.
        options: other options of `compiler_core.compile`, by name.

    Returns:
        A function that takes the inputs of `gm` and returns its outputs.  If our compiler fails, the record notes it
        and the function runs `gm` eagerly, unless ``options={"strict": True}``.

    Raises:
        UsageError: an option is unknown or wrong.

    Example::

        torch.compile(fn, backend="cutaway", options={"strict": True})
    """
    chosen = _parse_options({"mode": mode, **(options or {})})
    compile_ = record_foreign_graph(gm, open_record() or new_record())
    return compile_graph(gm, _fake_inputs(example_inputs), compile_, chosen)


def _parse_options(given: Mapping[str, Any]) -> Options:
    known = [field.name for field in dataclasses.fields(Options)]
    if unknown := [name for name in given if name not in known]:
        raise UsageError(f"unknown option {', '.join(map(repr, unknown))}; known are {', '.join(known)}")
    if given.get("target") is not None:
        check_target(given["target"])
    return Options(**given)


def _fake_inputs(inputs: Sequence[Any]) -> list[Any]:
    """Returns fake tensors for `inputs`, with the symbolic sizes that stock gave them."""
    context = TracingContext.try_get()
    mode = (context.fake_mode if context else None) or detect_fake_mode(list(inputs)) or FakeTensorMode()
    known: Any = context.tensor_to_context if context else {}

    def fake(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
            return value
        if (symbolic := known.get(value)) is None:
            return mode.from_tensor(value, static_shapes=True)
        return mode.from_tensor(value, symbolic_context=symbolic, source=symbolic.tensor_source)

    return [fake(value) for value in inputs]
