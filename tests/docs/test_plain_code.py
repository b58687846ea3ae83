"""Tricks that a reader would stop at: the packages have none."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.docs.imports import FILES

MOST_LAMBDAS = 12


def tricks(tree: ast.AST) -> Iterator[str]:
    """Yields the tricks in a module, each with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            if any(map(_is_truth, (node.left, node.right))):
                yield f"{node.lineno}: a product with a truth value, instead of a condition"
        elif isinstance(node, ast.For | ast.AsyncFor):
            if any(isinstance(each, ast.Attribute) for each in ast.walk(node.target)):
                yield f"{node.lineno}: an attribute as the variable of a loop"
        elif isinstance(node, ast.Dict | ast.List | ast.Tuple):
            values = node.values if isinstance(node, ast.Dict) else node.elts
            if sum(isinstance(value, ast.Lambda) for value in values) > MOST_LAMBDAS:
                yield f"{node.lineno}: a literal of many lambdas"


def _is_truth(node: ast.expr) -> bool:
    return isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))


def test_the_packages_have_no_tricks() -> None:
    found = {name: [*tricks(ast.parse(file.read_text()))] for name, file in FILES.items()}
    assert not {name: lines for name, lines in found.items() if lines}


@pytest.mark.parametrize(
    "text",
    [
        "text = 'rank' + 's' * (n > 1)",
        "values[:1] * (not done)",
        "for self.level, frame in frames: pass",
        f"table = [{'lambda: 1, ' * 13}]",
    ],
)
def test_a_trick_is_found(text: str) -> None:
    assert len([*tricks(ast.parse(text))]) == 1
