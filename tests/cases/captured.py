"""Captured graphs for tests of what comes after capture, and the comparison with eager PyTorch.

The graphs are taken from torch.compile, which hands a backend graphs of the same form as ours:
flat tensors in, a flat tuple out.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx as fx
from torch import nn
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_map_only

from compiler_core.config import Options
from compiler_core.pipeline.graph import compile_graph
from compiler_core.records import Compile, Record
from compiler_core.support.fx_graphs import record_graph


@dataclass
class Captured:
    """A captured graph, recorded, with fake inputs, and the record that it lies in."""

    gm: fx.GraphModule
    inputs: list[torch.Tensor]
    record: Record
    compile: Compile


def prepare(gm: fx.GraphModule, examples: Sequence[torch.Tensor]) -> Captured:
    """Record `gm` as a captured graph, each node from a different source line."""
    record = Record()
    compile_ = record.compile(record.frame("f", "f.py", 1, "root"))
    mode = detect_fake_mode(list(examples)) or FakeTensorMode()
    inputs: list[torch.Tensor] = [e if isinstance(e, FakeTensor) else mode.from_tensor(e) for e in examples]
    source = record.source("f.py", 1, [str(n) for n in gm.graph.nodes])
    for i, node in enumerate(gm.graph.nodes, 1):
        node.meta |= {"origin": (source.item(str(i)),), "rule": "capture"}
    record_graph(compile_, "captured", "captured", gm)
    return Captured(gm, inputs, record, compile_)


def capture(function: Callable[..., Any], *args: Any) -> Captured:
    """The one graph of ``function(*args)``."""
    found: list[Captured] = []

    def backend(gm: fx.GraphModule, _: Sequence[torch.Tensor]) -> Callable[..., Any]:
        def run(*inputs: torch.Tensor) -> Any:
            # here, and not above, where torch.compile's own fake mode is at work
            found.append(prepare(gm, inputs))
            return gm(*inputs)

        return run

    with _stock(function, backend) as compiled:
        compiled(*args)
    (captured,) = found
    return captured


def fresh(captured: Captured) -> list[torch.Tensor]:
    """Other values for the inputs of a captured graph."""
    created = []
    for fake in captured.inputs:
        if fake.requires_grad:
            created.append((torch.randn(fake.shape) / 4).requires_grad_())
        elif fake.is_floating_point():  # such as running variances
            created.append(torch.rand(fake.shape))
        else:
            created.append(torch.randint(0, 2, fake.shape, dtype=fake.dtype))
    return created


@dataclass
class Compiled:
    """A function whose graphs go through `compile_graph`; `compiles` has one for each."""

    call: Callable[..., Any]
    compiles: list[Compile] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)

    def text(self, name: str) -> str:
        """The text of an artifact of the one compile."""
        (compile_,) = self.compiles
        return compile_.find(name).text


@contextmanager
def compiled(function: Callable[..., Any], backend: Any = "aot_eager", **options: Any) -> Iterator[Compiled]:
    """`function` compiled by a backend of ours behind torch.compile's capture."""

    def run(gm: fx.GraphModule, examples: Sequence[torch.Tensor]) -> Callable[..., Any]:
        captured = prepare(gm, examples)
        result.compiles.append(captured.compile)
        result.records.append(captured.record)
        return compile_graph(gm, captured.inputs, captured.compile, Options(backend=backend, **options))

    with _stock(function, run) as call:
        result = Compiled(call)
        yield result


@contextmanager
def _stock(function: Callable[..., Any], backend: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    torch._dynamo.reset()
    try:
        yield torch.compile(function, backend=backend, fullgraph=True, dynamic=False)
    finally:
        torch._dynamo.reset()


def same_as_eager(
    function: Callable[..., Any],
    *args: torch.Tensor,
    backend: Any = "aot_eager",
    leaves: bool = True,
    tol: float = 1e-6,
) -> Compiled:
    """Run `function` (maybe a module) both ways from the same state: outputs, inputs afterwards,
    gradients, parameters, buffers, sharing of memory and the random numbers left must be equal.

    With `leaves` False it gets results of an operation instead of leaves.
    """
    expected = outcome(copy.deepcopy(function), args, leaves)
    with compiled(function, backend) as result:
        found = outcome(function, args, leaves, result)
    failures = "\n".join(f.detail for c in result.compiles for f in c.failures)
    assert not failures, failures
    assert_equal(found, expected, tol)
    return result


@dataclass
class _Outcome:
    outputs: list[torch.Tensor]
    inputs: list[torch.Tensor]
    gradients: list[torch.Tensor | None]
    state: list[torch.Tensor]
    drawn: torch.Tensor


def outcome(
    function: Callable[..., Any], args: Sequence[torch.Tensor], leaves: bool, call: Callable[..., Any] | None = None
) -> _Outcome:
    torch.manual_seed(0)
    own = [a.detach().clone().requires_grad_(a.requires_grad) for a in args]
    inputs = own if leaves else [a * 1 for a in own]
    result = (call or function)(*inputs)
    outputs = list(result) if isinstance(result, (tuple, list)) else [result]
    terms = [(o * torch.linspace(0.1, 1, o.numel()).view(o.shape)).sum() for o in outputs if o.requires_grad]
    if terms and torch.is_grad_enabled():
        torch.stack(terms).sum().backward()
    parameters = list(function.parameters()) if isinstance(function, nn.Module) else []
    buffers = list(function.buffers()) if isinstance(function, nn.Module) else []
    gradients = [t.grad if t.is_leaf else None for t in own + parameters]
    return _Outcome(outputs, inputs, gradients, parameters + buffers, torch.rand(4))


def assert_equal(found: _Outcome, expected: _Outcome, tol: float) -> None:
    for name in ("outputs", "inputs", "gradients", "state"):
        for i, (ours, eager) in enumerate(zip(getattr(found, name), getattr(expected, name), strict=True)):
            _assert_same_tensor(ours, eager, tol, f"{name}[{i}]")
    assert _sharing(found) == _sharing(expected), "memory is shared otherwise than in eager"
    assert torch.equal(found.drawn, expected.drawn), "another number of random draws than in eager"


def _assert_same_tensor(ours: Any, eager: Any, tol: float, what: str) -> None:
    assert (ours is None) == (eager is None), what
    if eager is not None:
        assert ours.requires_grad == eager.requires_grad, what
        assert ours.stride() == eager.stride(), what
        torch.testing.assert_close(ours, eager, rtol=tol, atol=5 * tol, equal_nan=True, msg=lambda m: f"{what}: {m}")


def _sharing(outcome: _Outcome) -> list[tuple[bool, bool]]:
    tensors = outcome.outputs + outcome.inputs
    storages = [t.untyped_storage().data_ptr() for t in tensors]
    return [
        (a is b, s == t) for a, s in zip(tensors, storages, strict=True) for b, t in zip(tensors, storages, strict=True)
    ]


def put_on_a_gpu(gm: fx.GraphModule) -> None:
    """Say of all tensors of a traced graph that they lie on a GPU, which need not be here."""

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cuda")

    with FakeTensorMode():
        for node in gm.graph.nodes:
            node.meta["val"] = tree_map_only(torch.Tensor, moved, node.meta.get("val"))
