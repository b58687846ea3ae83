"""Our kernels behind stock ``torch.compile``: ``torch.compile(fn, backend="cutaway")``.

PyTorch finds `cutaway` by the entry-point group ``torch_dynamo_backends``.  Stock captures and guards; its
graph goes through our joint graph, partition and kernels.  What these did is written to the record that is
open (`compiler_core.record()`), as a compile for each graph.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch._guards import TracingContext, detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from compiler_core.api.compile import open_record
from compiler_core.backends.registry import compile_graph
from compiler_core.codegen.machine_code.stages import check_target
from compiler_core.config import Options
from compiler_core.errors import UsageError
from compiler_core.records import Compile, Record
from compiler_core.stock.read.lines import Lines
from compiler_core.support.fx_graphs import record_graph

_FILE = re.compile(r'File "(.+)", line (\d+), in (.+)')


def cutaway(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str = "default",
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """A graph of stock's as kernels of ours; `mode` and `options` are those of `compiler_core.compile`.

    A failure of ours is noted in the record and the graph runs eagerly, unless ``options={"strict": True}``.
    """
    chosen = _options({"mode": mode, **(options or {})})
    made = _recorded(gm, open_record())
    return compile_graph(gm, _fake(example_inputs), made, chosen)


def _options(given: Mapping[str, Any]) -> Options:
    known = [field.name for field in dataclasses.fields(Options)]
    if unknown := [name for name in given if name not in known]:
        raise UsageError(f"unknown option {', '.join(map(repr, unknown))}; known are {', '.join(known)}")
    if given.get("target") is not None:
        check_target(given["target"])
    return Options(**given)


def _recorded(gm: fx.GraphModule, record: Record) -> Compile:
    """A compile in `record` with the captured graph, its nodes linked to the user's lines."""
    places = {n: found[-1] for n in gm.graph.nodes if (found := _FILE.findall(n.meta.get("stack_trace") or ""))}
    filename, line, name = next(iter(places.values()), ("<unknown>", "1", gm.__class__.__name__))
    compile_ = record.compile(record.frame(name, filename, int(line), "root"))
    lines = Lines(record, files=True)
    for node in gm.graph.nodes:
        item = lines.item(places[node][0], int(places[node][1])) if node in places else None
        node.meta |= {"origin": (item,) if item else (), "rule": "capture"}
    lines.flush()
    record_graph(compile_, "captured", "captured", gm)
    compile_.outcome = "compiled"
    return compile_


def _fake(inputs: Sequence[Any]) -> list[Any]:
    """Fake tensors for `inputs`, of stock's symbolic sizes."""
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
