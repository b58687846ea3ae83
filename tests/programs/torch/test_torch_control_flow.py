# mypy: ignore-errors
# (the programs stand for users' code, which has no annotations)
"""``torch.cond``, ``while_loop``, ``map`` and ``scan`` in the graph: values, gradients, and what breaks the graph."""

from __future__ import annotations

import functools
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops import map as map_rows
from torch._higher_order_ops import scan, while_loop

import compiler_core as cc
from compiler_core.api.compile import record_of
from compiler_core.tools.testing import graph_count, same_as_eager
from tests.sampling import always

pytestmark = pytest.mark.slow

BACKENDS = ["eager", "cpp", pytest.param("aot_eager", marks=pytest.mark.sweep)]
"""The joint graph, which is all that `aot_eager` adds to `eager`, is that of `cpp`."""
CPP = always(["eager", "cpp", "aot_eager"], "cpp".__eq__)
"""What `eager` runs is the captured graph, which all backends have: each operator, and each kind of operands, is run by
it in some test."""


@pytest.fixture(autouse=True, scope="module")
def _warnings_of_first_imports():
    """Eager PyTorch imports modules that warn in its first call of such an operator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scan(lambda c, x: (c + x, c * x), torch.zeros(()), torch.ones(2, requires_grad=True))


def signs(*shape):
    """Inputs for both branches of a condition on the sum."""

    def positive():
        return (torch.rand(*shape) + 0.1,)

    def negative():
        return (-torch.rand(*shape) - 0.1,)

    return [positive, negative, positive]


has_scan = pytest.mark.skipif(torch.__version__ < (2, 13), reason="scan breaks the graph before PyTorch 2.13")


def whole(shape=(3, 4), grad=True, tolerance=1e-5, compiles=1, backends=CPP, **options):
    """Compares a program with eager on each of `backends`; its only graph serves both signs of the input."""

    def decorate(program):
        @pytest.mark.parametrize("backend", backends)
        def test(backend):
            given = {"inputs": signs(*shape), "grad": grad, "tolerance": tolerance, **options}
            same_as_eager(graphs=compiles, breaks=[], compiles=compiles, backend=backend, **given)(program)()

        return test

    return decorate


breaks = functools.partial(same_as_eager, breaks=["control flow"], inputs=signs(3, 4)[:1])


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))
        self.thin, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x):
        y = torch.cond(x.mean() > 0, self.wide, lambda x: self.thin(x) * self.scale, (x,))
        return self.norm(y + x)


# ---------------------------------------------------------------- torch.cond


@pytest.mark.parametrize("backend", BACKENDS)
def test_parameters_of_modules(backend):
    torch.manual_seed(0)
    net = Experts()
    compiled = cc.compile(net, backend=backend, strict=True)
    for sign in (1, -1, 1):
        x = torch.rand(3, 4) * sign
        found = []
        for run in (net, compiled):
            net.zero_grad()
            given = x.clone().requires_grad_()
            run(given).square().sum().backward()
            found.append([given.grad, *(p.grad for p in net.parameters())])
        torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)
    assert graph_count(record_of(compiled)) == 1


@whole()
def test_closures_in_place_of_operands(x):
    y = x * 3
    return torch.cond(x.sum() > 0, lambda: y.sin(), lambda: x.cos() + y)


@whole(backends=BACKENDS)
def test_nested_operands_and_results(x):
    def one(d):
        return {"a": d["x"] + 1, "b": (d["x"] * 2, [d["y"] * 1])}

    def other(d):
        return {"a": d["x"] - 1, "b": (d["x"] * 3, [d["y"].sin()])}

    found = torch.cond(x.sum() > 0, one, other, ({"x": x, "y": x + 3},))
    return found["a"] * found["b"][0] + found["b"][1][0]


@whole(backends=BACKENDS)
def test_operands_of_other_layouts(x):
    views = (x.t(), (x * 2)[:, ::2], (x * 3)[:1].expand(3, 4))
    one, other = torch.cond(
        x.sum() > 0,
        lambda a, b, c: (a.reshape(-1) + 1, b.sin() + c[:, :2]),
        lambda a, b, c: (a.reshape(-1) * 2, b.cos() * c[:, 2:]),
        views,
    )
    return one.sum() + other * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_branch_that_ignores_an_input_gives_it_zeros(backend):
    def program(x, w):
        return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x * w, (x,))

    w = torch.ones(3, requires_grad=True)
    cc.compile(program, backend=backend, strict=True)(torch.ones(3), w).sum().backward()
    assert w.grad.tolist() == [0, 0, 0]


@whole(tolerance=1e-2)
def test_under_autocast(x):
    with torch.autocast("cpu", torch.bfloat16):
        return torch.cond(x.sum() > 0, lambda x: x @ x.t(), lambda x: x.t().t() @ x.t() * 2, (x,))


@same_as_eager(graphs=1, breaks=[], inputs=signs(3, 4), grad=True)
def test_a_predicate_of_python(x):
    y = torch.cond(x.shape[0] > 2, lambda x: x + 1, lambda x: x + 2, (x,))
    return torch.cond(False, lambda x: x + 1, lambda x: x, (y,))


@pytest.mark.parametrize("backend", BACKENDS)
def test_sizes_that_change(backend):
    def program(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin() * x.shape[0], lambda x: x.reshape(-1).view_as(x).exp(), (x,))

    compiled = cc.compile(program, backend=backend, strict=True, dynamic=True)
    for rows in (3, 5, 7):
        for sign in (1, -1):
            xs = [torch.full((rows, 4), 0.5 * sign, requires_grad=True) for _ in range(2)]
            results = [run(x) for run, x in zip((program, compiled), xs, strict=True)]
            for result in results:
                result.sum().backward()
            torch.testing.assert_close([results[1], xs[1].grad], [results[0], xs[0].grad])
    assert len(record_of(compiled).compiles) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_error_in_the_branch_that_runs(backend):
    def program(x, at):
        return torch.cond(x.sum() > 0, lambda x: x[at] + 1, lambda x: x * 2, (x,))

    compiled = cc.compile(program, backend=backend, strict=True)
    at = torch.tensor([0, 7, 1])
    torch.testing.assert_close(compiled(-torch.ones(3, 4), at), program(-torch.ones(3, 4), at))
    with pytest.raises(IndexError):
        compiled(torch.ones(3, 4), at)


def test_a_backend_of_others_gets_the_operators_of_pytorch():
    def program(x):
        y = torch.cond(x.sum() > 0, lambda x: torch.cond(x.mean() > 0.5, torch.exp, torch.sin, (x,)), torch.cos, (x,))
        return while_loop(lambda n, y: n < 3, lambda n, y: (n + 1, y.sin()), (torch.tensor(0), y))[1]

    compiled = cc.compile(program, backend="inductor", strict=True)
    for sign in (1, -1):
        x = torch.full((4,), 0.7 * sign)
        torch.testing.assert_close(compiled(x), program(x))
    assert graph_count(record_of(compiled)) == 1


def test_each_branch_has_kernels_of_its_own():
    def program(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.exp() + 1, (x,))

    compiled = cc.compile(program, backend="cpp", strict=True)
    compiled(torch.ones(4, requires_grad=True))
    (compile_,) = record_of(compiled).compiles
    texts = {a.name: a.text for a in compile_.artifacts if a.pane == "kernel"}
    assert "sin" in texts["cond_true_0.forward.cpp"]
    assert "exp" in texts["cond_false_0.forward.cpp"]
    assert "cond_true_0.backward.cpp" in texts
    assert {"cond_true_0.captured", "cond_true_0.joint"} < {a.name for a in compile_.artifacts if a.pane == "subgraphs"}
    made = {edge.made: edge.sources for edge in compile_.edges}
    assert made[f"{compile_.id}:cond_true_0.joint#sin"] == [f"{compile_.id}:cond_true_0.captured#sin"]


def test_the_backward_saves_what_its_branch_needs():
    x = torch.ones(1000, requires_grad=True)
    compiled = cc.compile(lambda x: torch.cond(x.sum() > 0, torch.exp, lambda x: x * 2, (x,)), strict=True)
    first = compiled(x)
    (before,) = torch.autograd.grad(first.sum(), x, retain_graph=True)
    (again,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close([before, again], [x.exp()] * 2)
    with pytest.raises(RuntimeError, match="second time"):
        first.sum().backward()


# ---------------------------------------------------------------- loops


@whole(grad=False)
def test_a_loop_without_a_round(x):
    return while_loop(lambda n, y: n < 0, lambda n, y: (n + 1, y * 2), (torch.tensor(0), x))


@whole(grad=False, backends=BACKENDS)
def test_a_loop_over_a_dict_and_an_outside_tensor(x):
    w = x + 1
    return while_loop(
        lambda s: s["n"] < 3, lambda s: ({"n": s["n"] + 1, "y": s["y"] * w},), ({"n": torch.tensor(0), "y": x},)
    )


@whole(grad=False)
def test_a_loop_whose_parameter_is_called_as_an_operation_or_self(x):
    return while_loop(lambda self, mul: self < 2, lambda self, mul: (self + 1, mul * 2 + x), (torch.tensor(0), x + 1))


@whole(backends=BACKENDS)
def test_map(x):
    w = x.sum(0)
    return map_rows(lambda row, v: {"a": (row * v).sin() + w, "b": [row.sum()]}, x, x.mean(0))


@whole()
def test_map_over_several(x):
    return map_rows(lambda rows: rows[0] * rows[1][:1], (x * 2, x.sin()))


@has_scan
@whole(backends=BACKENDS)
def test_scan(x):
    w = x.cos()

    def step(state, row):
        state = torch.tanh(state @ w.t() @ w + row)
        return state, state * 2

    return scan(step, torch.zeros(4), x)


@has_scan
@whole()
def test_scan_from_the_end_along_another_dimension(x):
    return scan(lambda c, row: (c * 0.5 + row, c * 2), torch.zeros(3), x, dim=1, reverse=True)


@has_scan
@whole()
def test_cond_in_scan(x):
    def step(c, row):
        return torch.cond(row.sum() > 0, lambda c, row: c + row, lambda c, row: c * row, (c, row)), row * 2

    return scan(step, torch.ones(4), x)


# ---------------------------------------------------------------- breaks


@breaks(grad=False)
def test_branches_of_other_shapes(x):
    return torch.cond(x.sum() > 0, lambda x: x[1:].sin(), lambda x: x.cos(), (x,))


@breaks()
def test_a_branch_that_returns_its_operand(x):
    return torch.cond(x.sum() > 0, lambda x: x, lambda x: x.cos(), (x,))


@breaks()
def test_a_branch_that_returns_a_view(x):
    return torch.cond(x.sum() > 0, lambda x: x[1:], lambda x: x[1:].cos(), (x,))


@breaks()
def test_operands_that_share_memory(x):
    y = x * 2
    return torch.cond(x.sum() > 0, lambda a, b: a + b, lambda a, b: a * b, (y, y[0]))


@breaks()
def test_a_predicate_of_several_elements(x):
    return torch.cond(x > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))


@breaks(grad=True)
def test_random_numbers_with_gradients(x):
    return torch.cond(x.sum() > 0, lambda x: F.dropout(x, 0.5), lambda x: x.cos(), (x,))


counts = torch.zeros(())


@breaks(changes=["counts"])
def test_a_branch_that_writes_to_an_outside_tensor(x):
    def one(x):
        counts.add_(1)
        return x.sin()

    return torch.cond(x.sum() > 0, one, lambda x: x.cos(), (x,))


@breaks()
def test_under_vmap(x):
    return torch.vmap(lambda r: torch.cond(r.sum() > 0, lambda r: r.sin(), lambda r: r.cos(), (r,)))(x)
