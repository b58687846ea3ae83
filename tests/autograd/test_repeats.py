"""Operators that come again are traced once, and the graph is that of a trace in which each is traced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx as fx
import torch.nn.functional as F
from torch import nn

import compiler_core
from compiler_core.autograd import joint
from compiler_core.autograd.trace import decompositions
from compiler_core.autograd.trace.repeats import Repeats
from compiler_core.torch_private import OpOverload


def layers(x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = F.gelu(F.layer_norm(x, x.shape[-1:]), approximate="tanh") + x.softmax(-1)
    return x.sum()


def other_layouts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x * 2, x.t() * 2, x.t() * x.t(), x * x, x[:, ::2] * 2, x[:, 1::2] * 2, x.expand(2, -1, -1) * 2


def other_numbers(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    whole = (x * 4).int()
    products = x * 0.0, x * -0.0, x * 0, x * False, x * True, x * 1, x * 1.0, x * float("nan"), whole * 1, whole * 1.0
    return (*products, x + x, torch.add(x, x, alpha=2), torch.add(x, x, alpha=3), x + whole, whole + x)


def weights_of_both_kinds(x: torch.Tensor, low: float, high: float) -> tuple[torch.Tensor, ...]:
    return tuple(torch.lerp(x, x * 2, weight) for weight in (0.1, low, high, 0.9, 0.1, high, low, 0.9, 0.5))


def written(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    parts = [x * 1 for _ in range(3)]
    for i, part in enumerate(parts):
        part.mul_(2).add_(x, alpha=i).clamp_(-1, 1)
    parts[0][1:].mul_(3)
    parts[1].t().mul_(3)
    return tuple(parts)


def lists(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    parts, others = [x * i for i in range(4)], [x + i for i in range(4)]
    torch._foreach_mul_(parts, 2.0)
    torch._foreach_addcmul_(parts, others, others[::-1], 0.5)
    return torch._foreach_sqrt(torch._foreach_abs(parts))


def random(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return F.dropout(x, 0.5), F.dropout(x, 0.5), torch.rand_like(x), torch.rand_like(x), torch.bernoulli(x.sigmoid())


def of_sizes(x: torch.Tensor) -> tuple[Any, ...]:
    return x * x.shape[0], x.t() * x.shape[0], x * x.shape[1], x + x.shape[0], x.sum() * x.shape[0], x.shape[0] * 2


def complex_numbers(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    z = torch.complex(x, x)
    return z * 2, z.conj() * 2, z.conj() * z, (z * z.conj()).real * 2, z.imag * 2


def known_values(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    two, three, total = torch.tensor(2.0), torch.tensor(3.0), x.sum()
    return total + 1, two + 1, three + 1, (total + 1) * 2, (two + 1) * 2, two * x, three * x, two * three, total * three


PROGRAMS = [
    known_values,
    layers,
    other_layouts,
    other_numbers,
    weights_of_both_kinds,
    written,
    lists,
    random,
    of_sizes,
    complex_numbers,
]


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """The nodes of each graph that is traced: all that later stages read of them."""
    found: list[list[Any]] = []
    trace = joint._trace

    def noted(*args: Any) -> Any:
        run, gm = trace(*args)
        live = [node for node in gm.graph.nodes if node.users or node.op != "call_function"]
        numbers = {node: f"%{i}" for i, node in enumerate(live)}
        found.append([facts_of(node, numbers) for node in live])
        return run, gm

    monkeypatch.setattr(joint, "_trace", noted)
    return found


def facts_of(node: fx.Node, numbers: dict[fx.Node, str]) -> tuple[Any, ...]:
    value = node.meta.get("val")
    layout = (value.dtype, value.shape, value.stride(), value.device) if isinstance(value, torch.Tensor) else value
    meta = [str(node.meta.get(name)) for name in ("original_aten", "origin", "rule", "decomposed", "module")]
    arguments = fx.map_arg((node.args, node.kwargs), numbers.__getitem__)
    return str(node.target), str(arguments), str(layout), *meta


def without_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Repeats, "rules", lambda self, table: dict(table))


@pytest.mark.parametrize(
    ("program", "dynamic"),
    [*((program, None) for program in PROGRAMS), (layers, True), (written, True), (of_sizes, True)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_the_graph_is_that_of_a_whole_trace(
    program: Callable[..., Any], dynamic: bool | None, traced: list[list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, numbers = torch.randn(6, 8, requires_grad=True), program.__code__.co_argcount > 1
    found = []
    for change in (lambda _: None, without_repeats):
        change(monkeypatch)
        compiled = compiler_core.compile(program, strict=True, backend="aot_eager", dynamic=dynamic)
        for weights in ((0.3, 0.6), (0.2, 0.8)) if numbers else ((),):  # the second time, they are symbols
            compiled(x, *weights)
        found.append([*traced])
        traced.clear()
    assert found[0] == found[1]
    assert found[0]


def step_of(count: int, **options: Any) -> Callable[[torch.Tensor], None]:
    """A step of AdamW for `count` layers, whose parameters have two shapes."""
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(count)))
    optimizer = torch.optim.AdamW(model.parameters(), **options)

    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


@pytest.mark.parametrize("foreach", [False, True])
def test_an_optimizers_update_is_traced_once(
    foreach: bool, traced: list[list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, runs = torch.ones(2, 4), Counter[OpOverload]()
    table = decompositions.decomposition_table

    def counted(op: OpOverload, rule: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            runs[op] += 1
            return rule(*args, **kwargs)

        return run

    monkeypatch.setattr(
        decompositions, "decomposition_table", lambda: {op: counted(op, rule) for op, rule in table().items()}
    )
    for change, least, most in ((lambda _: None, 1, 2), (without_repeats, 12, 12)):  # once for a weight and for a bias
        change(monkeypatch)
        runs.clear()
        compiler_core.compile(step_of(6, foreach=foreach), strict=True, backend="aot_eager", capture_backward=True)(x)
        assert least <= runs[torch.ops.aten.lerp.Scalar] <= most
    first, second = traced
    assert first == second
