"""Symbolic sizes and numbers: the options and marks that request them, their record, and how often they recompile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import compiler_core as cc
from compiler_core.api.compile import record_of
from compiler_core.errors import UsageError
from compiler_core.records import Record


def run(function: Callable[..., Any], sizes: list[int], **options: Any) -> Record:
    """Compiles a function and compares it with eager for these numbers of rows."""
    compiled = cc.compile(function, backend="eager", strict=True, **options)
    for size in sizes:
        x = torch.randn(size, 4)
        assert torch.equal(compiled(x), function(x))
    return record_of(compiled)


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * x.shape[0]


def first_of_five(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] == 5:
        return x[0]
    return x


@pytest.mark.parametrize(("dynamic", "compiles"), [(True, 1), (None, 2), (False, 4)])
def test_option(dynamic: bool | None, compiles: int) -> None:
    assert len(run(scaled, [3, 5, 7, 9], dynamic=dynamic).compiles) == compiles


def test_a_marked_dimension_is_symbolic_at_once() -> None:
    compiled = cc.compile(scaled, backend="eager", strict=True)
    x = torch.randn(3, 4)
    cc.mark_dynamic(x, 0, max=64)
    for tensor in (x, torch.randn(5, 4), torch.randn(64, 4)):
        assert torch.equal(compiled(tensor), scaled(tensor))
    (compile_,) = record_of(compiled).compiles
    (symbol,) = compile_.symbols
    assert (symbol.low, symbol.high, symbol.why) == (2, 64, "it was marked dynamic")
    assert [type(each) for each in (symbol.value, symbol.low, symbol.high)] == [int, int, int]  # not 64.0, in a lesson
    assert torch.equal(compiled(torch.ones(65, 4)), scaled(torch.ones(65, 4)))
    assert len(record_of(compiled).compiles) == 2


def test_marks_of_stock() -> None:
    compiled = cc.compile(scaled, backend="eager", strict=True)
    x = torch.randn(3, 4)
    torch._dynamo.maybe_mark_dynamic(x, 0)
    compiled(x)
    assert [s.source for s in record_of(compiled).compiles[0].symbols] == ["L['x'].size()[0]"]


def test_a_static_dimension_stays_static() -> None:
    compiled = cc.compile(scaled, backend="eager", strict=True)
    for size in (3, 5, 7):
        x = torch.randn(size, 4)
        cc.mark_static(x, 0)
        compiled(x)
    assert len(record_of(compiled).compiles) == 3


def test_a_marked_dimension_that_is_specialised() -> None:
    x = torch.randn(5, 4)
    cc.mark_dynamic(x, 0)
    with pytest.raises(UsageError) as raised:
        cc.compile(first_of_five, backend="eager")(x)
    size = "L['x'].size()[0]"
    assert str(raised.value) == f"{size} was marked dynamic, but is specialised to 5: {size} == 5"


def test_marks_that_cannot_be() -> None:
    x = torch.randn(3, 4)
    cc.mark_dynamic(x, 0, min=4, max=8)
    with pytest.raises(UsageError, match="from 4 to 8, but it is 3"):
        cc.compile(scaled, backend="eager")(x)


def test_sizes_0_and_1_of_a_marked_dimension_stay_numbers() -> None:
    compiled = cc.compile(scaled, backend="eager")
    compiles = []
    for size in (1, 2, 3, 0, 1, 4):
        x = torch.randn(size, 4)
        cc.mark_dynamic(x, 0)
        assert torch.equal(compiled(x), scaled(x))
        compiles.append(len(record_of(compiled).compiles))
    assert compiles == [1, 2, 2, 3, 3, 3]


def test_the_record_says_what_is_symbolic_and_what_made_it_static() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 4:
            x = x + 1
        for i in range(x.shape[1]):
            x = x * i
        return x

    compiled = cc.compile(program, backend="eager", strict=True)
    for shape in ((3, 2), (5, 3)):
        compiled(torch.randn(shape))
    record = record_of(compiled)
    rows, columns = record.compiles[1].symbols
    assert (rows.source, rows.value, rows.low, rows.became) == ("L['x'].size()[0]", 5, 5, None)
    assert rows.condition == "L['x'].size()[0] > 4"
    assert columns.became == "3"
    assert columns.condition == "L['x'].size()[1] == 3"
    requests = [(s.condition_line, record.text(s.condition_line or "")) for s in (rows, columns)]
    assert ["if x.shape[0] > 4:" in requests[0][1], "range(x.shape[1])" in requests[1][1]] == [True, True]
    guards = record.compiles[1].find("guards").text
    assert "L['x'].size()[0], from 5: it had another value before" in guards
    assert "specialised to 3" in guards


def test_the_cause_of_a_recompile_is_a_condition() -> None:
    record = run(first_of_five, [3, 4, 5])
    cause = record.compiles[2].cause
    assert cause is not None
    assert (cause.guard, cause.got) == ("L['x'].size()[0] != 5", "x.size(0) is 5")
    assert cause.line is not None


def test_parameters_are_static() -> None:
    compiled = cc.compile(lambda m, x: m(x), backend="eager", strict=True)
    for size in (3, 5, 7):
        compiled(torch.nn.Linear(size, 2), torch.randn(4, size))
    assert len(record_of(compiled).compiles) == 3


def test_strides_that_differ() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    compiled = cc.compile(program, backend="eager", strict=True)
    for width in (5, 6, 7, 9):
        x = torch.randn(3, width)[:, :4]
        assert torch.equal(compiled(x), program(x))
    assert len(record_of(compiled).compiles) == 2


def test_a_batch_as_large_as_the_channels() -> None:
    """Is no other case than other batches."""

    def normalised(x: torch.Tensor) -> torch.Tensor:
        return torch.batch_norm(x, None, None, None, None, True, 0.1, 1e-5, False)

    assert len(run(normalised, [3, 4, 5, 6]).compiles) == 2


def test_a_number_guarded_by_its_type() -> None:
    compiled = cc.compile(lambda x, n: x * n if n == 5 else x, backend="eager", strict=True)
    x = torch.ones(2)
    for n in (3, 5, 5.0, 4):
        assert torch.equal(compiled(x, n), x * n if n == 5 else x)
