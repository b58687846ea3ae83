"""Tests of the joint graph: programs that must equal eager through it, what it refuses, and where its nodes come
from."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx as fx
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_leaves

import compiler_core
from compiler_core import RefusalWarning
from compiler_core.autograd.joint import JointGraph, JointRefused, trace_joint
from compiler_core.autograd.trace import decompositions
from compiler_core.records import Record
from tests.cases.captured import Captured, capture, compiled, fresh, prepare, same_as_eager
from tests.cases.training_models import MODELS
from tests.sampling import pairs, sample


def t(*shape: int, grad: bool = True) -> torch.Tensor:
    return torch.randn(shape, requires_grad=grad)


# ---- values, gradients, mutations, aliasing ------------------------------------------------


def inplace_on_intermediates(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.add_(1)
    y[0].mul_(3)
    return F.relu(y, inplace=True).sin()


def view_written_to(x: torch.Tensor) -> Any:
    y = x.sin()
    v = y.view(-1)
    v.mul_(2)
    return v, y


def writes_buffer(x: torch.Tensor, b: torch.Tensor) -> Any:
    b.add_(x.detach())
    return x * b, b.view(-1), b


def writes_input(x: torch.Tensor, y: torch.Tensor) -> Any:
    x.mul_(y)
    return x.sin(), x, y * 3


def writes_leaf_without_grad(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        x.add_(1)
    return x * 2


def buffer_gets_gradient(b: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    b.add_(x)
    return b * 2


def writes_an_output(x: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
    y = x * 2
    b.copy_(y)
    c.copy_(x)
    return y, x + c


def base_overwritten_later(x: torch.Tensor) -> Any:
    y = x * 2
    z = y[:, 1:]
    y.zero_()
    return z, y + x


def view_under_no_grad(x: torch.Tensor) -> Any:
    with torch.no_grad():
        v = x.view(-1)
    return v, x * 2


def grad_mode_region(x: torch.Tensor) -> Any:
    y = x * 2
    with torch.no_grad():
        z = y.sin()
        w = y.view(-1)
    return y * z, z, w


def views_of_one(x: torch.Tensor) -> Any:
    y = x * 2
    return y.view(-1), y, y[0]


PROGRAMS: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "several, integer and boolean outputs": (lambda x, y: (x * y, x > 0, x.sum().long(), y + 1), [t(4), t(4)]),
    "unused input": (lambda x, y: x * 2, [t(4), t(4)]),
    "one output twice": (lambda x: [x * 2] * 2, [t(4)]),
    "an input as output": (lambda x, y: (x, x * y), [t(4), t(4)]),
    "views of inputs": (lambda x, y: (x.view(-1), (x * y).t(), x[0]), [t(2, 3), t(2, 3)]),
    "views of an output": (views_of_one, [t(2, 3)]),
    "views without their base": (lambda x: (x.sin().view(-1), x.cos()[0]), [t(2, 3)]),
    "pieces of an input": (lambda x: x.chunk(2), [t(4, 3)]),
    "pieces of an output": (lambda x: (x * 2).unbind(0), [t(4, 3)]),
    "the same memory or a copy": (lambda x: (x.contiguous(), x.t().contiguous(), x.reshape(-1)), [t(2, 3)]),
    "expanded": (lambda x: (x.expand(3, 4) + 0, x.expand(3, 4)), [t(4)]),
    "detached": (lambda x: (x.detach(), (x * 2).detach(), x.detach() * x), [t(3)]),
    "strides kept": (lambda x: (x.t() * 2, (x.t() @ x).t()), [t(4, 6)]),
    "in-place on intermediates": (inplace_on_intermediates, [t(4, 3)]),
    "written through a view": (view_written_to, [t(3, 2)]),
    "writes to a buffer": (writes_buffer, [t(2, 2), t(2, 2, grad=False)]),
    "writes to a leaf under no_grad": (writes_leaf_without_grad, [t(3)]),
    "a buffer that gets a gradient": (buffer_gets_gradient, [t(4, grad=False), t(4)]),
    "writes what it also returns": (writes_an_output, [t(4), t(4, grad=False), t(4, grad=False)]),
    "base overwritten after the view": (base_overwritten_later, [t(4, 2)]),
    "view made under no_grad": (view_under_no_grad, [t(2, 2)]),
    "names like operators": (lambda x: (x.max(0)[0][None], torch.transpose(x.sort(0)[0], 0, 1)[..., 1:]), [t(3, 4)]),
    "complex": (lambda x: torch.view_as_real(torch.view_as_complex(x).conj().square()), [t(4, 2)]),
    "no_grad region": (grad_mode_region, [t(2, 2)]),
    "constants": (lambda x: (x * torch.tensor(3.0) + torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1, 2])), [t(3)]),
    "no gradient at all": (lambda i: (i + 1, i.view(2, 2)), [torch.arange(4)]),
    "index": (lambda x: x[torch.tensor([0, 1, 1])], [t(3, 2)]),
    "softmax of a product": (lambda x, w: torch.softmax(F.gelu(x @ w), -1), [t(4, 8), t(8, 8)]),
    "cross entropy": (lambda x: F.cross_entropy(x, torch.arange(4)), [t(4, 6)]),
    "dropout": (lambda x: F.dropout(x, 0.5) * F.dropout(x.t(), 0.3).t(), [t(8, 8)]),
    "dropout, result unused": (lambda x: [F.dropout(x, 0.5), F.dropout(x, 0.5)][1], [t(8, 8)]),
    "dropout outside training": (lambda x: (F.dropout(x, 0.5, training=False), x * 2), [t(8, 8)]),
    "draws": (lambda x: (x * torch.rand_like(x.t()).t() + torch.randn(3, 5), x.t().new_empty(3).normal_()), [t(3, 5)]),
    "draws in place": (lambda x: x.t() * torch.empty_like(x.t()).uniform_().exponential_(), [t(3, 5)]),
    "bernoulli, in place or not": (
        lambda x: (torch.empty_like(x).bernoulli_(), torch.bernoulli(x, 0.5)),
        [t(3, 5, grad=False).t()],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_equals_eager(name: str) -> None:
    function, args = PROGRAMS[name]
    same_as_eager(function, *args)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_writes_to_an_input_that_has_a_gradient() -> None:
    same_as_eager(writes_input, t(4), t(4), leaves=False)


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "batch norm": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(True)), (2, 3, 8, 8)),
    "mlp": (lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Dropout()), (3, 8)),
    "transformer": (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (2, 5, 16)),
    "transformer, norm first": (
        lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True, activation="gelu"),
        (2, 5, 16),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_module_in_training_equals_eager(name: str) -> None:
    make, shape = MODULES[name]
    same_as_eager(make(), t(*shape), tol=2e-6)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_no_gradient_is_made_where_none_is_wanted(mode: Callable[[], Any]) -> None:
    with mode():
        result = same_as_eager(nn.BatchNorm1d(4), torch.randn(3, 4))
        same_as_eager(lambda p, g: p.add_(g, alpha=-0.1), t(3), t(3, grad=False))
    assert [a.pane for a in result.compiles[0].artifacts] == ["captured", "forward", "wrapper"]


def test_autocast_is_in_the_graph() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = same_as_eager(lambda x, w: (x @ w).relu(), t(4, 8), t(8, 8), tol=1e-2)
    assert "without_autocast" in result.text("autograd")
    assert "bf16" in result.text("joint")


# ---- refusals ------------------------------------------------------------------------------


def graph_of(function: Callable[..., Any], *args: torch.Tensor) -> Captured:
    """Captures with FX alone, for programs that torch.compile would not capture."""
    gm = fx.symbolic_trace(function)
    output = gm.graph.output_node()
    if isinstance(output.args[0], fx.Node):
        output.args = ((output.args[0],),)
    gm.recompile()
    return prepare(gm, args)


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda x: x.t_() * 2, "x"),
        (lambda x: x.view(-1).unsqueeze_(0), "view"),
        (lambda x: (y := x * 2, y[:1], y.squeeze_()), "mul"),
    ],
)
def test_refuses_shapes_changed_in_place(function: Callable[..., Any], what: str) -> None:
    captured = graph_of(function, t(1, 3, grad=False))
    with pytest.raises(JointRefused, match=f"changes the shape of {what} in place"):
        trace_joint(captured.gm, captured.inputs, captured.compile)


@pytest.mark.parametrize("overlapping", [torch.arange(7.0).as_strided((5, 3), (1, 1)), torch.arange(3.0).expand(5, 3)])
def test_refuses_to_write_to_an_input_whose_elements_share_memory(overlapping: torch.Tensor) -> None:
    captured = graph_of(lambda x: x[0].add_(1) + x, overlapping)
    with pytest.raises(JointRefused, match="whose elements share memory"):
        trace_joint(captured.gm, captured.inputs, captured.compile)


@pytest.mark.parametrize("apart", [torch.arange(30.0).view(5, 6)[:, ::2], torch.arange(15.0).view(3, 5).t()])
def test_writes_to_an_input_with_gaps(apart: torch.Tensor) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x[0].add_(1) + x

    copied, compiled = apart.clone(), compiler_core.compile(program, backend="cpp", strict=True)
    assert torch.equal(compiled(apart), program(copied))
    assert torch.equal(apart, copied)


def test_refuses_to_write_to_memory_that_as_strided_looks_at() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        window = x.as_strided((4, 2), (6, 1))
        x.clamp_(-0.1, 0.1)
        return window + 1

    stepped = torch.randn(4, 6)
    captured = graph_of(program, stepped[:, ::2])
    with pytest.raises(JointRefused, match="memory that an as_strided view shows"):
        trace_joint(captured.gm, captured.inputs, captured.compile)
    want = program(stepped.clone()[:, ::2])
    with pytest.warns(RefusalWarning, match="memory that an as_strided view shows"):
        assert torch.equal(compiler_core.compile(program, backend="cpp")(stepped[:, ::2]), want)


@pytest.mark.parametrize("function", [lambda x, y: torch.clamp(x, x, y), lambda x, y: x.clip(max=x, min=y)])
@pytest.mark.parametrize("shapes", [((), (3,)), ((3,), (2, 3))])
def test_refuses_gradients_of_bounds_that_eager_raises_on(function: Callable[..., Any], shapes: Any) -> None:
    inputs = [t(*shape) for shape in shapes]
    captured = graph_of(function, *inputs)
    try:
        want = torch.autograd.grad(function(*inputs).sum(), inputs)
    except RuntimeError as error:  # before PyTorch 2.14
        assert "doesn't match the broadcast shape" in str(error)  # noqa: PT017
        with pytest.raises(JointRefused, match="a bound of clamp requires grad, and the other bound has a larger"):
            trace_joint(captured.gm, captured.inputs, captured.compile)
    else:
        compiled = compiler_core.compile(function, backend="cpp", strict=True)
        torch.testing.assert_close(torch.autograd.grad(compiled(*inputs).sum(), inputs), want)
    fixed = [each.detach() for each in inputs]
    assert torch.equal(compiler_core.compile(function, backend="cpp", strict=True)(*fixed), function(*fixed))


def test_refuses_to_write_to_an_input_that_shares_memory() -> None:
    base, scale = t(4, grad=False), t(2)

    def trace(function: Callable[..., Any], *inputs: torch.Tensor) -> None:
        captured = graph_of(function, *inputs)
        trace_joint(captured.gm, captured.inputs, captured.compile)

    trace(lambda x, y: x.add_(1) + y, base[:2], base[2:])
    trace(lambda x, y, s: x.add_(1) + y * s, base[:2].clone(), base[2:], scale)
    for written in (base[1:3], base):
        with pytest.raises(JointRefused, match="shares memory with another input"):
            trace(lambda x, y: x.add_(1)[:2] + y, written, base[2:])
    with pytest.raises(JointRefused, match="shares memory with another input"):  # by their version
        trace(lambda x, y, s: x.add_(1) + y * s, base[:2], base[2:], scale)


BUFFER = torch.zeros(3)


def mixed(x: torch.Tensor, w: torch.Tensor) -> Any:
    before = x * w
    with torch.enable_grad():
        inside = before * w + (x * w).exp()
        with torch.no_grad():
            nested = inside * w
    return before, inside, nested * inside, x.view(-1), x * w


def writing(x: torch.Tensor, w: torch.Tensor) -> Any:
    BUFFER.add_(1)
    with torch.enable_grad():
        y = x.clone()
        y.mul_(w)
        BUFFER.copy_(x.detach() * 2)
    return y, BUFFER * 1


def argument_written(x: torch.Tensor, w: torch.Tensor) -> Any:
    with torch.enable_grad():
        x.mul_(w)
        return x[1:], x * 2


def continued(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = x * w
    with torch.no_grad():
        z = y * 2
        compiler_core.graph_break()
        z = z + w
    return y * z


@pytest.mark.parametrize(
    ("function", "mode"),
    pairs([mixed, writing, argument_written, continued], [torch.no_grad, torch.enable_grad, torch.inference_mode], 2),
)
def test_turns_gradients_on_inside_no_grad(function: Callable[..., Any], mode: Any) -> None:
    def run(call: Callable[..., Any]) -> Any:
        BUFFER.zero_()
        x, w = torch.arange(3.0) + 1, torch.arange(3.0).requires_grad_()
        with mode():
            results = tree_leaves(call(x, w))
        kinds = [(r.requires_grad, r.is_leaf, r.is_inference()) for r in results]
        if not any(r.requires_grad for r in results):
            return kinds, results, None, x, BUFFER
        total = sum((r * 1).sum() for r in results if r.requires_grad)
        (first,) = torch.autograd.grad(total, w, create_graph=function is mixed)
        (second,) = torch.autograd.grad(first.sum(), w) if function is mixed else (None,)
        return kinds, results, first, second, x, BUFFER

    torch.testing.assert_close(run(compiler_core.compile(function, strict=True)), run(function))


def test_grad_mode_is_restored_after_a_failure() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch._C._set_grad_enabled, (False,))
    graph.output((graph.call_function(torch.mm, (x, x)),))
    captured = prepare(fx.GraphModule({}, graph), [t(3)])
    with pytest.raises(JointRefused, match="cannot functionalize mm"):
        trace_joint(captured.gm, captured.inputs, captured.compile)
    assert torch.is_grad_enabled()


# ---- provenance ----------------------------------------------------------------------------


def test_every_node_leads_back_to_the_source() -> None:
    with compiled(nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.LayerNorm(4))) as result:
        result(t(2, 4)).sum().backward()
    record, compile_ = result.records[0], result.compiles[0]
    for pane in ("joint", "forward", "backward"):
        for node in compile_.find(pane).graph.nodes:  # type: ignore[union-attr]
            if node.op != "output":
                assert _lines(record, compile_.find(pane).item(node.key)), f"{pane} {node.key}"


def test_backward_nodes_come_from_the_call_that_caused_them() -> None:
    captured = capture(lambda x: torch.cos(torch.cos(x)), t(4))
    trace_joint(captured.gm, captured.inputs, captured.compile)
    edges = {e.made: e for e in captured.compile.edges}
    outer, inner = edges["0/0:joint#sin"], edges["0/0:joint#sin_1"]
    assert (outer.sources, outer.rule) == (["0/0:captured#cos_1"], "autograd CosBackward0")
    assert (inner.sources, inner.rule) == (["0/0:captured#cos"], "autograd CosBackward0")


def test_rules_name_the_decomposition() -> None:
    captured = capture(lambda x: F.layer_norm(x, (4,)).cos(), t(2, 4))
    trace_joint(captured.gm, captured.inputs, captured.compile)
    rules = {e.made.split("#")[1]: e.rule for e in captured.compile.edges}
    assert rules["cos"] == "trace"
    assert rules["rsqrt"] == "decompose aten.native_layer_norm.default"
    assert (rules["primals_1"], rules["tangents_1"]) == ("primal", "tangent")


def test_roles() -> None:
    captured = capture(lambda x, b: (b.add_(1), x.cos()), t(4), t(4, grad=False))
    trace_joint(captured.gm, captured.inputs, captured.compile)
    graph = captured.compile.find("joint").graph
    assert graph is not None
    roles = {n.key: n.role for n in graph.nodes if n.role}
    assert roles == {
        "primals_1": "primal", "primals_2": "primal", "tangents_1": "tangent",
        "cos": "output", "add": "mutation", "mul": "gradient",
    }  # fmt: skip


def _lines(record: Record, item: str) -> set[str]:
    return {i for i in record.linked(item) if i.startswith("src:")}


def test_a_gradient_of_zeros_is_one_where_autograd_has_an_edge() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2 + y.sign(), x.sign()

    compiled = compiler_core.compile(f, backend="aot_eager", strict=True)
    for wanted in ((0,), (1,), (0, 1)):
        found = []
        for function in (f, compiled):
            x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
            outputs = function(x, y)
            found.append(torch.autograd.grad([outputs[i].sum() for i in wanted], (x, y), allow_unused=True))
        for want, got in zip(*found, strict=True):
            assert (want is None) == (got is None)
            assert want is None or torch.equal(want, got)


def test_no_gradient_in_none_out() -> None:
    def half(x: torch.Tensor) -> torch.Tensor:
        return torch.where(x > 0, x, 0)

    compiled = compiler_core.compile(half, backend="aot_eager", strict=True)
    for function in (half, compiled):
        x = torch.ones(3, requires_grad=True)
        # PyTorch's formula for the norm of order 0 returns no gradient, not even zeros
        (gradient,) = torch.autograd.grad(torch.linalg.vector_norm(function(x), 0), x, allow_unused=True)
        assert gradient is None


# ---- in-place random draws, and writes that autograd does not see ---------------------------------


def draws_in_place(x: torch.Tensor) -> Any:
    y = x.clone()
    a = y.normal_().clone(), y.uniform_(-1, 1).clone(), y.bernoulli_(0.5).clone(), y.exponential_().clone()
    b = y.random_(0, 5).clone(), y.random_(5).clone(), y.random_(-3, 7).clone(), y.random_().clone()
    return *a, *b, y.log_normal_().clone(), y.cauchy_().clone(), y.geometric_(0.3)


def in_strict_mode(function: Callable[..., Any], *args: torch.Tensor, backend: str = "aot_eager") -> tuple[Any, Any]:
    """Returns the result under our own capture, with failures raised as errors, and the record."""
    torch.manual_seed(0)
    with compiler_core.record() as record:
        return compiler_core.compile(function, backend=backend, strict=True)(*args), record


def failures(record: Any) -> list[str]:
    return [failure.message for frame in record.frames for c in frame.compiles for failure in c.failures]


@pytest.mark.parametrize("backend", ["aot_eager", "cpp"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_draws_in_place(dtype: torch.dtype, backend: str) -> None:
    x = torch.zeros(5, 8, dtype=dtype)
    found, record = in_strict_mode(draws_in_place, x, backend=backend)
    torch.manual_seed(0)
    for ours, eager in zip(found, draws_in_place(x), strict=True):
        assert torch.equal(ours, eager)
    assert not failures(record)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8])
def test_draws_of_whole_numbers(dtype: torch.dtype) -> None:
    def function(x: torch.Tensor) -> Any:
        return x.clone().random_(3, 100), x.clone().random_(0, 2)

    x = torch.zeros(50, dtype=dtype)
    found, record = in_strict_mode(function, x)
    torch.manual_seed(0)
    for ours, eager in zip(found, function(x), strict=True):
        assert torch.equal(ours, eager)
    assert not failures(record)


def into_a_part(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, ::2].normal_()
    return y


def wide_range(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.int8).random_(-100, 100)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (into_a_part, "normal_ writes random numbers to a tensor with gaps"),
        (wide_range, "has a range for which Python cannot call"),
    ],
)
def test_refuses_draws_that_would_be_others(function: Callable[..., Any], why: str) -> None:
    x = torch.zeros(8, 8)
    with pytest.warns(RefusalWarning, match=why):
        found, record = in_strict_mode(function, x)
    torch.manual_seed(0)
    assert torch.equal(found, function(x))
    (message,) = failures(record)
    assert why in message


def test_writes_of_what_requires_grad_through_data() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.data.add_(y)
        return x * 2

    x, y = torch.ones(3), torch.ones(3, requires_grad=True)
    with pytest.warns(RefusalWarning, match="what requires grad to .data"):
        found, record = in_strict_mode(function, x, y)
    assert torch.equal(found, torch.full((3,), 4.0))
    assert torch.equal(x, torch.full((3,), 2.0))
    assert "what requires grad to .data" in failures(record)[0]


# ---- compared with PyTorch's joint graph ------------------------------------------------------


@pytest.mark.parametrize("name", sample(MODELS, 3))
def test_pytorchs_joint_graph_computes_the_same(name: str) -> None:
    """Matches inputs and outputs by PyTorch's descriptors; our graph has no more operations."""
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors

    torch.manual_seed(0)
    function, inputs = MODELS[name](16)
    if isinstance(function, nn.Module) and name == "transformer block":
        function.eval()  # PyTorch's graph draws other numbers than eager for its permuted scores
    captured = capture(function, *inputs)
    joint = trace_joint(captured.gm, captured.inputs, captured.compile)
    values = fresh(captured)
    with contextlib.ExitStack() as stack:
        exported = aot_export_joint_with_descriptors(
            stack, captured.gm, tuple(values), decompositions=decompositions.decomposition_table()
        ).graph_module
    tangents = [torch.randn(at.shape) for at in joint.layouts]
    named = {f"PlainAOTInput(idx={i})": v.detach() for i, v in enumerate(values)}
    named |= {f"TangentAOTInput(output=PlainAOTOutput(idx={i}))": v for i, v in enumerate(tangents)}
    placeholders = exported.graph.find_nodes(op="placeholder")
    with torch.no_grad():
        torch.manual_seed(1)
        ours = joint.gm(*[v.detach() for v in values], *tangents)
        torch.manual_seed(1)
        given = [named[str(n.meta["desc"])] for n in placeholders]
        expected = fx.Interpreter(exported).run(*given, enable_io_processing=False)
    found = dict(zip(_descriptions(joint), ours, strict=True))
    wanted = dict(zip(map(str, exported.graph.output_node().meta["desc"]), expected, strict=True))
    assert {k for k, v in found.items() if v is not None} == {k for k, v in wanted.items() if v is not None}
    for key, value in wanted.items():
        if value is not None:
            torch.testing.assert_close(found[key], value, rtol=1e-5, atol=1e-5)
    assert len(joint.gm.graph.nodes) <= len(exported.graph.nodes)


