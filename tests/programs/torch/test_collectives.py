"""Collectives in compiled functions, in a group of one rank: captured once each and in their order, like eager's.

`tests/sweeps/rank_trainings.py` has programs for two ranks.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import compiler_core
from compiler_core.api.compile import record_of
from compiler_core.tools.testing import Expected, break_kinds, check
from tests.limits import HANG_S
from tests.sampling import pairs

dist: Any = pytest.importorskip("torch.distributed")
if not dist.is_available():
    pytest.skip("this PyTorch is built without torch.distributed", allow_module_level=True)
functional: Any = pytest.importorskip("torch.distributed._functional_collectives")
VARIANT = re.compile("_(base|into_tensor_coalesced|tensor_coalesced)$")
"""The endings of names of operators for the same collective, which ranks may mix."""
pytestmark = [pytest.mark.cpu, pytest.mark.own_process]
"""Gloo's collectives; `tests.sweeps.two_ranks` runs those of GPUs."""
ONE_GRAPH = Expected(graphs=1, breaks=[], compiles=1)


@pytest.fixture(scope="module", autouse=True)
def group() -> Iterator[None]:
    timeout = datetime.timedelta(seconds=HANG_S)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=timeout)
    yield
    dist.destroy_process_group()


def rows() -> tuple[Tensor]:
    return (torch.randn(4, 3),)


def reduced(x: Tensor) -> Tensor:
    y = x.detach() * 2
    dist.all_reduce(y)
    dist.all_reduce(y, op=dist.ReduceOp.MAX, group=dist.group.WORLD)
    count: int = dist.get_world_size(dist.group.WORLD)
    return x * y.sin() * count


def broadcast(x: Tensor) -> Tensor:
    y = x.detach().cos()
    dist.broadcast(y, src=0)
    return y + x


def gathered(x: Tensor) -> Tensor:
    with torch.no_grad():
        parts = [torch.empty_like(x)]
        dist.all_gather(parts, x)
        whole = torch.empty(4, 3)
        getattr(dist, "all_gather_single", dist.all_gather_into_tensor)(whole, x + 1)
    return torch.cat([x, *parts]).sum(0) + whole


def scattered_and_exchanged(x: Tensor) -> Tensor:
    y, z = torch.empty(4, 3), torch.empty(4, 3)
    getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)(y, x.detach().exp())
    dist.all_to_all_single(z, y, [4], [4])
    return x * y + z


def without_waiting(x: Tensor) -> Tensor:
    y, z = x.detach() * 2, x.detach() + 1
    first, second = dist.all_reduce(y, async_op=True), dist.all_reduce(z, async_op=True)
    w = x.sin()
    second.wait()
    first.wait()
    return y + z + w


def with_gradients(x: Tensor) -> Tensor:
    group = dist.group.WORLD
    y = functional.all_reduce(x * 2, "sum", group)
    z = functional.all_gather_single(y.tanh(), 0, group) if hasattr(functional, "all_gather_single") else y
    w = functional.all_to_all_single(z, None, None, group)
    result: Tensor = (y.exp() * w).sum(0)
    return result


def unused_and_repeated(x: Tensor) -> Tensor:
    group = dist.group.WORLD
    functional.all_reduce(x, "sum", group)
    first, second = (functional.all_reduce(x.sigmoid(), "sum", group) for _ in range(2))
    y: Tensor = first * second + x.sigmoid()
    return y


