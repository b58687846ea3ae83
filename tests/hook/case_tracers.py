"""PyTorch's tracers, transforms and modes over compiled functions give the same as over the eager functions.

`test_tracers` runs it as ``python -m tests.hook.case_tracers BACKEND``, in a process that a case may crash.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call, functionalize, grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import compiler_core

BACKEND = "aot_eager"
CASES: dict[str, Callable[[], None]] = {}
jit: Any = torch.jit


def case(function: Callable[[], None]) -> Callable[[], None]:
    CASES[function.__name__] = function
    return function


def body(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.sin(x @ w).relu() + 1


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inner(x))


class WithMethod(nn.Module):
    @torch.jit.export
    def other(self, x: torch.Tensor) -> torch.Tensor:
        return x + 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.other(x) * 2


class Around(nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(x) * 2


X = torch.randn(3, 3, requires_grad=True)
W = torch.randn(3, 3)
MODEL = Model()
same = torch.testing.assert_close


def compiled(fn: Any, *first: Any) -> Any:
    """Returns `fn` compiled, after a call with `first` if any are given."""
    result = compiler_core.compile(fn, backend=BACKEND)
    if first:
        result(*first)
    return result


def same_with_gradients(fn: Any, wanted: Any) -> None:
    for _ in range(2):
        results = []
        for each in (fn, wanted):
            x = X.detach().clone().requires_grad_()
            result = each(x)
            result.sum().backward()
            results.append((result, x.grad))
        same(results[0], results[1])


# ---- torch.jit


def _traced(fn: Any, *args: Any) -> None:
    traced = jit.trace(fn, args)
    assert "aten::sin" in str(traced.graph)
    other = torch.randn(3, 3)
    same(traced(other, *args[1:]), body(other, W))


@case
def traced_before_the_first_call() -> None:
    _traced(compiled(body), X, W)


@case
def traced_after_it() -> None:
    program = compiled(body, X, W)
    _traced(program, X, W)
    same(program(X, W), body(X, W))


@case
def traced_as_a_part() -> None:
    program = compiled(body, X, W)
    _traced(lambda x: program(x, W), X)


@case
def traced_modules() -> None:
    for fn in (compiled(MODEL), compiled(MODEL, X), Around(compiled(MODEL, X))):
        same(jit.trace(fn, (X,))(X), fn(X))


@case
def traced_with_no_tensors() -> None:
    program = compiled(lambda: torch.zeros(3) + 1)
    program()
    assert "aten::add" in str(jit.trace(lambda x: x + program(), (X,)).graph)


@case
def scripted_modules_inside() -> None:
    for scripted in (jit.script(MODEL), jit.trace(MODEL, (X,)), jit.freeze(jit.script(Model().eval()))):
        same_with_gradients(compiled(lambda x, s=scripted: s(x) * 2), lambda x, s=scripted: s(x) * 2)


@case
def scripted_modules_compiled() -> None:
    for scripted in (jit.script(MODEL), jit.trace(MODEL, (X,)), jit.script(WithMethod())):
        same_with_gradients(compiled(scripted), scripted)


@case
def scripted_modules_in_a_chain() -> None:
    chain = nn.Sequential(jit.script(nn.Linear(3, 3)), nn.ReLU(), jit.trace(nn.Linear(3, 3), (X,)))
    same_with_gradients(compiled(chain), chain)


@case
def attributes_of_scripted_modules() -> None:
    scripted, method = jit.script(MODEL), jit.script(WithMethod())

    def program(x: torch.Tensor) -> Any:
        return scripted.inner.weight.sum() + scripted(x) + len(list(scripted.parameters())) + method.other(x)

    same_with_gradients(compiled(program), program)


@case
def scripted_functions() -> None:
    for scripted in (jit.script(_doubled), jit.trace(lambda x: x * 2 + 1, (X,))):
        same_with_gradients(compiled(lambda x, s=scripted: s(x).sin()), lambda x, s=scripted: s(x).sin())
        same_with_gradients(compiled(scripted), scripted)


def _doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


@case
def scripts_of_compiled_code() -> None:
    same(jit.script(compiled(_doubled, X))(X), _doubled(X))
    same(jit.script(compiled(MODEL, X))(X), MODEL(X))


# ---- torch.fx, make_fx, torch.export


@case
def symbolic_trace() -> None:
    for program in (compiled(body), compiled(body, X, W)):
        graph = torch.fx.symbolic_trace(program)
        assert any("sin" in str(n.target) for n in graph.graph.nodes)
        same(graph(X, W), body(X, W))
        same(program(X, W), body(X, W))
    around = Around(compiled(MODEL, X))
    same(torch.fx.symbolic_trace(around)(X), around(X))


@case
def proxies() -> None:
    program = compiled(body, X, W)
    for mode in ("real", "fake", "symbolic"):
        graph = make_fx(program, tracing_mode=mode)(X, W)
        assert any("sin" in str(n.target) for n in graph.graph.nodes)
        same(graph(X, W), body(X, W))
    same(program(X, W), body(X, W))


@case
def exported() -> None:
    exported = torch.export.export(Around(compiled(MODEL, X)), (X,))
    same(exported.module()(X), MODEL(X) * 2)


# ---- torch.func


@case
def transforms() -> None:
    program, ones = compiled(body, X, W), torch.ones(3, 3)
    batch = X.detach()[None].expand(2, 3, 3)
    same(vmap(program, in_dims=(0, None))(batch, W), vmap(body, in_dims=(0, None))(batch, W))
    same(grad(lambda x: program(x, W).sum())(X), grad(lambda x: body(x, W).sum())(X))
    same(jvp(lambda x: program(x, W), (X,), (ones,)), jvp(lambda x: body(x, W), (X,), (ones,)))
    same(functionalize(program)(X, W), body(X, W))
    for transform in (jacrev, jacfwd):
        same(transform(lambda x: program(x, W))(X), transform(lambda x: body(x, W))(X))
    same(hessian(lambda x: program(x, W).sum())(X), hessian(lambda x: body(x, W).sum())(X))
    same(program(X, W), body(X, W))


@case
def functional_calls() -> None:
    program = compiled(MODEL, X)
    doubled = {name: p * 2 for name, p in MODEL.named_parameters()}
    wanted = functional_call(MODEL, doubled, (X,))
    same(compiled(lambda x: functional_call(MODEL, doubled, (x,)))(X), wanted)
    same(program(X), MODEL(X))


@case
def dual_numbers() -> None:
    program, forward_ad = compiled(body, X, W), torch.autograd.forward_ad
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(X.detach(), torch.ones(3, 3))
        same(forward_ad.unpack_dual(program(dual, W)), forward_ad.unpack_dual(body(dual, W)))


# ---- modes


class Dispatched(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


class Called(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@case
def modes_that_watch() -> None:
    program = compiled(body, X, W)
    for mode in (Dispatched, Called):
        with mode() as of_ours:
            program(X, W)
        with mode() as of_eager:
            body(X, W)
        assert of_ours.seen == of_eager.seen
    with FlopCounterMode(display=False) as ours:
        program(X, W)
    assert ours.get_total_flops() == 54


@case
def fake_tensors() -> None:
    program = compiled(body, X, W)
    with FakeTensorMode() as mode:
        assert program(mode.from_tensor(X), mode.from_tensor(W)).shape == (3, 3)
    assert program(X.detach().to("meta"), W.to("meta")).shape == (3, 3)
    same(program(X, W), body(X, W))


@case
def profiled() -> None:
    program = compiled(body, X, W)
    with torch.profiler.profile():
        same(program(X, W), body(X, W))


@case
def hooks_on_saved_tensors() -> None:
    program, packed = compiled(body, X, W), []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(1)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        same_with_gradients(lambda x: program(x, W), lambda x: body(x, W))
    assert packed


@case
def checkpoints() -> None:
    program = compiled(body, X, W)
    same_with_gradients(
        lambda x: checkpoint(program, x, W, use_reentrant=False), lambda x: checkpoint(body, x, W, use_reentrant=False)
    )


@case
def stock() -> None:
    program = compiled(body, X, W)
    same(torch.compile(lambda x: program(x, W) * 2, backend="eager")(X), body(X, W) * 2)


@case
def copies() -> None:
    program = compiled(Model(), X)
    same(copy.deepcopy(program)(X), program(X))


if __name__ == "__main__":
    BACKEND = sys.argv[1]
    failed = []
    for name, run in CASES.items():
        print(name, flush=True)  # the last name printed is that of the test that crashed
        try:
            run()
        except Exception as error:
            failed.append(f"{name}: {type(error).__name__}: {error}"[:400])
    sys.exit("\n".join(failed) or 0)
