"""Backends by name, what happens when one fails, and the generated code around forward and backward."""

from __future__ import annotations

import contextlib
import copy
import random
import re
import traceback
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.fx as fx
import torch.nn.functional as F
from torch import nn
from torch._dynamo.backends.debugging import aot_eager
from torch._dynamo.symbolic_convert import TensorifyState
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._functorch.aot_autograd import aot_module_simplified

import compiler_core
from compiler_core.autograd.autograd_function import match_layout, share_memory
from compiler_core.backends import registry as backends
from compiler_core.config import Options
from compiler_core.errors import BackendError, CompilerBug, CompileWarning, ToolWarning, UsageError
from compiler_core.pipeline.graph import compile_graph
from tests.cases.captured import Captured, capture, compiled, same_as_eager
from tests.sampling import pairs


def t(*shape: int, grad: bool = True) -> torch.Tensor:
    return torch.randn(shape, requires_grad=grad)


def compile_captured(captured: Captured, **options: Any) -> Callable[..., Any]:
    return compile_graph(captured.gm, captured.inputs, captured.compile, Options(**options))


# ---- names ---------------------------------------------------------------------------------


def test_names() -> None:
    assert backends.backend_names() == ["aot_eager", "cpp", "eager", "inductor", "triton"]


def test_an_unknown_name_lists_the_names() -> None:
    captured = capture(lambda x: x.cos(), t(4))
    with pytest.raises(
        UsageError, match="unknown backend 'cp'; the backends are aot_eager, cpp, eager, inductor, triton"
    ):
        compile_captured(captured, backend="cp")


def test_the_default_for_cpu_tensors_is_cpp() -> None:
    captured = capture(lambda x: x.cos(), t(4))
    compile_captured(captured)
    assert captured.compile.backend == "cpp"


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "cpp"])
def test_backend_equals_eager(backend: str) -> None:
    result = same_as_eager(
        nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Tanh(), nn.Dropout()), t(3, 4), backend=backend
    )
    assert result.compiles[0].backend == backend


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_inductor_equals_eager() -> None:
    # Inductor needs no kernel for a matrix product, so no C++ compiler runs, which would take seconds
    result = same_as_eager(lambda x, w: x @ w, t(3, 4), t(4, 2), backend="inductor")
    assert [(e.stage, e.outcome) for e in result.compiles[0].events] == [("backend", "ok")]


def test_any_callable_is_a_backend() -> None:
    def own_backend(gm: fx.GraphModule, examples: Sequence[torch.Tensor]) -> Callable[..., Any]:
        log.append((gm, examples))
        gm.graph.erase_node(gm.graph.output_node())  # a backend may modify its graph
        return lambda x: [x.detach() * 2]

    log: list[Any] = []
    with compiled(lambda x: x.cos(), own_backend) as result:
        torch.testing.assert_close(result(torch.ones(3)), torch.full((3,), 2.0))
    assert result.compiles[0].backend == "own_backend"
    assert [tuple(e.shape) for e in log[0][1]] == [(3,)]


# ---- failures ------------------------------------------------------------------------------


def broken(gm: fx.GraphModule, examples: Sequence[torch.Tensor], *_: Any) -> Callable[..., Any]:
    raise ZeroDivisionError("by design")


