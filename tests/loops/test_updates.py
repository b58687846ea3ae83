"""In-place updates of inputs by kernels, beside eager PyTorch."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import compiler_core
from compiler_core.api.compile import record_of
from compiler_core.autograd.eager_runs import is_unrepeatable, unrepeatable
from tests.sampling import sample


def scaled(x: torch.Tensor) -> None:
    x.mul_(2)


def normalised(x: torch.Tensor) -> None:
    x.copy_(torch.softmax(x, -1))  # the row is read again after its sum


def shifted(x: torch.Tensor) -> None:
    x.copy_(torch.roll(x, 1, -1))


def centred(x: torch.Tensor) -> None:
    x.sub_(x.mean(-1, keepdim=True))


def of_all(x: torch.Tensor) -> None:
    x.div_(x.sum())


def summed(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    total = x.sum()
    x.add_(1)
    return total, x.sum()


def transposed(x: torch.Tensor) -> None:
    x.copy_(x.t().clone())


def twice(x: torch.Tensor, y: torch.Tensor) -> None:
    x.add_(y)
    y.add_(x)


def read_later(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = y @ x
    x.mul_(0.5)
    return z @ x


def partly(x: torch.Tensor) -> torch.Tensor:
    x[1:].mul_(3)
    return x * 1


def averaged(x: torch.Tensor, y: torch.Tensor) -> None:
    x.lerp_(y, 0.1)
    y.copy_(x.relu())


def crossed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    new_x = torch.softmax(x, 0)
    new_y = torch.softmax(y, 1) + x  # it may not move behind the write to x
    product = y @ y
    x.copy_(new_x)
    y.copy_(new_y)
    return product


def needed_before(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A step between reads what the kernel of the new `z` makes: it cannot move behind the last read of the old one."""
    first = z * 2 + z.sum()
    x.div_(z.abs().sum() + 1)
    z.copy_(torch.softmax(y, -1) + y)
    return first, z * 2 + x.sum()


PROGRAMS: tuple[Callable[..., Any], ...] = (
    crossed, needed_before,
    scaled, normalised, shifted, centred, of_all, summed, transposed, twice, read_later, partly, averaged,
)  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("size", [5, 33, 200])
def test_values_versions_and_results(program: Callable[..., Any], size: int) -> None:
    count = program.__code__.co_argcount
    given = [torch.rand(size, size) for _ in range(count)]
    wanted, found = [t.clone() for t in given], [t.clone() for t in given]
    run = compiler_core.compile(program, backend="cpp")
    for _ in range(2):
        results = program(*wanted), run(*found)
        torch.testing.assert_close(results[0], results[1])
        torch.testing.assert_close(wanted, found)
    assert [t._version for t in wanted] == [t._version for t in found]


OPERATIONS: tuple[Callable[..., torch.Tensor], ...] = (
    lambda t, a, b: t.add_(a),
    lambda t, a, b: t.mul_(b).add_(1),
    lambda t, a, b: t.copy_(a @ b),
    lambda t, a, b: t.sub_(a.mean(-1, keepdim=True)),
    lambda t, a, b: t.copy_(b.t() + t),
    lambda t, a, b: t.div_(a.abs().sum() + 1),
    lambda t, a, b: t.copy_(torch.softmax(a, -1) + b),
    lambda t, a, b: t[0].add_(b[1]),
)


def of_random_writes(seed: int) -> Callable[..., list[torch.Tensor]]:
    """A program that writes to its arguments in a random order, and returns values from between."""
    chosen = random.Random(seed)
    steps = [(chosen.choice(OPERATIONS), chosen.choices(range(3), k=3)) for _ in range(chosen.randint(3, 7))]
    kept = chosen.sample(range(len(steps)), 2)

    def program(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> list[torch.Tensor]:
        values, found = (x, y, z), []
        for i, (op, (t, a, b)) in enumerate(steps):
            if t not in (a, b):
                op(values[t], values[a], values[b])
            if i in kept:
                found.append(values[a] * 2 + values[t].sum())
        return found

    return program


@pytest.mark.parametrize("seed", sample(range(400), 20))
def test_random_writes(seed: int) -> None:
    program, size = of_random_writes(seed), 4 if seed % 2 else 33
    torch.manual_seed(seed)
    given = [torch.rand(size, size, dtype=torch.float64) for _ in range(3)]
    wanted, found = [t.clone() for t in given], [t.clone() for t in given]
    run = compiler_core.compile(program, backend="cpp")
    torch.testing.assert_close(run(*found), program(*wanted))
    torch.testing.assert_close(found, wanted)
    assert not [each.breaks for each in record_of(run).compiles if each.breaks]


def stores(run: Callable[..., Any]) -> int:
    wrapper = next(a for c in record_of(run).compiles for a in c.artifacts if a.name == "forward.wrapper")
    return wrapper.text.partition("def random_inputs")[0].count("= empty(")


@pytest.mark.parametrize(("program", "allocations"), [(scaled, 0), (averaged, 0), (shifted, 1), (transposed, 1)])
def test_where_nothing_else_reads_it_the_input_is_written(program: Callable[..., Any], allocations: int) -> None:
    run = compiler_core.compile(program, backend="cpp")
    run(*(torch.rand(8, 8) for _ in range(program.__code__.co_argcount)))
    assert stores(run) == allocations


def test_nothing_is_updated_before_an_operation_that_may_raise() -> None:
    def f(x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        factor: torch.Tensor = torch.linalg.cholesky_ex(a, check_errors=True)[0]
        x.mul_(2)
        return factor

    x, bad = torch.ones(3), -torch.eye(2)
    run = compiler_core.compile(f, backend="cpp")
    run(x, torch.eye(2))
    for each in (f, run):
        with pytest.raises(torch._C._LinAlgError):  # type: ignore[attr-defined]
            each(x, bad)
    assert x.tolist() == [2, 2, 2]


def test_an_index_out_of_range_after_an_update() -> None:
    def f(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return torch.arange(4.0)[i] * x

    x, y = torch.ones(3), torch.ones(3)
    run = compiler_core.compile(f, backend="cpp")
    run(x, torch.tensor([0, 1, 2]))
    f(y, torch.tensor([0, 1, 2]))
    for each, value in ((f, y), (run, x)):
        with pytest.raises(IndexError):
            each(value, torch.tensor([0, 9, 2]))
    assert x.tolist() == y.tolist() == [4, 4, 4]


def test_an_update_that_fails_does_not_run_again() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return y @ y

    x, y = torch.ones(3), torch.ones(3, 3)
    run = compiler_core.compile(f, backend="cpp")
    run(x, y)
    call = next(a.text for a in record_of(run).compiles[0].artifacts if a.name == "autograd")
    assert "raise unrepeatable(error)" in call
    error = unrepeatable(RuntimeError("of a kernel"))
    assert is_unrepeatable(error)
    assert not is_unrepeatable(RuntimeError("of a kernel"))
