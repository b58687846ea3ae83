"""Copies of syntax trees."""

from __future__ import annotations

import ast

from compiler_core.support.texts import copied_tree

TEXT = """
def f(x, *, n=1):
    with open(f"{x!r}") as file:
        return [a.b for a in file if a > n], {**x}
"""


def test_a_copy_of_a_tree_has_what_is_its_own() -> None:
    tree = ast.parse(TEXT)
    nodes = [each for each in ast.walk(tree) if each is not tree]
    try:
        for each in nodes:  # as those who look for parents do; there is one `Load()` in a process
            each.above = tree  # type: ignore[attr-defined]
        copy = copied_tree(tree)
        assert ast.dump(copy, include_attributes=True) == ast.dump(tree, include_attributes=True)
        assert not any(hasattr(each, "above") for each in ast.walk(copy))
        assert not set(map(id, ast.walk(copy))) & set(map(id, ast.walk(tree)))
    finally:
        for each in nodes:
            vars(each).pop("above", None)
