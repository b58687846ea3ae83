"""docs/glossary.md, and the names of modules that it replaced."""

from __future__ import annotations

import re

import pytest

from tests.docs.imports import FILES, ROOT

GIVEN_UP = (
    *("meeting", "bodies", "spaces", "companions", "glue", "outside", "aspects", "told", "happened", "ambient"),
    *("already", "later", "stepping", "shown", "entries", "ladder", "pages", "recipe", "clock", "reconstruct"),
)
"""Words that were names of modules and said nothing to an engineer from this field."""


def test_no_module_has_a_name_that_was_given_up() -> None:
    assert not [name for name in FILES if name.rpartition(".")[2] in GIVEN_UP]


@pytest.mark.parametrize("name", re.findall(r"`(compiler_core/[\w/]+)`", (ROOT / "docs" / "glossary.md").read_text()))
def test_what_the_glossary_names_is_there(name: str) -> None:
    assert (ROOT / name).exists()


def test_the_glossary_is_in_order() -> None:
    words = re.findall(r"^\| \*\*(.+?)\*\* \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    assert len(words) > 25
    assert words == sorted(words)
