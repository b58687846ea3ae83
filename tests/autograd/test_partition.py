"""Tests of the partition: that both graphs fit together, its reasons, its bytes compared with PyTorch's partitioners,
and memory budgets."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx as fx
import torch.nn.functional as F
from torch import nn

import compiler_core
from compiler_core.autograd.joint import JointGraph, output_nodes, trace_joint
from compiler_core.autograd.mincut import bytes_of
from compiler_core.autograd.partition import Partitioned, check_partition, partition
from compiler_core.backends.registry import boxed_function
from compiler_core.errors import CompilerBug
from compiler_core.records import Compile, Partition
from compiler_core.support.node_facts import is_random, is_view, view_base
from tests.cases.captured import Captured, capture, compiled
from tests.cases.training_models import MODELS, leaves
from tests.sampling import always, sample

pytestmark = pytest.mark.slow


def t(*shape: int, grad: bool = True) -> torch.Tensor:
    return torch.randn(shape, requires_grad=grad)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Dropout(), nn.Linear(32, 4))


def block() -> nn.Module:
    return nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True, activation="gelu")


PROGRAMS: dict[str, tuple[Callable[[], Callable[..., Any]], list[torch.Tensor]]] = {
    "cos cos": (lambda: lambda x: x.cos().cos(), [t(64)]),
    "cos chain": (lambda: lambda x: x.cos().cos().cos().cos(), [t(64)]),
    "normalise": (lambda: lambda x: (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True), [t(8, 32)]),
    "views": (lambda: lambda x: (x.t()[1:].reshape(-1) * 2).sin().view(7, 4).t().exp(), [t(4, 8)]),
    "loss": (lambda: lambda x: F.cross_entropy(x.log_softmax(-1), torch.arange(8)), [t(8, 32)]),
    "batch norm": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), [t(2, 3, 8, 8)]),
    "mlp": (mlp, [t(8, 16)]),
    "transformer": (block, [t(2, 6, 16)]),
}


@functools.cache
def cut(name: str, budget: float = 1.0) -> tuple[Captured, Partitioned, Partition]:
    """One for all tests, which only look at it."""
    make, args = PROGRAMS[name]
    captured = capture(make(), *args)
    parts = partition(trace_joint(captured.gm, captured.inputs, captured.compile), captured.compile, budget)
    assert captured.compile.partition is not None
    return captured, parts, captured.compile.partition


def test_cos_of_cos_saves_one_tensor_where_the_default_saves_two() -> None:
    _, parts, account = cut("cos cos")
    assert parts.saved == ("primals_1",)
    assert (account.saved_count, account.saved_bytes) == (1, 256)
    assert (account.default_saved_count, account.default_saved_bytes) == (2, 512)
    values = {v.node: v for v in account.values}
    saved, again, neither = (values[f"0/0:forward#{n}"] for n in ("primals_1", "cos", "cos_1"))
    assert (saved.decision, saved.cut) == ("saved", ["primals_1_in", "primals_1_out"])
    assert saved.reason == "an input, in memory already (256 B); the backward computes cos and sin_1 again from it"
    assert again.decision == "recomputed"
    assert again.reason == "computed again from primals_1, which is saved: saving it would keep 256 B more"
    assert (neither.decision, neither.reason) == ("neither", "the backward does not need it")


@pytest.mark.parametrize("name", sample(PROGRAMS, 2))
def test_no_more_bytes_than_pytorchs_partitioners(name: str) -> None:
    _, parts, account = cut(name)
    assert account.saved_bytes == parts.saved_bytes
    assert account.saved_bytes <= account.default_saved_bytes
    assert account.saved_bytes <= sum(map(bytes_of, _saved_by_pytorch(parts.joint)))


def _saved_by_pytorch(joint: JointGraph) -> set[fx.Node]:
    """Returns what PyTorch's min-cut saves; a saved view keeps all of its base alive."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    graph, copied = fx.Graph(), dict[fx.Node, fx.Node]()
    graph.output(graph.graph_copy(joint.gm.graph, copied))
    for node, result in copied.items():
        result.meta = dict(node.meta)
    copy = fx.GraphModule(joint.gm, graph)
    forward, _ = min_cut_rematerialization_partition(copy, None, num_fwd_outputs=len(joint.outputs))
    nodes = {n.name: n for n in joint.gm.graph.nodes}
    saved = [n.name for n in output_nodes(forward.graph)[len(joint.outputs) :]]
    return {view_base(nodes[n]) for n in saved}


