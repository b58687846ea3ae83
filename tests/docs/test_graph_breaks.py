"""docs/graph_breaks.md says of each kind of break what the compiler says, and its program makes such a break."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import compiler_core as cc
from compiler_core.api.compile import record_of
from compiler_core.api.testing import break_kinds
from compiler_core.capture.break_kinds import KINDS

PAGE = Path(__file__).parents[2] / "docs" / "graph_breaks.md"
SECTIONS = dict(re.findall(r"^### (.*?)\n\n(.*?)(?=\n### |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL))


def test_every_kind_has_its_section() -> None:
    assert list(SECTIONS) == list(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_section_says_what_the_record_says(kind: str) -> None:
    assert SECTIONS[kind].startswith(f"{KINDS[kind].explanation} {KINDS[kind].hint}\n")


@pytest.mark.parametrize("kind", KINDS)
def test_its_program_breaks_so(kind: str) -> None:
    (text,) = re.findall(r"```python\n(.*?)```", SECTIONS[kind], re.DOTALL)
    space: dict[str, object] = {}
    exec(compile(text, f"<{kind}>", "exec"), space)
    compiled = cc.compile(space["program"], backend="eager", strict=True)
    try:
        compiled(torch.ones(3))
    except ValueError:
        assert kind == "exception"
    assert kind in break_kinds(record_of(compiled))