@pytest.fixture
def broken_name(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a backend of ours that fails."""
    monkeypatch.setitem(backends._EXTERNAL, "broken", broken)
    return "broken"


def test_a_failure_is_recorded_and_the_graph_runs_eagerly(broken_name: str) -> None:
    with compiled(lambda x: x.cos(), broken_name) as result:
        x = t(3)
        with pytest.warns(CompileWarning, match="in the stage backend: ZeroDivisionError: by design"):
            assert torch.equal(result(x), x.cos())
    (failure,) = result.compiles[0].failures
    assert (failure.stage, failure.message) == ("backend", "ZeroDivisionError: by design")
    assert "in broken" in failure.detail


def without_a_function(gm: fx.GraphModule, examples: Sequence[torch.Tensor]) -> Any:
    return None


@pytest.mark.parametrize(
    ("backend", "cause", "message"),
    [
        (broken, ZeroDivisionError, "backend='broken' raised ZeroDivisionError: by design"),
        (without_a_function, TypeError, "it returned NoneType, not a function of the graph's inputs"),
    ],
)
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("frames", ["one", "after a break"])
def test_what_a_backend_of_the_user_raises_is_raised(
    backend: Any, cause: type[Exception], message: str, strict: bool, frames: str
) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        if frames != "one":
            compiler_core.graph_break()
        return x.cos()

    with compiler_core.record() as record:
        fast = compiler_core.compile(program, backend=backend, strict=strict)
        for _ in range(2):
            with pytest.raises(BackendError, match=re.escape(message)) as raised:
                fast(t(3))
            assert type(raised.value.__cause__) is cause
    assert {(f.kind, f.stage) for c in record.compiles for f in c.failures} == {("backend", "backend")}
    (problem,) = [p for p in record.problems if p.kind == "failure"]
    assert (problem.title, problem.grade, problem.count) == ("the backend raised", "blocking", 2)
    assert problem.cause.startswith(f"backend='{backend.__name__}' raised {cause.__name__}: ")


@pytest.mark.parametrize("make", [torch.compile, compiler_core.compile])
def test_suppress_errors_hides_what_a_backend_raises_but_not_under_fullgraph(make: Any) -> None:
    with torch._dynamo.config.patch(suppress_errors=True), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        torch._dynamo.reset()
        x = t(3)
        assert torch.equal(make(lambda x: x.cos(), backend=broken)(x), x.cos())
        with pytest.raises(Exception, match="by design"):
            make(lambda x: x.sin(), backend=broken, fullgraph=True)(x)
    of_core = [str(each.message) for each in warned if each.category is CompileWarning]
    assert len(of_core) == (make is compiler_core.compile)
    assert all("suppress_errors is set" in text for text in of_core)


def test_random_numbers_that_a_backend_draws_are_not_the_programs() -> None:
    def draws(gm: fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        random.random()
        torch.rand(2)
        return gm.forward

    states = random.getstate(), torch.get_rng_state()
    compiler_core.compile(lambda x: x * 2, backend=draws, strict=True)(torch.ones(3))
    assert random.getstate() == states[0]
    assert torch.equal(torch.get_rng_state(), states[1])


def test_what_the_result_of_a_backend_raises_is_raised_as_it_is() -> None:
    """The frame does not run again: what it has printed and written is there once."""
    error, runs, seen = ArithmeticError("made wrong"), [], []

    def failing(gm: fx.GraphModule, examples: Sequence[torch.Tensor]) -> Any:
        def run(*inputs: torch.Tensor) -> Any:
            runs.append(gm(*inputs))
            raise error

        return run

    def program(x: torch.Tensor) -> torch.Tensor:
        seen.append(1)
        try:
            return x.mul_(2).cos()
        except ArithmeticError:
            return x

    x = torch.ones(3)
    with compiler_core.record() as record:
        fast = compiler_core.compile(program, backend=failing)
        for _ in range(2):
            with pytest.raises(ArithmeticError) as raised:
                fast(x)
            assert raised.value is error
    assert (len(runs), len(seen), x.tolist()) == (2, 0, [4, 4, 4])
    (failure,) = [f for c in record.compiles for f in c.failures]
    assert (failure.kind, failure.stage) == ("backend", "run")
    assert record.problems[0].title == "the backend's result raised"


@pytest.mark.parametrize("result", [lambda gm: gm, lambda gm: gm.forward])
def test_what_the_graph_raises_is_the_programs(result: Any) -> None:
    """A backend that only looks at the graph returns it: its operations raise where the program does."""

    def program(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        try:
            return x.sin()[i]
        except IndexError:
            return x - 1

    fast = compiler_core.compile(program, backend=lambda gm, examples: result(gm), strict=True)
    for i in (1, 7):
        assert torch.equal(fast(torch.ones(3), torch.tensor([i])), program(torch.ones(3), torch.tensor([i])))


def test_hooks_on_the_graph_of_a_backend_run() -> None:
    calls: list[str] = []

    def hooked(gm: fx.GraphModule, examples: Sequence[torch.Tensor]) -> Any:
        gm.register_forward_hook(lambda *_: calls.append("hook"))
        return gm

    def replaced(gm: fx.GraphModule, examples: Sequence[torch.Tensor]) -> Any:
        forward = gm.forward

        def counted(*args: torch.Tensor) -> Any:
            calls.append("forward")
            return forward(*args)

        gm.forward = counted
        return gm.forward

    for backend in (hooked, replaced):
        assert torch.equal(compiler_core.compile(torch.cos, backend=backend)(torch.ones(3)), torch.ones(3).cos())
    assert calls == ["hook", "forward"]


def test_a_failure_names_its_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("compiler_core.autograd.partition.minimum_cut", fail)
    with compiled(lambda x: x.cos()) as result, pytest.warns(CompileWarning, match="in the stage partition"):
        result(t(3)).sum().backward()
    assert result.compiles[0].failures[0].stage == "partition"


def test_strict_raises_the_failure(broken_name: str) -> None:
    captured = capture(lambda x: x.cos(), t(3))
    with pytest.raises(CompilerBug, match="failed in backend: ZeroDivisionError: by design"):
        compile_captured(captured, backend=broken_name, strict=True)


def test_an_interrupt_is_raised() -> None:
    def interrupted(gm: fx.GraphModule, examples: Sequence[torch.Tensor]) -> Callable[..., Any]:
        raise KeyboardInterrupt

    captured = capture(lambda x: x.cos(), t(3))
    with pytest.raises(KeyboardInterrupt):
        compile_captured(captured, backend=interrupted)
    assert captured.compile.events[-1].outcome == "failed"
    assert captured.compile.failures == []


def test_without_a_compiler_the_graph_runs_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    captured = capture(lambda x: (x * 3.25).cos(), t(7))
    with pytest.warns(ToolWarning, match="install one"):
        call = compile_captured(captured, backend="cpp", strict=True)
    x = torch.randn(7)
    assert torch.equal(call(x)[0], (x * 3.25).cos())
    (failure,) = captured.compile.failures
    assert failure.stage == "build"


# ---- the autograd function ---------------------------------------------------------------------


def test_the_wrapper_reads_well() -> None:
    with compiled(lambda x: x.cos().cos()) as result:
        result(t(4))
    assert (
        result.text("autograd")
        == '''\
class Compiled(torch.autograd.Function):
    """Saves 1 tensor, 16 bytes: primals_1."""

    @staticmethod
    def forward(ctx, primals_1):
        ctx.primals = (primals_1,)
        try:
            ctx.versions = (primals_1._version,)
        except RuntimeError:  # inference tensors have no version
            ctx.versions = ()
        with below_autograd():
            cos_1, primals_1 = forward_graph([primals_1])
        ctx.to_save = (primals_1,)
        ctx.saved_kinds = tensor_kinds((primals_1,)) if saved_tensors_hooks(True) else None
        ctx.materialize_grads = False
        return (cos_1,)

    @staticmethod
    def backward(ctx, tangents_1):
        if tangents_1 is None:
            return (None,)
        create_graph = is_grad_enabled()
        if create_graph and inputs_unchanged(ctx):
            return double_backward.gradients(ctx, (tangents_1,))
        if is_anomaly_enabled() and inputs_unchanged(ctx):
            return double_backward.anomaly_gradients(ctx, (tangents_1,))
        try:
            if type(tangents_1) is not Tensor:
                tangents_1 = as_plain(tangents_1)
            if not tangents_1.is_contiguous():
                tangents_1 = match_layout(tangents_1, (4,), (1,), torch.float32, 'cpu')
        except RuntimeError:  # a sparse tensor, or one of a class with its own kernels
            if (gradients := double_backward.gradients_without_kernels(ctx, (tangents_1,))) is not None:
                return gradients
            tangents_1 = match_layout(as_dense(tangents_1), (4,), (1,), torch.float32, 'cpu')
        inputs = [*ctx.saved_tensors, tangents_1]
        if not (create_graph or graph_is_retained()):  # free what was saved as early as possible
            ctx.maybe_clear_saved_tensors()
            ctx.primals = None
        same_kinds = ctx.saved_kinds is None or ctx.saved_kinds == tensor_kinds(inputs[:1])
        run = backward_graph if same_kinds and type(tangents_1) is Tensor and has_memory(tangents_1) else eager_backward
        with below_autograd():
            gradient_1, = run(inputs)
        if create_graph:  # an input was written to
            return double_backward.once_differentiable(ctx, (gradient_1,))
        return (gradient_1,)


apply = super(torch.autograd.Function, Compiled).apply  # skips what only functorch needs


class CompiledBackward(Compiled._backward_cls):
    __slots__ = ['primals', 'versions', 'saved_kinds']
    apply = Compiled.backward  # skips the choice between backward and vjp


Compiled._backward_cls = CompiledBackward


def call(primals_1):
    if forward_ad._current_level >= 0:  # kernels do not compute forward-mode tangents
        return run_eagerly(primals_1)
    cos_1, = (Compiled.apply if transforms_are_active() else apply)(primals_1)
    return (cos_1,)
'''
    )
    links = {e.made: e.sources for e in result.compiles[0].edges}
    assert links["0/0:autograd#saved"] == ["0/0:forward#primals_1"]


def test_a_wrapper_of_few_kernels_is_inlined() -> None:
    x = t(5, 7)
    for _ in range(2):  # compiled, then read from disk
        with compiled(lambda x: x.softmax(1), "cpp") as result:
            found, expected = result(x), x.softmax(1)
        torch.testing.assert_close(found, expected)
        gradients = (torch.autograd.grad(y.cos().sum(), x) for y in (found, expected))
        torch.testing.assert_close(*gradients)
        text = result.text("autograd")
        (span,) = (s for s in result.compiles[0].find("autograd").spans if s.key == "forward")
        lines = text.splitlines()[span.first - 1 : span.last]
        assert [line.strip() for line in lines] == ["div = empty((5, 7), (7, 1), f32)", "forward_0(primals_1, div)"]
        assert "_graph(" not in text


def test_a_wrapper_of_many_statements_is_a_function() -> None:
    def program(x: torch.Tensor) -> list[torch.Tensor]:
        results = []
        for n in range(17):
            x = (x * n + 1).sum(0, keepdim=True) + x.cumsum(1)
            results.append(x)
        return results

    x = t(5, 7, grad=False)
    with compiled(program, "cpp") as result:
        torch.testing.assert_close(result(x), program(x))
    assert "forward_graph([primals_1])" in result.text("autograd")


def test_backward_twice() -> None:
    with compiled(lambda x: x.cos().cos()) as result:
        x = t(4)
        y = result(x).sum()
        y.backward(retain_graph=True)
        once = x.grad
        assert once is not None
        once = once.clone()
        y.backward()
        torch.testing.assert_close(x.grad, 2 * once)
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            y.backward()


def gradient_penalty(call: Callable[..., Any], x: torch.Tensor) -> Any:
    (gradient,) = torch.autograd.grad(call(x).sum(), x, create_graph=True)
    penalty = (gradient.norm(2, dim=1) - 1).square().mean()
    return [gradient, *torch.autograd.grad(penalty, x, allow_unused=True)]


def hessian_vector_product(call: Callable[..., Any], x: torch.Tensor) -> Any:
    return torch.autograd.functional.hvp(lambda x: call(x).sum(), x.detach(), torch.ones_like(x))


def hessian(call: Callable[..., Any], x: torch.Tensor) -> Any:
    return [torch.autograd.functional.hessian(lambda x: call(x).square().sum(), x.detach())]


def third_derivative(call: Callable[..., Any], x: torch.Tensor) -> Any:
    y = call(x).sum()
    for _ in range(3):
        (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return [y]


def of_parameters(call: Callable[..., Any], x: torch.Tensor) -> Any:
    (gradient,) = torch.autograd.grad(call(x).sum(), x, create_graph=True)
    gradient.square().sum().backward()
    return [x.grad]


def through_one_output(call: Callable[..., Any], x: torch.Tensor) -> Any:
    y = call(x)
    first = torch.autograd.grad(y[:, 0].sum(), x, create_graph=True)
    second = torch.autograd.grad(y[:, 1].exp().sum(), x, create_graph=True)
    return torch.autograd.grad((first[0] * second[0]).sum(), x)


def flat(result: Any) -> list[torch.Tensor]:
    return [t for r in result for t in (flat(r) if isinstance(r, (tuple, list)) else [r])]


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch.compile reads it
@pytest.mark.parametrize(
    ("use", "backend"),
    pairs(
        [gradient_penalty, hessian_vector_product, hessian, third_derivative, of_parameters, through_one_output],
        ["aot_eager", "cpp"],
        2,
    ),
)
def test_gradients_of_gradients_equal_eager(use: Callable[..., Any], backend: str) -> None:
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2), nn.Tanh()).double()
    x = torch.randn(4, 3, dtype=torch.float64)
    expected = flat(use(net, x.clone().requires_grad_()))
    weights = [p.grad for p in net.parameters()]
    net.zero_grad()
    with compiled(net, backend) as result:
        found = flat(use(result, x.clone().requires_grad_()))
    torch.testing.assert_close(found, expected)
    for parameter, weight in zip(net.parameters(), weights, strict=True):
        assert (parameter.grad is None) == (weight is None)
        if weight is not None:
            torch.testing.assert_close(parameter.grad, weight)
    assert not result.compiles[0].failures
    assert [e.name for e in result.compiles[0].events if e.stage == "run"] == ["create_graph=True"]


def test_gradgradcheck() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = x * 2
        z.mul_(y.tanh())
        return z.t(), (x * y).sin().sum(0), y.cos()

    inputs = [torch.randn(2, 3, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    with compiled(function) as result:
        assert torch.autograd.gradcheck(result, inputs)
        assert torch.autograd.gradgradcheck(result, inputs)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch.compile reads it
def test_gradients_flow_to_the_producers_of_inputs() -> None:
    def use(call: Callable[..., Any]) -> Any:
        x = start.clone().requires_grad_()
        h = x.exp()
        (gradient,) = torch.autograd.grad(call(h, h.sin()).sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.sum(), x)[0]

    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a * b).sin()

    start = t(4, grad=False)
    with compiled(function) as result:
        torch.testing.assert_close(use(result), use(function))


def draws(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x.cos(), 0.5)


def attends(x: torch.Tensor) -> torch.Tensor:
    rows = x.cos()[:, None] * x
    return F.scaled_dot_product_attention(rows, rows, rows, dropout_p=0.5)


def attends_with_heads(x: torch.Tensor) -> torch.Tensor:
    rows, w = (x.cos()[:, None] * x)[None], torch.ones(12, 4)
    out = F.multi_head_attention_forward(rows, rows, rows, 4, 2, w, None, None, None, False, 0.5, w[:4], None)[0]
    assert out is not None
    return out


def pools(x: torch.Tensor) -> torch.Tensor:
    return F.fractional_max_pool2d((x.cos()[:, None] * x)[None], 2, output_size=2)


def writes(x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    seen.add_(1)
    return x.cos() * seen


@pytest.mark.parametrize(
    ("function", "others", "why"),
    [
        *((f, (), "draws random numbers") for f in (draws, attends, attends_with_heads, pools)),
        (writes, (torch.zeros(4),), "writes to its"),
    ],
)
def test_double_backward_refusals(function: Callable[..., Any], others: Any, why: str) -> None:
    with compiled(function) as result:
        x = t(4)
        (gradient,) = torch.autograd.grad(result(x, *others).sum(), x, create_graph=True)
        assert gradient.requires_grad
        for allow_unused in (False, True):
            with pytest.raises(RuntimeError, match=f"cannot be differentiated again: the graph {why}"):
                torch.autograd.grad(gradient.sum(), x, allow_unused=allow_unused, retain_graph=True)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.dropout(x.sin() * x, 0.5, training=False),
        lambda x: F.dropout(x.sin() * x, 0.0),
        lambda x: F.alpha_dropout(input=x.sin() * x, p=0.5),
        lambda x: F.rrelu(x.sin() * x),
        lambda x: F.scaled_dot_product_attention(query=x[None], key=x[None], value=x.sin()[None], dropout_p=0.0),
    ],
)
def test_double_backward_where_nothing_is_drawn(function: Callable[..., Any]) -> None:
    x = t(4)
    found = []
    with compiled(function) as result:
        for call in (function, result):
            (gradient,) = torch.autograd.grad(call(x).sum(), x, create_graph=True)
            found.append(torch.autograd.grad(gradient.square().sum(), x)[0])
    torch.testing.assert_close(*found)


def test_double_backward_of_a_modified_input_is_refused() -> None:
    def use(call: Callable[..., Any], function: Callable[..., Any]) -> torch.Tensor:
        x, w = start.clone().requires_grad_(), torch.ones(4)
        y = call(x, w).sum()
        w.mul_(3)
        (gradient,) = torch.autograd.grad(y, x, create_graph=True)
        function(gradient, x)
        return gradient

    def again(gradient: torch.Tensor, x: torch.Tensor) -> None:
        with pytest.raises(RuntimeError, match="an input was written to since"):
            torch.autograd.grad(gradient.sum(), x, allow_unused=True)

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x.cos() + w

    start = t(4, grad=False)
    with compiled(function) as result:
        torch.testing.assert_close(use(result, again), use(function, lambda *_: None))


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch.compile reads it
def test_an_input_that_the_graph_writes_to_and_that_has_a_gradient() -> None:
    def function(z: torch.Tensor) -> torch.Tensor:
        z.mul_(2)
        return z.cos()

    with compiled(function) as result:
        x = t(4)
        y = result(x * 1).sum()
        with pytest.raises(RuntimeError, match="cannot be differentiated again: the graph writes to its inputs"):
            torch.autograd.grad(y, x, create_graph=True)


def test_inputs_live_as_long_as_saved_tensors() -> None:
    with compiled(lambda x, w: x * 2 + w) as result:
        x, w = t(4), torch.ones(4)
        kept = weakref.ref(w)
        y = result(x, w)
        del w
        assert kept() is not None
        y.sum().backward()
        assert kept() is None


def three(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
    return x * y, y * z, (z * 2).t()


@pytest.mark.parametrize("used", [(0,), (1,), (2,), (0, 2), (0, 1, 2)])
def test_unused_outputs_have_no_gradient(used: tuple[int, ...]) -> None:
    def gradients(call: Callable[..., Any]) -> list[torch.Tensor | None]:
        inputs = [a.detach().requires_grad_() for a in args]
        outputs = call(*inputs)
        torch.stack([outputs[i].exp().sum() for i in used]).sum().backward()
        return [i.grad for i in inputs]

    args = [t(2, 3) for _ in range(3)]
    with compiled(three) as result:
        for ours, eager in zip(gradients(result), gradients(three), strict=True):
            assert (ours is None) == (eager is None)
            if eager is not None:
                torch.testing.assert_close(ours, eager)


def test_tangents_of_another_layout() -> None:
    def gradient(call: Callable[..., Any], spread: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor | None:
        x = start.detach().requires_grad_()
        spread(call(x)).backward()
        return x.grad

    start = t(3, 4)
    spreads: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda y: y.sum(),
        lambda y: (y.t().contiguous().exp()).sum(),
        lambda y: (y * torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).t()).sum(),
    ]
    with compiled(lambda x: (x @ x.t()) @ x.sin(), "cpp") as result:
        for spread in spreads:
            torch.testing.assert_close(gradient(result, spread), gradient(lambda x: (x @ x.t()) @ x.sin(), spread))


@pytest.mark.parametrize("backend", ["aot_eager", "cpp"])
def test_outputs_can_be_modified(backend: str) -> None:
    """They are not views created in a custom function, which PyTorch protects from modification."""

    def both(call: Callable[..., Any]) -> tuple[torch.Tensor, torch.Tensor | None]:
        x = start.detach().requires_grad_()
        outputs = call(x)
        for output in outputs:
            output.mul_(2)
        torch.stack([o.sum() for o in outputs]).sum().backward()
        return outputs[0], x.grad

    def function(x: torch.Tensor) -> Any:
        return (x @ x).t(), nn.functional.linear(x[None], x), x.sin()[1:]

    start = t(3, 3)
    with compiled(function, backend) as result:
        for ours, eager in zip(both(result), both(function), strict=True):
            torch.testing.assert_close(ours, eager)


def test_inputs_that_share_memory_run_eagerly() -> None:
    def function(b: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        b.add_(1)
        return b * x

    captured = capture(function, t(4, grad=False), t(4, grad=False))
    call = compile_captured(captured, backend="aot_eager")
    assert "if share_elements((primals_1,), (primals_2,)):" in captured.compile.find("autograd").text
    x = torch.ones(4)
    torch.testing.assert_close(call(x, x)[0], torch.full((4,), 4.0))


def test_share_memory() -> None:
    a, b = torch.ones(4), torch.ones(4)
    assert share_memory([a], [b, a[1:]])
    assert share_memory([a, a.view(2, 2)], [])
    assert not share_memory([a], [b])


def part(of: torch.Tensor, start: int, *strides: int) -> torch.Tensor:
    """Returns two elements a dimension of the tensor's storage, which are no view for autograd."""
    return torch.empty(0).set_(of.untyped_storage(), start, [2] * len(strides), strides)


def test_parts_of_a_storage_that_are_apart_share_no_memory() -> None:
    a = torch.ones(8)
    first, second, rows, even, odd = part(a, 0, 1), part(a, 2, 1), part(a, 4, 2, 1), part(a, 0, 2), part(a, 1, 2)
    assert not share_memory([first, rows], [second])
    assert not share_memory([second], [first, first, rows])
    assert not share_memory([first], [part(a, 0, 1)[:0].detach(), torch.ones(2)[:0]])
    assert share_memory([even], [odd]), "their elements take turns"
    assert share_memory([first], [second, part(a, 1, 1)])
    assert share_memory([second, first, part(a, 2, 1)], [])
    assert share_memory([a[:2]], [a[2:]]), "views share their version"
    assert not share_memory([a[:2]], [a[2:]], has_backward=False)
    assert share_memory([a[:2]], [a], has_backward=False)
    assert share_memory([a[::2]], [a[1::2]], has_backward=False)


def flattened(model: nn.Module) -> nn.Module:
    """Puts the parameters into one storage, as those of recurrent layers on a GPU are."""
    parameters = list(model.parameters())
    together = torch.cat([p.detach().flatten() for p in parameters])
    for p, own in zip(parameters, together.split([p.numel() for p in parameters]), strict=True):
        p.data = own.view_as(p)
    return model


@pytest.mark.parametrize(
    ("layer", "first"), pairs([lambda: nn.GRU(3, 3), lambda: nn.Linear(3, 3)], ["apart", "flat"], 2)
)
def test_a_training_step_of_flat_parameters_is_compiled(layer: Any, first: str) -> None:
    """Whether they were flat when it was compiled or become so."""

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        y = model(x)
        loss: torch.Tensor = (y[0] if isinstance(y, tuple) else y).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    torch.manual_seed(0)
    model = layer()
    other = copy.deepcopy(model)
    models = [flattened(m) if first == "flat" else m for m in (model, other)]
    optimizers = [torch.optim.Adam(m.parameters(), 0.1) for m in models]
    with compiler_core.record() as record:
        fast = compiler_core.compile(step, capture_backward=True, strict=True)
        for number in range(6):
            x = torch.randn(4, 2, 3)
            if number == 3:
                for m in models:
                    flattened(m)
            losses = [run(m, o, x) for run, m, o in zip((fast, step), models, optimizers, strict=True)]
            torch.testing.assert_close(*losses)
    torch.testing.assert_close(list(model.parameters()), list(other.parameters()))
    assert not [f.message for c in record.compiles for f in c.failures]
    assert len(record.compiles) == 1


def attend(q: torch.Tensor, k: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, at: torch.Tensor) -> Any:
    keys.index_copy_(1, at, k)
    values[:, at] = k.sin()
    return F.scaled_dot_product_attention(q, keys, values)


@pytest.mark.parametrize("first", ["apart", "views"])
def test_caches_that_are_views_of_one_tensor_are_written_to(first: str) -> None:
    """Where both are one part, the call runs eagerly."""
    caches = [torch.zeros(3, 2, 8, 4) for _ in range(2)]
    with compiler_core.record() as record, torch.no_grad():
        fast = compiler_core.compile(attend, strict=True)
        if first == "apart":
            fast(
                torch.randn(2, 1, 4), torch.randn(2, 1, 4), *torch.zeros(2, 2, 8, 4).clone().unbind(), torch.tensor([0])
            )
        for number in range(4):
            q, k, at = torch.randn(2, 1, 4), torch.randn(2, 1, 4), torch.tensor([number])
            found = [run(q, k, c[0], c[2], at) for run, c in zip((fast, attend), caches, strict=True)]
            torch.testing.assert_close(*found)
            torch.testing.assert_close(*caches)
            assert caches[0]._version == caches[1]._version
        found = [run(q, k, c[0], c[0].view(2, 8, 4), at) for run, c in zip((fast, attend), caches, strict=True)]
        torch.testing.assert_close(*found)
    torch.testing.assert_close(*caches)
    assert not [f.message for c in record.compiles for f in c.failures]
    assert len(record.compiles) == 1


def test_views_are_apart_where_something_is_saved_for_a_backward_only_if_eager_says_so() -> None:
    """Their version tells eager's autograd of a write to any of them."""

    def function(x: torch.Tensor, saved: torch.Tensor, written: torch.Tensor) -> torch.Tensor:
        y = x * saved
        written.add_(1)
        return y

    for run in (function, compiler_core.compile(function)):
        memory, x = torch.ones(4), torch.ones(2, requires_grad=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", compiler_core.RefusalWarning)
            y = run(x, memory[:2], memory[2:])
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


@pytest.mark.parametrize("apart", [False, True])
def test_a_tensor_that_is_read_beyond_its_end(apart: bool) -> None:
    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        b.add_(1)
        return a.as_strided((4,), (1,)) * 1

    memory = torch.arange(4.0)
    first = [torch.arange(9.0)[:2], torch.zeros(2)] if apart else [part(memory, 0, 1), part(memory, 2, 1)]
    compiled_function = compiler_core.compile(function)
    with contextlib.nullcontext() if apart else pytest.warns(compiler_core.RefusalWarning, match="shares memory"):
        compiled_function(*first)
    memory = torch.arange(4.0)
    found = compiled_function(part(memory, 0, 1), part(memory, 2, 1))
    torch.testing.assert_close(found, torch.tensor([0.0, 1, 3, 4]))


def test_match_layout() -> None:
    x = torch.randn(3, 4)
    other = match_layout(x, (3, 4), (1, 3), torch.float32, "cpu")
    assert other.stride() == (1, 3)
    assert torch.equal(other, x)
    assert torch.equal(match_layout(None, (2,), (1,), torch.float64, "cpu"), torch.zeros(2, dtype=torch.float64))


def test_modifying_an_output_that_backward_does_not_read() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = nn.functional.linear(x, w)
        return y, y.exp().sin()

    x, w = t(1, 2, 3), t(4, 3)
    gradients = []
    with compiled(program) as result:
        for run in (program, result):
            y, z = run(x, w)
            y.detach().mul_(2)
            gradients.append(torch.autograd.grad(z.sum(), [x, w]))
    torch.testing.assert_close(gradients[1], gradients[0])


def test_modifying_an_output_that_backward_reads_raises() -> None:
    with compiled(lambda x, w: (lambda y: (y, y.sin()))(nn.functional.linear(x, w))) as result:
        y, z = result(t(1, 2, 3), t(4, 3))
        y.detach().mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()
    assert "mm = _unsafe_view.detach().as_strided(" in result.text("autograd")


@pytest.mark.parametrize("backend", ["aot_eager", "cpp"])
def test_modifying_an_input_that_backward_reads_raises(backend: str) -> None:
    with compiled(lambda x: x.cos().cos(), backend) as result:
        x = t(4)
        y = result(x)
        x.detach().mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_tracebacks_show_generated_source() -> None:
    captured = capture(lambda x: x.cos(), t(3))
    call = compile_captured(captured, backend="aot_eager")
    with pytest.raises(RuntimeError) as caught:
        call(torch.ones(3).to_sparse())
    assert "forward_graph([primals_1])" in "".join(traceback.format_exception(caught.value))


# ---- one backward after another ------------------------------------------------------------


def two_losses(x: torch.Tensor, u: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Eager has a separate autograd node for each output; here one compiled node has both."""
    return (x * u).sin().sum(), (x * v).cos().sum()


def test_backward_of_outputs_one_by_one() -> None:
    x, u, v = t(5, grad=False), t(5), t(5)
    with compiled(two_losses, "cpp") as result:
        first, second = result(x, u, v)
        first.backward()
        assert v.grad is None
        with torch.no_grad():
            u.mul_(2)  # an optimiser's step; the second gradient does not read u
        second.backward()
    torch.testing.assert_close(v.grad, -(x * v).sin() * x)


def test_a_saved_tensor_modified_in_between_raises() -> None:
    x, u, v = t(5), t(5), t(5)  # x has a gradient too, so eager saves v
    with compiled(two_losses, "cpp") as result:
        first, second = result(x, u, v)
        first.backward()
        with torch.no_grad():
            v.mul_(2)
        with pytest.raises(RuntimeError, match=r"\[torch.FloatTensor \[5\]\] is at version 1; expected version 0"):
            second.backward()


def test_backward_of_the_same_output_twice_raises() -> None:
    x, u, v = t(5, grad=False), t(5), t(5)
    with compiled(two_losses, "cpp") as result:
        first, second = result(x, u, v)
        first.backward()
        with pytest.raises(RuntimeError, match="second time"):
            first.backward()
        second.backward(retain_graph=True)
        second.backward()
    torch.testing.assert_close(v.grad, -2 * (x * v).sin() * x)


def test_a_callable_backend_finds_what_torch_compile_sets() -> None:
    found: list[tuple[bool, str]] = []

    def backend(gm: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        mode = torch._guards.TracingContext.get().fake_mode
        compile_id = torch._guards.CompileContext.get().compile_id
        found.append((mode is examples[0].fake_mode, str(compile_id)))
        return gm.forward

    compiled_function = compiler_core.compile(lambda x: x.sin(), backend=backend, dynamic=False)
    for size in (2, 3):
        compiled_function(torch.ones(size))
    assert found == [(True, "0/0"), (True, "0/1")]
    assert torch._guards.TracingContext.try_get() is None


def stocks_aot_eager(gm: fx.GraphModule, examples: Sequence[torch.Tensor]) -> Any:
    return aot_eager(gm, list(examples))


def aot_autograds(gm: fx.GraphModule, examples: Sequence[torch.Tensor]) -> Any:
    def forward(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        return make_boxed_func(gm.forward)

    return aot_module_simplified(gm, list(examples), fw_compiler=forward)


@pytest.mark.parametrize("backend", [stocks_aot_eager, aot_autograds])
@pytest.mark.parametrize(
    ("program", "compiles"),
    [
        (lambda x, s: (x * s + s).sum(), 2),
        (lambda x, s: (x * s * x.shape[0]).sum() + 2 * s, 2),
        (lambda x, s: torch.full((3,), s), None),  # AOTAutograd makes a constant of it, with a guard
    ],
)
def test_backends_written_for_stock_take_symbolic_floats(backend: Any, program: Any, compiles: int | None) -> None:
    with compiler_core.record() as record:
        call = compiler_core.compile(program, backend=backend, strict=True)
        for number in (1.5, 2.5, 3.25, 0.5):
            x = t(3)
            ours, eager = call(x, number), program(x, number)
            torch.testing.assert_close(ours, eager)
            if eager.requires_grad:
                torch.testing.assert_close(torch.autograd.grad(ours, x), torch.autograd.grad(eager, x))
    assert compiles in (None, len(record.frames[0].compiles))
    assert not TensorifyState.force_specializations  # stock's next compile would take floats for constants
