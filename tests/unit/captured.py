"""Captured graphs for tests of what comes after capture: taken from torch.compile, which hands a
backend graphs of the same form as ours (flat tensors in, a flat tuple out)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx as fx
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from compiler_core.backends import compile_graph
from compiler_core.config import Options
from compiler_core.graphs import record_graph
from compiler_core.record import Compile, Record


@dataclass
class Captured:
    """A captured graph, recorded, with fake inputs, and the record that it lies in."""

    gm: fx.GraphModule
    inputs: list[torch.Tensor]
    record: Record
    compile: Compile


def prepare(gm: fx.GraphModule, examples: Sequence[torch.Tensor]) -> Captured:
    """Record `gm` as a captured graph with one made-up source line for each node."""
    rec = Record()
    compile_ = rec.compile(rec.frame("f", "f.py", 1, "root"))
    mode = detect_fake_mode(list(examples)) or FakeTensorMode()
    inputs: list[torch.Tensor] = [mode.from_tensor(e) if not isinstance(e, FakeTensor) else e for e in examples]
    nodes = list(gm.graph.nodes)
    source = rec.source("f.py", 1, [str(n) for n in nodes])
    for i, node in enumerate(nodes, 1):
        node.meta |= {"origin": (source.item(str(i)),), "rule": "capture"}
    record_graph(compile_, "captured", "captured", gm)
    return Captured(gm, inputs, rec, compile_)


def capture(function: Callable[..., Any], *args: Any) -> Captured:
    """The one graph of ``function(*args)``."""
    found: list[Captured] = []

    def backend(gm: fx.GraphModule, examples: Sequence[torch.Tensor]) -> Callable[..., Any]:
        found.append(prepare(gm, examples))
        return gm.forward

    with stock(function, backend) as compiled:
        compiled(*args)
    (captured,) = found
    return captured


@dataclass
class Compiled:
    """A function whose graphs go through `compile_graph`; `compiles` holds one for each."""

    call: Callable[..., Any]
    compiles: list[Compile] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)


@contextmanager
def compiled(function: Callable[..., Any], backend: Any = "aot_eager", **options: Any) -> Iterator[Compiled]:
    """`function` compiled by our backend behind torch.compile's capture."""

    def run(gm: fx.GraphModule, examples: Sequence[torch.Tensor]) -> Callable[..., Any]:
        captured = prepare(gm, examples)
        made.compiles.append(captured.compile)
        made.records.append(captured.record)
        return compile_graph(gm, captured.inputs, captured.compile, Options(backend=backend, **options))

    with stock(function, run) as call:
        made = Compiled(call)
        yield made


@contextmanager
def stock(function: Callable[..., Any], backend: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    torch._dynamo.reset()
    try:
        yield torch.compile(function, backend=backend, fullgraph=True, dynamic=False)
    finally:
        torch._dynamo.reset()