@pytest.mark.parametrize("name", PROGRAMS)
def test_law_of_the_cut(name: str) -> None:
    _, parts, account = cut(name)
    assert parts.backward is not None
    extra = output_nodes(parts.forward.graph)[len(parts.joint.outputs) :]
    taken = list(parts.backward.graph.find_nodes(op="placeholder"))
    assert [n.name for n in taken] == [*(n.name for n in extra), *parts.joint.tangents]
    for given, received in zip(extra, taken, strict=False):
        ours, expected = given.meta["val"], received.meta["val"]
        assert (ours.shape, ours.dtype, ours.stride()) == (expected.shape, expected.dtype, expected.stride())
        assert not is_view(given)
    assert not any(is_random(n) for n in parts.backward.graph.nodes)
    decisions = {v.node.split("#")[1]: v.decision for v in account.values}
    assert {n for n, d in decisions.items() if d == "saved"} == {n.removesuffix("_copy") for n in parts.saved}
    backward = {n.name for n in parts.backward.graph.nodes if n.op == "call_function"}
    assert {n for n, d in decisions.items() if d == "recomputed"} == backward & decisions.keys()


def test_a_broken_cut_is_noticed() -> None:
    _, parts, _ = cut.__wrapped__("mlp")
    with pytest.raises(CompilerBug, match="the forward saves"):
        check_partition(dataclasses.replace(parts, saved=parts.saved[::-1]))
    output: Any = parts.forward.graph.output_node()
    output.args = ([*output.args[0][:-1], output.args[0][-2]],)
    with pytest.raises(CompilerBug, match="but the backward takes"):
        check_partition(parts)


def test_a_dropout_mask_is_saved_and_never_drawn_again() -> None:
    captured = capture(lambda x: F.dropout(x, 0.5), t(64))
    partition(trace_joint(captured.gm, captured.inputs, captured.compile), captured.compile, memory_budget=0.0)
    account = captured.compile.partition
    assert account is not None
    (saved,) = [v for v in account.values if v.decision == "saved"]
    assert saved.reason.startswith("made of bernoulli: a random operator, which would draw other numbers")


@pytest.mark.parametrize("name", always(["mlp", "transformer"], "mlp".__eq__))
def test_a_smaller_budget_never_saves_more(name: str) -> None:
    budgets = [1.0, 0.8, 0.6, 0.4, 0.2, 0.0]
    found = [cut(name, b)[1].saved_bytes for b in budgets]
    assert found == sorted(found, reverse=True)
    assert found[-1] < found[0]
    floor = found[-1]
    assert all(bytes_ <= max(b * found[0], floor) for bytes_, b in zip(found, budgets, strict=True))


@pytest.mark.parametrize("budget", [1.0, 0.5, 0.0])
def test_gradients_are_the_same_under_any_budget(budget: float) -> None:
    captured, parts, _ = cut("mlp", budget)
    assert parts.backward is not None
    inputs = [torch.randn(e.shape, requires_grad=e.requires_grad) for e in captured.inputs]
    torch.manual_seed(1)
    (expected,) = captured.gm(*inputs)
    gradients = torch.autograd.grad(expected.sum(), [i for i in inputs if i.requires_grad])
    torch.manual_seed(1)
    with torch.no_grad():
        result, *saved = boxed_function(parts.forward)(inputs)
        found = [g for g in boxed_function(parts.backward)([*saved, torch.ones_like(result)]) if g is not None]
    torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6)
    for ours, eager in zip(found, gradients, strict=True):
        torch.testing.assert_close(ours, eager, rtol=2e-6, atol=1e-5)


def overwrites_what_the_backward_reads(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = x * w
    x.add_(1)
    return y


def test_no_cut_where_eager_has_no_backward() -> None:
    with compiled(overwrites_what_the_backward_reads) as result, pytest.raises(RuntimeError, match="inplace operation"):
        result(t(4, grad=False), t(4)).sum().backward()
    (failure,) = result.compiles[0].failures
    assert failure.stage == "joint"
    assert failure.message.startswith("PyTorch cannot differentiate the graph: one of the variables")


def test_no_gradient_no_partition() -> None:
    captured = capture(lambda x: x.cos(), t(4, grad=False))
    parts = partition(trace_joint(captured.gm, captured.inputs, captured.compile), captured.compile)
    assert parts.backward is None
    assert captured.compile.partition is None
    assert [a.pane for a in captured.compile.artifacts] == ["captured", "forward"]


def test_what_is_computed_again_stands_before_its_reader() -> None:
    _, parts, _ = cut("cos chain")
    assert parts.backward is not None
    order = [n.name for n in parts.backward.graph.nodes]
    again = [n for n in parts.backward.graph.nodes if n.op == "call_function" and n.name.startswith("cos")]
    assert again
    for node in again:
        between = order[order.index(node.name) + 1 : min(order.index(u.name) for u in node.users)]
        assert not any(n.startswith("mul") for n in between)


class Residual(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width)) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x.cos()


