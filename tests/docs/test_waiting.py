"""Tests of the page wait for what they expect: an ``assert`` looks once, when a slow machine may not be so far."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.docs.imports import ROOT

READS = {
    *("all", "all_inner_texts", "all_text_contents", "bounding_box", "count", "evaluate", "evaluate_all"),
    *("get_attribute", "inner_html", "inner_text", "input_value", "is_checked", "is_disabled", "is_enabled"),
    *("is_focused", "is_hidden", "is_visible", "pinned_lines", "pinned_nodes", "text_content"),
}
"""The methods that look at the page and do not wait."""
SLEEPS = {"sleep", "wait_for_timeout"}


def hasty(tree: ast.AST) -> Iterator[str]:
    """Yields what does not wait for the page, or waits for some time instead, each with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            yield from (f"{node.lineno}: assert looks once at {name}" for name in _methods(node) if name in READS)
        elif isinstance(node, ast.Expr):
            yield from (f"{node.lineno}: {name}" for name in _methods(node) if name in SLEEPS)


def _methods(tree: ast.AST) -> list[str]:
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [call.attr for call in calls if isinstance(call, ast.Attribute)]


def test_the_tests_of_the_page_wait() -> None:
    files = (ROOT / "tests" / "ui").glob("test_*.py")
    found = {file.name: [*hasty(ast.parse(file.read_text()))] for file in files}
    assert not {name: lines for name, lines in found.items() if lines}, "use expect(...) or tests.ui.drive.expect_value"


@pytest.mark.parametrize(
    "text",
    ["assert explorer.pinned_lines(0) == ['x']", "assert all(r.count() for r in rows)", "page.wait_for_timeout(300)"],
)
def test_haste_is_found(text: str) -> None:
    assert len([*hasty(ast.parse(text))]) == 1
