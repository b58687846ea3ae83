"""Tests of what used to fall back to eager without a warning: views made by operations of several tensors, custom
operators that write to their arguments, writes that autograd does not see, ``out=`` that resizes, and shapes changed in
place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributions as D
import torch.nn.functional as F

import compiler_core
from compiler_core.api.compile import record_of
from compiler_core.tools.testing import Expected, check
from tests.sampling import sample


@torch.library.custom_op("cutaway_tests::grow", mutates_args=("x",))
def grow(x: torch.Tensor, by: float) -> None:
    x.add_(by)


@torch.library.custom_op("cutaway_tests::grow_both", mutates_args=("x", "others"))
def grow_both(x: torch.Tensor, others: list[torch.Tensor], by: float = 2.0) -> torch.Tensor:
    x.add_(by)
    for other in others:
        other.mul_(by)
    return x * 3


@grow_both.register_fake
def _(x: torch.Tensor, others: list[torch.Tensor], by: float = 2.0) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("cutaway_tests::grow_all", mutates_args=("xs",))
def grow_all(xs: list[torch.Tensor]) -> None:
    for x in xs:
        x.add_(1)


@torch.library.custom_op("cutaway_tests::halve_all", mutates_args=("xs",))
def halve_all(xs: list[torch.Tensor]) -> list[torch.Tensor]:
    return [x.div_(2) * 3 for x in xs]


@halve_all.register_fake
def _(xs: list[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.empty_like(x) for x in xs]


_OLD = torch.library.Library("cutaway_old_tests", "DEF")
_OLD.define("put(Tensor(a!) x, Tensor y) -> ()")
_OLD.define("put_back(Tensor(a!) x) -> Tensor(a!)")


def _put(x: torch.Tensor, y: torch.Tensor) -> None:
    x.copy_(y)


_OLD.impl("put", _put, "CompositeExplicitAutograd")
_OLD.impl("put_back", lambda x: x.add_(1), "CompositeExplicitAutograd")

ops: Any = torch.ops


def _draw(*shape: int) -> Callable[[], torch.Tensor]:
    def make() -> torch.Tensor:
        return torch.randn(*shape)

    return make


def _indices() -> torch.Tensor:
    return torch.randint(0, 10, (5,))


def _steps(*values: Any) -> Any:
    """Returns the last of several expressions."""
    return values[-1]


def _out_made(x: torch.Tensor) -> Any:
    tensor = torch.empty(0)
    torch.add(x, 1, out=tensor)
    return tensor * 2


def _out_given(x: torch.Tensor, out: torch.Tensor) -> Any:
    torch.add(x, 1, out=out)
    return out * 2


def _written_part(x: torch.Tensor) -> Any:
    result = x * 1
    grow(result[1:], 2.0)
    return result * 2


def _in_order(x: torch.Tensor) -> Any:
    before = x * 2
    grow(x, 1.0)
    between = x * 2
    grow(x, 1.0)
    return before, between, x * 2


PROGRAMS: dict[str, tuple[Any, ...]] = {
    "einsum that transposes": (lambda x: torch.einsum("ij->ji", x), _draw(3, 4)),
    "einsum that takes a diagonal": (lambda x: torch.einsum("ii->i", x), _draw(3, 3)),
    "einsum of more dimensions": (lambda x: (torch.einsum("...ij->...ji", x), x + 1), _draw(2, 3, 4)),
    "broadcast_tensors": (lambda x, y: torch.broadcast_tensors(x, y), _draw(3, 1), _draw(1, 4)),
    "the same of what was made": (lambda x, y: torch.broadcast_tensors(x * 2, y * 2), _draw(3, 1), _draw(1, 4)),
    "the same of one tensor twice": (lambda x: torch.broadcast_tensors(x, x), _draw(4)),
    "expand": (lambda x: (x.expand(3, 4), (x * 2).expand(3, 4)), _draw(3, 1)),
    "expand_as": (lambda x, y: x.expand_as(y), _draw(3, 1), _draw(3, 4)),
    "view_as": (lambda x, y: x.view_as(y), _draw(12), _draw(3, 4)),
    "reshape_as": (lambda x, y: x.reshape_as(y), _draw(12), _draw(3, 4)),
    "meshgrid": (lambda x, y: torch.meshgrid(x, y, indexing="xy"), _draw(3), _draw(4)),
    "meshgrid of one tensor twice": (lambda x: torch.meshgrid(x, x, indexing="ij"), _draw(3)),
    "atleast_2d": (lambda x, y: torch.atleast_2d(x, y), _draw(3), _draw(2, 4)),
    "a view of such a view": (lambda x, y: torch.broadcast_tensors(x, y)[1][1:].t(), _draw(3, 1), _draw(1, 4)),
    "such a view after a write": (lambda x, y: (x.add_(1), x.expand_as(y))[1], _draw(3, 1), _draw(3, 4)),
    "an operator that writes": (lambda x: _steps(grow(x, 2.0), x * 2), _draw(3)),
    "the same on a copy": (lambda x: _steps(y := x.clone(), grow(y, 2.0), y * 2), _draw(3)),
    "the same on a part": (_written_part, _draw(3)),
    "the same twice, in order": (_in_order, _draw(3)),
    "one that writes to several": (lambda x, y: (grow_both(x, [y]) * 2, x + y), _draw(3), _draw(3)),
    "one that writes to a list": (lambda x, y: _steps(grow_all([x, y]), x * y), _draw(3), _draw(3)),
    "one that writes to a list made here": (lambda x: _steps(y := [x * 2, x.sin()], grow_all(y), y), _draw(3)),
    "one that writes to a list and returns one": (lambda x, y: (halve_all([x, y]), x + y), _draw(3), _draw(3)),
    "one of a library": (lambda x, y: _steps(ops.cutaway_old_tests.put(x, y), x * 2), _draw(3), _draw(3)),
    "one that gives back what it wrote": (lambda x: ops.cutaway_old_tests.put_back(x) * 2, _draw(3)),
    "an embedding with max_norm": (lambda i, w: F.embedding(i, w, max_norm=1.0) * 2, _indices, _draw(10, 4)),
    "a write by way of detach": (lambda x: _steps(x.detach().mul_(2), x * x), _draw(3)),
    "out= that gives a size": (_out_made, _draw(3)),
    "the same to an argument": (_out_given, _draw(3), lambda: torch.empty(0)),
    "a dimension added in place": (lambda x: (x + 1).unsqueeze_(0), _draw(2, 3)),
    "the same to a tensor that is used": (lambda x: _steps(y := x.exp(), y.unsqueeze_(-1), (y, y * y)), _draw(2, 3)),
    "dimensions swapped in place": (lambda x: _steps(y := x.sin(), y.t_(), y.mul_(2), (y, y + 1)), _draw(2, 3)),
    "dimensions removed in place": (lambda x: (x + 1).squeeze_().transpose_(0, 1), _draw(1, 2, 3)),
    "a tensor of a size": (lambda x: x.new(x.shape).fill_(1) + x, _draw(2, 3)),
}
# a leaf that requires gradients is not written to, and out= is not differentiated
_WITHOUT_GRADIENT = ("write", "one of a", "gives back", "the same on", "in order", "out=", "the same to", "one that")
_CASES = [
    *((name, False) for name in PROGRAMS),
    *((name, True) for name in PROGRAMS if not any(part in name for part in _WITHOUT_GRADIENT)),
    ("a write by way of detach", True),
]


@pytest.mark.parametrize(("name", "grad"), sample(_CASES, 4))
def test_compiled_in_one_graph(name: str, grad: bool) -> None:
    program, *makers = PROGRAMS[name]

    def inputs() -> tuple[torch.Tensor, ...]:
        return tuple(make() for make in makers)

    check(program, inputs, Expected(breaks=[]), grad=grad, backend="aot_eager", tolerance=1e-6)
    compiled = compiler_core.compile(program, backend="aot_eager")
    compiled(*(t.requires_grad_(grad and t.is_floating_point()) for t in inputs()))
    assert _failures(compiled) == []


def _failures(compiled: Any) -> list[str]:
    return [f.message for frame in record_of(compiled).frames for c in frame.compiles for f in c.failures]


def test_layers_with_max_norm() -> None:
    for layer in (torch.nn.Embedding(10, 4, max_norm=1.0), torch.nn.EmbeddingBag(10, 4, max_norm=1.0)):
        other = type(layer)(10, 4, max_norm=1.0)
        other.load_state_dict(layer.state_dict())
        compiled = compiler_core.compile(layer, backend="aot_eager")
        for _ in range(2):
            given = (_indices(),) if isinstance(layer, torch.nn.Embedding) else (_indices(), torch.tensor([0]))
            for each in (compiled, other):
                each(*given).sum().backward()
            torch.testing.assert_close(layer.weight, other.weight)
            torch.testing.assert_close(layer.weight.grad, other.weight.grad)
        assert _failures(compiled) == []


def test_distributions() -> None:
    """Samples and densities of torch.distributions compile without a fallback."""
    torch.manual_seed(0)
    wide, positive = torch.randn(2, 1), torch.rand(3) + 0.5
    found = [
        *(D.Normal(wide, positive), D.Laplace(wide, positive), D.Cauchy(wide, positive), D.Gumbel(wide, positive)),
        *(D.Gamma(positive, positive), D.Beta(positive, positive), D.Exponential(positive), D.StudentT(positive)),
        *(D.Uniform(wide - 1, wide + positive), D.LogNormal(wide, positive), D.HalfNormal(positive)),
        *(D.Bernoulli(logits=wide), D.Categorical(logits=torch.randn(2, 4)), D.Dirichlet(positive)),
        *(D.Geometric(logits=wide), D.Poisson(positive), D.MultivariateNormal(positive, torch.eye(3))),
        D.Multinomial(3, logits=torch.randn(2, 4)),
    ]
    for distribution in found:
        for method in ("sample", "rsample", "log_prob", "entropy"):
            if method == "rsample" and not distribution.has_rsample:
                continue
            given = [distribution.sample()] if method == "log_prob" else []
            _check_method(distribution, method, given)


def _check_method(distribution: Any, method: str, given: list[torch.Tensor]) -> None:
    def program(distribution: Any, *given: torch.Tensor) -> Any:
        return getattr(distribution, method)(*given)

    torch.manual_seed(3)
    try:
        wanted = program(distribution, *given)
    except NotImplementedError:
        return
    torch.manual_seed(3)
    compiled = compiler_core.compile(program, backend="aot_eager")
    torch.testing.assert_close(compiled(distribution, *given), wanted)
    assert _failures(compiled) == [], f"{distribution}.{method}"
