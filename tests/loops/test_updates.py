"""In-place updates of inputs by kernels, beside eager PyTorch."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

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


def read_by_the_next(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return x @ y


def moved_behind(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    new = x * 2
    product = x @ y
    x.copy_(new)
    return product


def in_two_kernels(x: torch.Tensor, y: torch.Tensor) -> None:
    x.mul_(2)
    y.add_(x @ y)


def sorted_after(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return y.sort()[0]


def also_returned(x: torch.Tensor) -> torch.Tensor:
    z = x * 2
    x.copy_(z)
    return z


PROGRAMS: tuple[Callable[..., Any], ...] = (
    crossed, needed_before, moved_behind, read_by_the_next, in_two_kernels, sorted_after, also_returned,
    scaled, normalised, shifted, centred, of_all, summed, transposed, twice, read_later, partly, averaged,
)  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize(("size", "is_transposed"), [(5, False), (33, True), (200, False)])
def test_values_versions_and_results(program: Callable[..., Any], size: int, is_transposed: bool) -> None:
    count = program.__code__.co_argcount
    given = [torch.rand(size, size).t() if is_transposed else torch.rand(size, size) for _ in range(count)]
    wanted, found = [t.clone() for t in given], [t.clone() for t in given]
    run = compiler_core.compile(program, backend="cpp")
    for _ in range(2):
        results = program(*wanted), run(*found)
        torch.testing.assert_close(results[0], results[1])
        torch.testing.assert_close(wanted, found)
    assert [t._version for t in wanted] == [t._version for t in found]
    assert shared(results[0], wanted) == shared(results[1], found)


def shared(result: Any, given: list[torch.Tensor]) -> list[bool]:
    """Whether each result has the memory of an argument."""
    memory = {t.untyped_storage().data_ptr() for t in given}
    return [t.untyped_storage().data_ptr() in memory for t in tree_leaves(result) if isinstance(t, torch.Tensor)]


def test_what_a_backward_needs_is_not_written() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = w * x.clone()
        x.mul_(2)
        return y

    x, y, w = torch.rand(3), torch.rand(3), torch.rand(3, requires_grad=True)
    y.copy_(x)
    (wanted,) = torch.autograd.grad(f(y, w).sum(), w)
    (found,) = torch.autograd.grad(compiler_core.compile(f, backend="cpp")(x, w).sum(), w)
    torch.testing.assert_close((found, x), (wanted, y))


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


@pytest.mark.parametrize(
    ("program", "allocations"),
    [
        (scaled, 0), (averaged, 0), (shifted, 1), (transposed, 1), (also_returned, 1),
        (read_later, 0), (moved_behind, 0), (read_by_the_next, 0), (in_two_kernels, 0), (sorted_after, 0),
    ],
)  # fmt: skip
def test_where_nothing_else_reads_it_the_input_is_written(program: Callable[..., Any], allocations: int) -> None:
    run = compiler_core.compile(program, backend="cpp")
    run(*(torch.rand(8, 8) for _ in range(program.__code__.co_argcount)))
    assert stores(run) == allocations


def indexed(of: torch.Tensor) -> torch.Tensor:
    return torch.arange(4.0)[of.long()]


DRAWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "multinomial": lambda of: torch.multinomial(of, 1),
    "bernoulli": lambda of: torch.bernoulli(of / 2),
    "bernoulli in place": lambda of: torch.empty(3).bernoulli_(of / 2),
    "normal": lambda of: torch.normal(of, of) + torch.normal(0.0, of),
    "poisson": torch.poisson,
}


def factored(of: torch.Tensor) -> torch.Tensor:
    factor: torch.Tensor = torch.linalg.cholesky_ex(of.diag(), check_errors=True)[0]
    return factor


@torch.library.custom_op("tests_of_updates::checked", mutates_args=())
def checked(of: torch.Tensor) -> torch.Tensor:
    if of.min() < 0:
        raise IndexError("negative")
    return of.clone()


checked.register_fake(torch.empty_like)


RAISING: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "index": indexed, "factor": factored, "custom": checked, **DRAWS,
}  # fmt: skip


@pytest.mark.parametrize("name", RAISING)
@pytest.mark.parametrize("is_updated_before", [True, False])
def test_what_raises_leaves_the_updates_before_it_alone(name: str, is_updated_before: bool) -> None:
    raises = RAISING[name]

    def f(x: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        new = x * 2
        if is_updated_before:
            x.copy_(new)
        result = raises(of * (new.sum() > 0))  # the kernel that computes `new` comes first
        if not is_updated_before:
            x.copy_(new)
        return result

    x, y, good, bad = torch.ones(3), torch.ones(3), torch.tensor([1.0, 1, 2]), torch.tensor([1.0, -9, 2])
    run = compiler_core.compile(f, backend="cpp")
    run(x, good)
    f(y, good)
    for each, value in ((f, y), (run, x)):
        with pytest.raises((IndexError, RuntimeError)):
            each(value, bad)
    assert x.tolist() == y.tolist() == [4 if is_updated_before else 2] * 3


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
