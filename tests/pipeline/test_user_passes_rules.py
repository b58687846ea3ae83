"""Rules of lowering and fusion that the user wrote: what they change, what is recorded, and what is refused."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import compiler_core
from compiler_core import GraphPass
from compiler_core.errors import GraphPassWarning, StrictError, UsageError
from compiler_core.records import Record
from compiler_core.tools.changes.user_changes import LoopNest
from compiler_core.tools.inspection.what_if import NOT_POSSIBLE, fusion_rules, notes_of_rules
from compiler_core.tools.stock.inductor_passes import stock_passes

TANH = "aten.tanh.default"


def program(x: torch.Tensor) -> torch.Tensor:
    return (x.tanh() * 2).sin().sum(1)


def clipped(x: torch.Tensor) -> torch.Tensor:
    return (x.clamp(-1, 1) * 2).sin().sum(1)


def hard_tanh(body: Any, x: Any) -> Any:
    return body.op("minimum", body.op("maximum", x, -1.0), 1.0)


def sine_apart(first: LoopNest, second: LoopNest) -> str | None:
    return "keep_apart" if "sin" in first.nodes ^ second.nodes else None


@pytest.fixture
def x() -> torch.Tensor:
    return torch.linspace(-2, 2, 64 * 40).reshape(64, 40)


@pytest.fixture
def caught() -> Iterator[list[warnings.WarningMessage]]:
    compiler_core.reset()  # warnings are shown once
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield found


def compiled(x: torch.Tensor, *passes: GraphPass, **options: Any) -> tuple[torch.Tensor, Any]:
    with compiler_core.record() as record:
        found = compiler_core.compile(program, passes=passes, **options)(x)
    return found, record.compiles[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_lowering_rule_takes_the_place_of_the_usual_one(x: torch.Tensor, dtype: torch.dtype) -> None:
    found, compile_ = compiled(x.to(dtype), GraphPass(hard_tanh, "lowering", operator=TANH))
    torch.testing.assert_close(found, clipped(x.to(dtype)), rtol=1e-2, atol=1e-2)
    change = compile_.find("pass.hard_tanh.forward").text
    assert re.search(r"^-    \w+: f32 = tanh\(v", change, re.MULTILINE)
    assert "maximum(v" in change
    assert [e.detail for e in compile_.events if e.name == "pass hard_tanh"] == ["changed the program"]


def test_a_custom_operator_becomes_part_of_a_kernel(x: torch.Tensor) -> None:
    with torch.library._scoped_library("cutaway_rules", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
        twice: Any = torch.ops.cutaway_rules.twice
        rule = GraphPass(lambda body, x: body.op("mul", x, 2), "lowering", "twice", "cutaway_rules.twice.default")
        counts = []
        for passes in ((), (rule,)):
            with compiler_core.record() as record:
                found = compiler_core.compile(lambda x: twice(x.sin()).cos(), passes=passes)(x)
            torch.testing.assert_close(found, (x.sin() * 2).cos())
            counts.append([k.language for k in record.compiles[0].kernels])
    assert counts == [["cpp", "extern", "cpp"], ["cpp"]]


def test_a_fusion_rule_decides(x: torch.Tensor) -> None:
    found, compile_ = compiled(x, GraphPass(sine_apart, "fusion"))
    torch.testing.assert_close(found, program(x))
    assert len(compile_.kernels) == 3
    assert "+forward_1: for" in compile_.find("pass.sine_apart.forward").text
    assert {r.kind for r in compile_.refusals} == {"asked"}


def test_wrong_fusions_are_not_made(x: torch.Tensor) -> None:
    def rows_and_columns(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.cumsum(0), x.cumsum(1)

    always = GraphPass(lambda first, second: "force_fuse", "fusion", "always")
    for each, plain in zip(
        compiler_core.compile(rows_and_columns, passes=[always])(x), rows_and_columns(x), strict=True
    ):
        torch.testing.assert_close(each, plain)


RULES = {
    "it returned int; a lowering rule returns a value": GraphPass(lambda b, x: 3, "lowering", "p", TANH),
    "unknown operation nope": GraphPass(lambda b, x: b.op("nope", x), "lowering", "p", TANH),
    "add takes 2 arguments": GraphPass(lambda b, x: b.op("add", x), "lowering", "p", TANH),
    "ZeroDivisionError: division by zero": GraphPass(lambda b, x: 1 / 0, "lowering", "p", TANH),
    "it returned 'fuse'; a fusion rule returns 'keep_apart', 'force_fuse' or None": GraphPass(
        lambda first, second: "fuse", "fusion", "p"
    ),
}


@pytest.mark.parametrize("message", RULES)
def test_a_wrong_rule_is_left_out(x: torch.Tensor, message: str, caught: list[warnings.WarningMessage]) -> None:
    found, compile_ = compiled(x, RULES[message])
    torch.testing.assert_close(found, program(x))
    (failure,) = compile_.failures
    assert message in failure.message
    assert message in str(caught[0].message)
    assert issubclass(caught[0].category, GraphPassWarning)
    assert not [a for a in compile_.artifacts if a.pane == "passes"]


def test_strict_raises(x: torch.Tensor) -> None:
    with pytest.raises(StrictError, match="it returned int"):
        compiled(x, next(iter(RULES.values())), strict=True)


def test_requests_that_mean_nothing() -> None:
    with pytest.raises(UsageError, match="a lowering rule, and no other pass, has an operator"):
        GraphPass(hard_tanh, "lowering")
    with pytest.raises(UsageError, match="a lowering rule, and no other pass, has an operator"):
        GraphPass(sine_apart, "fusion", operator=TANH)


# ---------------------------------------------------------------- stock


def stock_program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return x.tanh().sum(1), x.sin().sum(1), y.exp().sum(1)


def of_stock(x: torch.Tensor, *passes: GraphPass) -> tuple[torch.Tensor, Record, int]:
    """Returns the first result, the record, and the number of loop nests."""
    torch._dynamo.reset()
    with compiler_core.record(engine="torch") as record, stock_passes(passes):
        found, *others = torch.compile(stock_program)(x, 1 - x)
    torch.testing.assert_close(others, [*stock_program(x, 1 - x)[1:]])
    return found, record, sum(a.text.count("#pragma omp for") for a in record.artifacts if a.pane == "kernel")


def test_rules_in_stock(x: torch.Tensor, caught: list[warnings.WarningMessage]) -> None:
    found, _, _ = of_stock(x, GraphPass(hard_tanh, "lowering", operator=TANH))
    torch.testing.assert_close(found, x.clamp(-1, 1).sum(1))
    for rule in (next(iter(RULES.values())), list(RULES.values())[-1]):
        found, _, _ = of_stock(x, rule)
        torch.testing.assert_close(found, x.tanh().sum(1))
    assert [str(w.message) for w in caught if w.category is GraphPassWarning and "p: it returned" in str(w.message)]


def test_kernels_of_stock_are_split_and_joined(x: torch.Tensor) -> None:
    asked: list[tuple[LoopNest, LoopNest]] = []

    def joined(first: LoopNest, second: LoopNest) -> str | None:
        asked.append((first, second))
        return "force_fuse"

    _, usual, count = of_stock(x)
    (kernel,) = usual.compiles[0].kernels
    (rule,) = fusion_rules(usual, [kernel.name], [])
    found, split, split_count = of_stock(x, rule)
    torch.testing.assert_close(found, x.tanh().sum(1))
    _, _, joined_count = of_stock(x, GraphPass(joined, "fusion"))
    assert (count, split_count, joined_count) == (2, 6, 1)
    assert {*frozenset[str]().union(*(nest.nodes for pair in asked for nest in pair))} == {
        *("tanh", "sum_1", "sin", "sum_2", "exp", "sum_3")
    }
    (times,) = notes_of_rules(usual, split, [rule])
    assert re.fullmatch(r"forward\.wrapper, on random inputs: [\d.]+ us -> [\d.]+ us \(.+\)", times)
    assert notes_of_rules(usual, usual, [rule]) == [f"{rule.name} changed nothing: {NOT_POSSIBLE}"]
    with pytest.raises(UsageError, match=f"there is no kernel forward_0; there are {kernel.name}"):
        fusion_rules(usual, ["forward_0"], [])