def test_the_sums_of_a_residual_stream_are_saved_not_its_summands() -> None:
    """Sums and their terms take the same bytes, but from the terms the backward would first compute every sum."""
    captured = capture(Residual(512, 6), t(8, 512))
    partition(trace_joint(captured.gm, captured.inputs, captured.compile), captured.compile)
    account = captured.compile.partition
    assert account is not None
    saved = [v.node.rpartition("#")[2] for v in account.values if v.decision == "saved"]
    # only the cosine reads the last sum, so saving it would write it to memory
    assert [name for name in saved if name.startswith("addmm")] == ["addmm_5"]


def test_many_paths_through_the_backward_are_walked_once() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(60):  # each round doubles the paths from the gradient back to the tangent
            x = x.sin() * x.cos()
        return x

    captured = capture(function, t(4))
    partition(trace_joint(captured.gm, captured.inputs, captured.compile), captured.compile)
    account = captured.compile.partition
    assert account is not None
    assert account.again_ns > 0


@pytest.mark.parametrize("name", always(MODELS, lambda name: name in ("cos(cos(x))", "mlp")))
def test_the_budget_curve_is_monotone_and_every_point_of_it_can_be_had(name: str) -> None:
    torch.manual_seed(0)
    function, inputs = MODELS[name](16)
    wanted = gradients(function, function, inputs)
    with compiler_core.record() as record:
        compiler_core.compile(function, backend="aot_eager", strict=True, memory_curve=True)(*inputs)
    account = record.compiles[0].partition
    assert account is not None
    curve = account.curve
    assert [p.budget for p in curve] == [i / 10 for i in reversed(range(11))]
    assert [p.saved_bytes for p in curve] == sorted((p.saved_bytes for p in curve), reverse=True)
    assert [p.again_ns for p in curve] == sorted(p.again_ns for p in curve)
    assert (curve[0].saved_bytes, curve[0].again_ns) == (account.saved_bytes, account.again_ns)
    assert [item.rpartition("#")[2] for item in curve[0].saved] == saved_names(record.compiles[0])
    assert curve[-1].saved_bytes < curve[0].saved_bytes or name == "cos(cos(x))"
    for saved_bytes, budget in {p.saved_bytes: p.budget for p in curve[::5]}.items():
        compiled = compiler_core.compile(function, backend="aot_eager", strict=True, memory_budget=budget)
        torch.testing.assert_close(gradients(function, compiled, inputs), wanted, rtol=1e-5, atol=1e-5)
        kept = compiler_core.api.compile.record_of(compiled).compiles[0].partition
        assert kept is not None
        assert kept.saved_bytes == saved_bytes


def saved_names(compile_: Compile) -> list[str]:
    graph = compile_.find("backward").graph
    assert graph is not None
    return [node.key.removesuffix("_copy") for node in graph.nodes if node.role == "saved"]


def gradients(
    function: Callable[..., Any], call: Callable[..., Any], inputs: list[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(1)
    output = call(*inputs)
    return torch.autograd.grad(output, leaves(function, inputs), torch.linspace(-1, 1, output.numel()).view_as(output))


@pytest.mark.parametrize("name", always(MODELS, "mlp".__eq__))
def test_models_save_no_more_than_pytorchs_min_cut(name: str) -> None:
    torch.manual_seed(0)
    function, inputs = MODELS[name](16)
    captured = capture(function, *inputs)
    parts = partition(trace_joint(captured.gm, captured.inputs, captured.compile), captured.compile)
    expected = _saved_by_pytorch(parts.joint)
    assert len(parts.saved) <= len(expected)
    assert parts.saved_bytes <= sum(map(bytes_of, expected))


def test_what_a_saved_value_would_cost_to_drop() -> None:
    _, _, account = cut("mlp")
    by_name = {v.node.rpartition("#")[2]: v for v in account.values}
    saved = [v for v in by_name.values() if v.decision == "saved"]
    assert all(v.drop_ns is None for name, v in by_name.items() if name.startswith("primals"))
    assert all(v.drop_ns is None for v in by_name.values() if v.decision != "saved")
    products = [
        v for v in saved if "matrix product" in v.reason and not v.node.rpartition("#")[2].startswith("primals")
    ]
    assert products
    assert all(v.drop_ns is not None and v.drop_ns > 0 for v in products)
    assert any(v.drop_ns is None and "random" in v.reason for v in saved)
