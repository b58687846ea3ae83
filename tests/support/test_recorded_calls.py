"""Tests of custom operators: each call of the program runs once, also if its graph fails and the frame runs again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import compiler_core
from tests.sampling import pairs

calls: list[str] = []
custom_op: Any = torch.library.custom_op


@custom_op("cutaway_calls::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    calls.append("double")
    return torch.mul(x, 2)


@custom_op("cutaway_calls::halve", mutates_args=())
def halve(x: torch.Tensor) -> torch.Tensor:
    calls.append("halve")
    return x / 2


@custom_op("cutaway_calls::log", mutates_args=())
def log(x: torch.Tensor) -> None:
    calls.append("log")


@custom_op("cutaway_calls::read", mutates_args=())
def read(x: torch.Tensor) -> tuple[torch.Tensor, int]:
    calls.append("read")
    return x + len(calls), len(calls)


class EndOfFile(Exception):
    pass


@custom_op("cutaway_calls::fail", mutates_args=())
def fail(x: torch.Tensor) -> torch.Tensor:
    calls.append("fail")
    raise EndOfFile("no more")


@custom_op("cutaway_calls::count_down", mutates_args=("x",))
def count_down(x: torch.Tensor) -> None:
    calls.append("count_down")
    x.sub_(1)


for operator in (double, halve, fail):
    operator.register_fake(torch.empty_like)
log.register_fake(lambda x: None)
read.register_fake(lambda x: (torch.empty_like(x), torch.library.get_ctx().new_dynamic_size()))


def save(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


def double_backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    log(grad)
    halve(ctx.saved_tensors[0])
    gradient: torch.Tensor = halve(grad) * 4
    return gradient


double.register_autograd(double_backward, setup_context=save)
for operator in (halve, fail):
    operator.register_autograd(lambda ctx, grad: halve(grad))

SEVEN = torch.tensor([7])


def unused(x: torch.Tensor) -> Any:
    double(x)
    return x + 1


def equal_calls(x: torch.Tensor) -> Any:
    return double(x) + double(x)


def without_result(x: torch.Tensor) -> Any:
    log(x)
    log(x)
    return x + 1


def written_and_unused(x: torch.Tensor) -> Any:
    y = x * 2
    count_down(y)
    return x + 1


def chain(x: torch.Tensor) -> Any:
    return (double(x.sin()).cos() * double(x).sin()).exp()


def used_later(x: torch.Tensor) -> Any:
    y = double(x)
    return y[SEVEN] + y


def after_the_error(x: torch.Tensor) -> Any:
    y = x[SEVEN]
    return double(y)


def caught(x: torch.Tensor) -> Any:
    y = double(x)
    try:
        return y[SEVEN]
    except IndexError:
        return double(y) * 3


def its_own_error(x: torch.Tensor) -> Any:
    return fail(x) + 1


def its_own_error_caught(x: torch.Tensor) -> Any:
    y = double(x)
    try:
        y = fail(y) + 1
    except EndOfFile:
        y = halve(y)
    return double(y) * x


def in_a_list(x: torch.Tensor) -> Any:
    seen: list[torch.Tensor] = []
    try:
        for _ in range(3):
            seen.append(double(x))
        fail(x)
    finally:
        calls.append(f"{len(seen)} seen")
    return seen


def written_before(x: torch.Tensor) -> Any:
    x = x.clone()
    log(x)
    x.add_(1)
    y = double(x)
    try:
        return y[SEVEN]
    except IndexError:
        return x + y


def between_parts(x: torch.Tensor) -> Any:
    y = double(x)
    z = halve(y[y > 1])
    return z[SEVEN] + double(z) + y.sum()


PROGRAMS = (
    between_parts,
    unused,
    equal_calls,
    without_result,
    written_and_unused,
    chain,
    used_later,
    after_the_error,
    caught,
    its_own_error,
    its_own_error_caught,
    in_a_list,
    written_before,
)


def outcome(function: Callable[[torch.Tensor], Any], requires_grad: bool) -> tuple[Any, ...]:
    """Returns what a call returns or raises, the gradient of its argument, and the custom operators that it calls."""
    calls.clear()
    x = torch.arange(3.0, requires_grad=requires_grad)
    try:
        result = function(x)
        if requires_grad:
            result.sum().backward()
        values = [each.double().round(decimals=4).tolist() for each in (result, x.grad) if each is not None]
    except (IndexError, EndOfFile) as error:
        return type(error), str(error), sorted(calls)
    return values, sorted(calls)


@pytest.mark.parametrize(("program", "backend"), pairs(PROGRAMS, ["eager", "aot_eager", None], 2))
@pytest.mark.parametrize("requires_grad", [False, True])
def test_each_call_runs_once(program: Any, requires_grad: bool, backend: str | None) -> None:
    compiled = compiler_core.compile(program, backend=backend)
    wanted = outcome(program, requires_grad)
    for _ in range(2):
        assert outcome(compiled, requires_grad) == wanted


@pytest.mark.parametrize("backend", ["eager", "aot_eager", None])
def test_what_an_operator_reads_is_read_once(backend: str | None) -> None:
    """The second run gets the numbers that the first one read, with the other results of the call."""

    def next_line(x: torch.Tensor) -> Any:
        y, number = read(x)
        try:
            return y[SEVEN], number
        except IndexError:
            return y * 2, number

    compiled = compiler_core.compile(next_line, backend=backend)
    for _ in range(2):
        calls.clear()
        y, number = compiled(torch.ones(3))
        assert calls == ["read"]
        assert (y.tolist(), number) == ([4.0] * 3, 1)


def test_an_operator_that_runs_a_compiled_function() -> None:
    inner = compiler_core.compile(lambda x: double(x) + 1)

    @custom_op("cutaway_calls::nested", mutates_args=())
    def nested(x: torch.Tensor) -> torch.Tensor:
        calls.append("nested")
        result: torch.Tensor = inner(x)
        return result

    nested.register_fake(torch.empty_like)

    def run(x: torch.Tensor) -> Any:
        y, z = nested(x), double(x)
        try:
            return y[SEVEN] + z
        except IndexError:
            return y + z

    calls.clear()
    assert compiler_core.compile(run)(torch.ones(3)).tolist() == [5.0] * 3
    assert calls == ["nested", "double", "double"]
