"""docs/graph_breaks.md says of each kind of break what the compiler says, and its program makes such a break."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
import torch

import compiler_core as cc
from compiler_core.api.compile import record_of
from compiler_core.capture.break_kinds import BEFORE, KINDS
from compiler_core.records.capture import NO_CHANGE_KNOWN, BreakReason
from compiler_core.tools.testing import break_kinds

NO_CHANGE: set[BreakReason] = {"backward", "gradient hook", "optimizer", "exception"}
"""Kinds for which nothing needs to change, and no second program is on the page."""
NEED_RANKS: set[BreakReason] = {"collective", "distributed tensor"}
PAGE = Path(__file__).parents[2] / "docs" / "graph_breaks.md"
SECTIONS = dict(re.findall(r"^### (.*?)\n\n(.*?)(?=\n### |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL))


def test_every_kind_has_its_section() -> None:
    assert list(SECTIONS) == list(KINDS) == [each for each in get_args(BreakReason) if each != "other"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_section_says_what_the_record_says(kind: BreakReason) -> None:
    text = f"{KINDS[kind].explanation} {KINDS[kind].hint}".strip()
    assert SECTIONS[kind].startswith(f"{text}\n")


def programs(kind: BreakReason) -> list[Callable[..., Any]]:
    """Returns the programs of a section: with the break, and without it if the section has one."""
    found = []
    for number, text in enumerate(re.findall(r"```python\n(.*?)```", SECTIONS[kind], re.DOTALL)):
        filename = f"<{kind} {number}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        space: dict[str, Any] = {}
        exec(compile(text, filename, "exec"), space)
        found.append(space["program"])
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_its_program_breaks_so(kind: BreakReason) -> None:
    compiled = cc.compile(programs(kind)[0], backend="eager", strict=True)
    try:
        compiled(torch.ones(3))
    except ValueError:
        assert kind == "exception"
    record = record_of(compiled)
    assert kind in break_kinds(record)
    hints = [b.hint for c in record.compiles for b in c.breaks if b.kind == kind]
    if not KINDS[kind].hint:
        assert hints[-1].startswith(NO_CHANGE_KNOWN if kind == "unsupported instruction" else BEFORE)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # of stock
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in NO_CHANGE | NEED_RANKS])
@pytest.mark.parametrize("engine", ["core", "torch"])
def test_its_second_program_computes_the_same_in_one_graph(kind: BreakReason, engine: Literal["core", "torch"]) -> None:
    program, without = programs(kind)
    x = torch.ones(3)
    torch._dynamo.reset()
    with cc.record(engine=engine) as record:
        make: Any = cc.compile if engine == "core" else torch.compile
        result = make(without, backend="eager")(x.clone())
    torch.testing.assert_close(result, program(x.clone()))
    assert [b.kind for c in record.compiles for b in c.breaks] == []


def test_what_has_no_second_program_needs_no_change() -> None:
    assert {kind for kind in KINDS if len(programs(kind)) == 1} == NO_CHANGE | NEED_RANKS
    assert all(KINDS[kind].hint.startswith("Nothing to change") for kind in NO_CHANGE)
