# mypy: ignore-errors
# ruff: noqa
"""Programs with transforms of torch.func: vmap, grad, vjp, jvp, jacobians, nested and over modules.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import functools
import warnings
from collections import namedtuple

import pytest
import torch
import torch.nn as nn
from torch.autograd import Function
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
    vmap,
)

import compiler_core
from compiler_core.tools.testing import check, same_as_eager
from compiler_core.tools.testing.programs import Expected
from tests.cases.torch_version import SINCE_2_13
from tests.sampling import sample

one_graph = functools.partial(same_as_eager, graphs=1, breaks=[])
whole = functools.partial(one_graph, grad=True)

BACKENDS = []
"""Programs that run through the backends that differentiate, too."""


def on_backends(program):
    BACKENDS.append(program)
    return whole()(program)


@pytest.fixture(scope="module", autouse=True)
def _loaded_rules():
    """PyTorch loads its rules of forward differentiation at the first jvp, with deprecation warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch._decomp import decompositions_for_jvp


# ---------------------------------------------------------------- vmap


Pair = namedtuple("Pair", "a b")


@whole()
def test_vmap_of_trees(x, y):
    given = {"a": x, "b": (y, [x])}, 2.5, "text"
    found = vmap(
        lambda d, n, s: {"s": d["a"] + d["b"][0] * n, "t": [d["b"][1][0]] * len(s)}, ({"a": 0, "b": 0}, None, None)
    )(*given)
    return found["s"] + found["t"][3], vmap(lambda p: p.a * 2, out_dims=1)(Pair(x, y))


@whole()
def test_vmap_in_chunks(x):
    return vmap(lambda a: a.cumsum(0), chunk_size=3)(x), vmap(lambda a: (a * 2, 3.5), out_dims=(0, None))(x)


@same_as_eager(breaks=["transform"])
def test_vmap_that_writes_to_its_argument(x):
    vmap(lambda a: a.mul_(2))(x)
    return x


@pytest.mark.filterwarnings("ignore::compiler_core.CompileWarning")
def test_views_that_leave_vmap_are_refused():
    """What no view leads to outside of the transform runs as the captured graph."""
    program = lambda x: vmap(lambda a: (lambda s: (s, s[1:]))(a.sin()))(x)
    record = check(program, lambda: (torch.ones(3, 4),), Expected(refusals=True), backend="aot_eager")
    (refusal,) = [failure for compile_ in record.compiles for failure in compile_.failures]
    assert "a transform returns views of memory that it has made" in refusal.message


def test_sizes_of_vmap_are_symbolic():
    inputs = [lambda n=n: (torch.randn(n, 4),) for n in (3, 4, 5, 6)]
    for backend in ("eager", "aot_eager"):
        program = lambda x: (vmap(grad(lambda a: (a.sin() * a).sum()))(x), vmap(lambda a: a[1:])(x))
        check(program, inputs, Expected(graphs=2, breaks=[], compiles=2), backend=backend, tolerance=1e-6)


@on_backends
def test_samples_without_dimensions(x, y):
    """PyTorch casts Python numbers beside such samples with an operator that takes tensors elsewhere."""
    a, b = x.flatten()[:3], y.flatten()[:3].double()
    cubes = vmap(grad(lambda r, s: r**3 * s + 2 * r))(a, b.float())
    some = vmap(lambda r, s, k: (r * 2, 1.5 - r, r / s, s * 0.5, k * r, k + 1, k / 2))(a, b, torch.tensor([1, 2, 3]))
    return cubes, some, vmap(lambda r: torch.where(r > 0, r * 2, 0.0))(a.to(torch.bfloat16))


# ---------------------------------------------------------------- grad, vjp


@whole()
def test_grad_and_other_results(x):
    some = grad(lambda p: ((p["a"] ** 2).sum(), (p["b"] * 3, {"k": p["a"].sum()})), has_aux=True)({"a": x, "b": x})
    value = grad_and_value(lambda a: a.tanh().sum())(x)
    second = grad(lambda a: grad(lambda b: (b**3).sum())(a).sum())(x)
    return some, value, second


@same_as_eager(breaks=["print", "print", "unsupported call"])
def test_vjp_function_used_after_a_break(x):
    out, pull = vjp(lambda a: a.sin(), x + 1)
    print("between")
    return pull(out)


@same_as_eager()
def test_vjp_function_that_is_returned(x):
    out, pull = vjp(lambda a: a.sin(), x)
    return out, pull


# ---------------------------------------------------------------- jvp, jacobians