def _descriptions(joint: JointGraph) -> list[str]:
    """Returns PyTorch's descriptions of the outputs of a joint graph that returns no inputs and no views."""
    mutations = {m.output: m.primal for m in joint.mutations}
    assert [(r.base, r.index, r.views) for r in joint.returns] == [
        ("output", i, ()) for i in range(len(joint.outputs)) if i not in mutations
    ]
    forward = [
        f"InputMutationAOTOutput(mutated_input=PlainAOTInput(idx={mutations[i]}))"
        if i in mutations
        else f"PlainAOTOutput(idx={i})"
        for i in range(len(joint.outputs))
    ]
    return forward + [f"GradAOTOutput(grad_of=PlainAOTInput(idx={i}))" for i in range(len(joint.primals))]


def test_running_statistics_are_no_outputs_of_the_autograd_function() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8))
    with compiler_core.record() as record:
        compiler_core.compile(model, strict=True)(torch.randn(5, 4)).sum().backward()
    (text,) = (a.text for c in record.compiles for a in c.artifacts if "class Compiled(" in a.text)
    forward = text.partition("def forward(")[2].partition("def backward(")[0]
    assert "_foreach_copy_" in forward
    assert re.search(r"return \((\w+),\)\n", forward), "the result alone"
    assert model[1].num_batches_tracked == 1


def test_kernels_are_asked_which_dtypes_they_take() -> None:
    """On GPUs, and in other versions of PyTorch, these are others."""
    single, double = torch.ones(3), torch.ones(3, dtype=torch.float64)
    assert decompositions._kernel_takes(torch.ops.aten.mse_loss.default, (single, double, 1))
    assert not decompositions._kernel_takes(torch.ops.aten.huber_loss.default, (single.long(), double, 1, 1.0))
    assert not decompositions._kernel_takes(
        torch.ops.aten.huber_loss_backward.default, (single, single, double, 1, 1.0)
    )


def test_a_kernel_of_a_device_that_is_not_here_is_that_of_the_cpu() -> None:
    """As when a graph is compiled for a GPU on a machine without one."""
    kinds = [(dtype, 1, "xpu") for dtype in (torch.float32, torch.float64)]
    assert decompositions._takes_small(torch.ops.aten.mse_loss.default, *kinds, 1)