class ReducedTwice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.clone()
        dist.all_reduce(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient


def in_a_function(x: Tensor) -> Tensor:
    y: Tensor = ReducedTwice.apply(x * 2)
    return y.sin()


CAPTURED = (
    reduced, broadcast, gathered, scattered_and_exchanged, without_waiting, with_gradients, unused_and_repeated,
    in_a_function,
)  # fmt: skip


@pytest.mark.parametrize(("program", "backend"), pairs(CAPTURED, ["eager", "aot_eager", "cpp"], 2))
def test_collectives_are_captured_in_one_graph(program: Callable[..., Any], backend: str) -> None:
    check(program, rows, ONE_GRAPH, grad=True, backend=backend, tolerance=1e-6)
    assert collectives_of(program, backend) == collectives_of(program, None)


def collectives_of(program: Callable[..., Any], backend: str | None) -> list[str]:
    """Returns the collectives of a forward and a backward, in order, with the shapes of their tensors."""
    x = torch.ones(4, 3, requires_grad=True)
    called = program if backend is None else compiler_core.compile(program, backend=backend, strict=True)
    with compiler_core.record() as record:
        called(x).sum().backward()
    assert record.collectives
    return [f"{VARIANT.sub('', each.name)} {each.tensors}" for each in record.collectives]


def with_gaps(x: Tensor) -> Tensor:
    y = x.detach().t()
    dist.all_reduce(y)
    return y + 1


def recorded(x: Tensor) -> Tensor:
    y = (x * 2).sum()
    dist.all_reduce(y.detach())
    return y


def left_pending(x: Tensor) -> Any:
    y = x.detach() * 2
    return y, dist.all_reduce(y, async_op=True).wait


def in_a_try_block(x: Tensor) -> str:
    y = x.detach() * 2
    try:
        dist.all_to_all_single(torch.empty(3, 3), y)
    except (RuntimeError, ValueError) as error:
        return str(error)
    return ""


def of_another_size(x: Tensor) -> Tensor:
    y = torch.empty(2, 2, 3)
    dist.all_gather_into_tensor(y, x.detach())
    return y


def of_objects(x: Tensor) -> Any:
    found: list[Any] = [None]
    dist.all_gather_object(found, "text")
    return x + 1, found


BREAKING = (with_gaps, recorded, in_a_try_block, of_another_size, of_objects)


@pytest.mark.parametrize("program", BREAKING, ids=lambda each: each.__name__)
def test_others_break_the_graph(program: Callable[..., Any]) -> None:
    record = check(program, rows, grad=program is recorded)
    assert set(break_kinds(record)) == {"collective"}


def test_a_collective_that_is_still_pending_is_started_by_python() -> None:
    compiled = compiler_core.compile(left_pending, backend="eager", strict=True)
    y, wait = compiled(torch.ones(2))
    wait()
    assert torch.equal(y, torch.full((2,), 2.0))
    assert [each.kind for each in record_of(compiled).compiles[0].breaks] == ["collective"]


def indexed(x: Tensor, indices: Tensor) -> Tensor:
    y = x * 2
    dist.all_reduce(y)
    return y[indices]


def indexed_after_a_function(x: Tensor, indices: Tensor) -> Tensor:
    y: Tensor = ReducedTwice.apply(x * 2)
    return y[indices]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "cpp"])
@pytest.mark.parametrize("program", [indexed, indexed_after_a_function], ids=lambda each: each.__name__)
def test_a_collective_is_not_repeated_when_the_graph_fails(program: Callable[..., Any], backend: str) -> None:
    compiled = compiler_core.compile(program, backend=backend, strict=True)
    assert compiled(torch.ones(3), torch.tensor([1])).item() == 2
    count = dist.group.WORLD._get_sequence_number_for_group
    before = count()
    with pytest.raises(IndexError):
        compiled(torch.ones(3), torch.tensor([7]))
    assert count() == before + 1


def test_gradients_of_gradients_do_not_repeat_collectives() -> None:
    x = torch.ones(3, requires_grad=True)
    y = compiler_core.compile(with_gradients, backend="aot_eager", strict=True)(x.expand(4, 3)).sum()
    (gradient,) = torch.autograd.grad(y, x, create_graph=True)
    with pytest.raises(RuntimeError, match="the graph runs collectives"):
        gradient.sum().backward()


def test_another_group_and_another_size_are_another_compile() -> None:
    def program(x: Tensor, group: Any) -> Tensor:
        count: int = group.size()
        y = x * count
        dist.all_reduce(y, group=group)
        return y

    compiled = compiler_core.compile(program, backend="eager", strict=True)
    other = dist.new_group([0])
    for group in (dist.group.WORLD, other, dist.group.WORLD):
        assert torch.equal(compiled(torch.ones(2), group), torch.ones(2))
    assert len(record_of(compiled).compiles) == 2
    dist.destroy_process_group(other)
    assert torch.equal(compiled(torch.ones(2), other), program(torch.ones(2), other))
    assert [each.kind for each in record_of(compiled).compiles[2].breaks] == ["collective"]