@on_backends
def test_jvp(x, y):
    second = jvp(lambda a: jvp(lambda b: b**3, (a,), (torch.ones_like(a),))[1], (x,), (y,))
    curvature = hessian(lambda a: (a.sin() ** 2).sum())(x[0])
    hvp = jvp(grad(lambda a: (a.sin() ** 2).sum()), (x,), (y,))
    return jvp(lambda a: (a.sin() * y, a * 2), (x,), (y,), has_aux=True), second, hvp, curvature


@on_backends if SINCE_2_13 else same_as_eager(grad=True)
def test_jacobians(x, y):
    rows = jacrev(lambda d, m: {"u": d["a"].sin() @ m, "v": d["b"].sum()}, argnums=(0, 1))({"a": x[0], "b": x[1]}, y)
    return rows, jacrev(lambda a: a.sin(), chunk_size=2)(x[0]), jacfwd(lambda a: a.sin() * y[0])(x[0])


# ---------------------------------------------------------------- modules


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 4)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.last(self.norm(self.first(x)).relu())


def net_and_data():
    return Net(), torch.randn(5, 4), torch.randn(5, 4)


@same_as_eager(inputs=net_and_data)
def test_stacked_modules(net, x, y):
    params, buffers = stack_module_state([net, net])
    return vmap(lambda p, b: functional_call(net, (p, b), (x,)))(params, buffers)


# ---------------------------------------------------------------- autograd functions


class Square(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        return 3 * g * ctx.saved_tensors[0]


class WithRule(Square):
    generate_vmap_rule = False

    @staticmethod
    def vmap(info, dims, x):
        return WithRule.apply(x) * 5, dims[0]


@on_backends
def test_autograd_function(x):
    return (
        grad(lambda a: Square.apply(a).sum())(x),
        vmap(Square.apply)(x),
        vmap(grad(lambda a: Square.apply(a).sum()))(x),
    )


@same_as_eager(breaks=["transform"], grad=True)
def test_autograd_function_with_a_rule_for_vmap(x):
    return vmap(lambda a: WithRule.apply(a))(x)


# ---------------------------------------------------------------- Python around it


@one_graph()
def test_exceptions_inside(x):
    def fails(a):
        raise ValueError("no")

    def catches(a):
        try:
            fails(a)
        except ValueError as error:
            return (a * len(str(error))).sum()

    found = []
    for transform in (vmap(fails), grad(fails), vmap(grad(fails)), vmap(lambda a: a, in_dims=5), grad(lambda a: a)):
        try:
            transform(x)
        except (ValueError, RuntimeError) as error:
            found.append(str(error))
    return found, grad(catches)(x)


@pytest.mark.cpu  # a wrong index ends the process on a GPU
@pytest.mark.parametrize("backend", ["eager", "cpp"])
def test_error_of_values_inside(backend):
    """The captured graph fails in the middle of a transform, when it runs: all levels are left."""

    def program(x, i):
        try:
            return vmap(grad(lambda a, k: torch.gather(a.sin(), 0, k[None]).sum()))(x, i)
        except (IndexError, RuntimeError) as error:
            return type(error), torch._C._functorch.maybe_current_level(), vmap(lambda a: a * 2)(x)

    inputs = [lambda i=i: (torch.ones(3, 4), torch.tensor([0, i, 1])) for i in (2, 9, 3)]
    check(program, inputs, backend=backend, tolerance=1e-6)


@same_as_eager(grad=True)
def test_inside_checkpoints(x):
    from torch.utils.checkpoint import checkpoint

    found = []
    for program in (
        lambda: checkpoint(lambda b: grad(lambda a: a.sin().sum())(b), x, use_reentrant=False),
        lambda: grad(lambda a: checkpoint(lambda b: b.sin().sum(), a, use_reentrant=False))(x),
    ):
        try:
            found.append(program())
        except RuntimeError as error:
            found.append(str(error)[:40])
    return found


@same_as_eager(breaks=["inference mode", "transform", "inference mode"])
def test_in_inference_mode(x):
    with torch.inference_mode():
        return grad(lambda a: (a**2).sum())(x)


def test_in_inference_mode_after_a_call_without_gradients():
    program = lambda x: grad(lambda a: (a**2).sum())(x)
    compiled = compiler_core.compile(program, backend="aot_eager")
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert [run(torch.ones(3)).is_inference() for run in (program, compiled)] == [False, False]


@pytest.mark.parametrize("backend", ["cpp", pytest.param("aot_eager", marks=pytest.mark.sweep)])
@pytest.mark.parametrize("program", sample(BACKENDS, 4), ids=lambda program: program.__name__)
def test_on_a_backend(program, backend):
    check(program, expected=Expected(1, [], None), grad=True, backend=backend, tolerance=1e-4)
