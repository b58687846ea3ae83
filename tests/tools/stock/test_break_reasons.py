"""The reasons of stock's graph breaks are facts, in the words that both engines share."""

from __future__ import annotations

import ast
import itertools
import json
import operator
import re
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

import compiler_core
from compiler_core.capture.break_kinds import KINDS
from compiler_core.records.capture import BreakReason
from compiler_core.tools.stock.read.breaks import reasons
from compiler_core.tools.stock.read.breaks.reasons import reason_of
from tests.docs.test_graph_breaks import NEED_RANKS, programs
from tests.sampling import sample

ELSEWHERE: dict[BreakReason, BreakReason] = {
    "skipped function": "unsupported call",
    "unsupported operation": "unsupported call",
    "generator": "exception",
}
"""Where stock stops for another reason than our engine, in the programs of docs/graph_breaks.md."""
if torch.__version__ >= "2.15":
    ELSEWHERE["requires_grad"] = "backward"  # it captures `requires_grad_()`, but not the `grad` behind it
ROOT = Path(__file__).parents[3]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", sample([kind for kind in KINDS if kind not in NEED_RANKS], 5))
def test_stock_breaks_for_the_same_reason(kind: BreakReason) -> None:
    """If it breaks at all, in the program that docs/graph_breaks.md has for a kind."""
    torch._dynamo.reset()
    with compiler_core.record(engine="torch") as record:
        try:
            torch.compile(programs(kind)[0], backend="eager")(torch.ones(3))
        except ValueError:
            assert kind == "exception"
    found = {each.reason for compile_ in record.compiles for each in compile_.breaks}
    assert not found or ELSEWHERE.get(kind, kind) in found


NEW_IN_2_12 = {r"Attempted to copy\.deepcopy.*", "P2P compilation disabled.*"}
NEW_IN_2_13 = {"Invalid call to __build_class__", ".*mark_dirty.*", "missing tp_iter", r"Missing tp_iter\w+"}
NEW_IN_2_14 = {
    "call to a callable object with no traceable __call__",
    "C-implemented special method without VariableTracker model",
}


def test_every_pattern_is_of_a_type_that_dynamo_has() -> None:
    registry = Path(torch._dynamo.__file__).parent / "graph_break_registry.json"
    entries = json.loads(registry.read_text()).values()
    types = {each["Gb_type"] for versions in entries for each in versions}
    parts = [part for pattern, _ in reasons._BY_TYPE for part in _alternatives(pattern)]
    missing = {part for part in parts if not any(re.fullmatch(part, type_) for type_ in types)}
    assert missing in (set(), *itertools.accumulate([NEW_IN_2_14, NEW_IN_2_13, NEW_IN_2_12], operator.or_))
    assert reasons.LOOP in types
    assert {reason_of(type_, "") for type_ in types} <= set(get_args(BreakReason))


def _alternatives(pattern: str) -> list[str]:
    """Returns the parts of a pattern that ``|`` separates outside of parentheses."""
    parts, depth = [""], 0
    for character in pattern:
        depth += (character == "(") - (character == ")")
        if character == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part for part in parts if part]


def test_a_break_in_pytorchs_optimizer_is_not_the_users() -> None:
    layer = torch.nn.Linear(3, 3)
    optimizer = torch.optim.SGD(layer.parameters())

    def program(x: torch.Tensor) -> None:
        layer(x).sum().backward()
        optimizer.step()

    torch._dynamo.reset()
    with compiler_core.record(engine="torch") as record:
        torch.compile(program, backend="eager")(torch.ones(3))
    found = {each.reason: each for compile_ in record.compiles for each in compile_.breaks}
    assert set(found) == {"backward", "optimizer"}
    problems = [each for each in record.problems if each.kind == "graph break"]
    assert {(each.grade, each.is_training, each.filename) for each in problems} == {("expected", True, __file__)}
    assert all(each.advice.startswith("Nothing to change") for each in problems)


@pytest.mark.parametrize("file", ["tools/questions/problems.py", "tools/questions/advice.py", "records/capture.py"])
def test_nothing_is_decided_by_a_pattern_over_text(file: str) -> None:
    """Grades, advice and places follow from facts: the text of an explanation is made, and not read again."""
    tree = ast.parse((ROOT / "compiler_core" / file).read_text())
    read = {"explanation", "cause", "hint", "title", "advice", "reason", "skipped", "kind"}

    def is_text(node: ast.AST) -> Any:
        return isinstance(node, ast.Attribute) and node.attr in read

    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            searches = node.func.attr in ("match", "search", "fullmatch", "startswith", "endswith", "find")
            assert not (searches and any(map(is_text, [*node.args, node.func.value]))), ast.unparse(node)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In) and is_text(node.comparators[0]):
            raise AssertionError(ast.unparse(node))
