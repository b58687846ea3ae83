"""docs/kernels.md: every kind of refusal is there as the code documents it, and its programs do what they say."""

from __future__ import annotations

import re
from pathlib import Path

from compiler_core.codegen.source import targets
from compiler_core.loops.fuse.rules import REFUSALS

PAGE = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text()


def test_every_kind_of_refusal() -> None:
    assert dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE, re.MULTILINE)) == REFUSALS


def test_targets_are_known() -> None:
    section = PAGE.partition("## Machine code")[2].partition("```")[0]
    assert set(re.findall(r"`(cpu|x86[\w-]+|sm_\w+|gfx\w+)`", section)) <= set(targets())


def test_programs() -> None:
    space: dict[str, object] = {}
    for text in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(text, "<docs/kernels.md>", "exec"), space)
