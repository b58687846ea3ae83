"""Reduces a failing program: replaces statements and expressions by parts of them while it still fails."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator

Fails = Callable[[str], bool]
BODIES = ("body", "orelse", "finalbody", "handlers", "cases")


def reduced(source: str, fails: Fails) -> str:
    """Returns the smallest program found that fails as `source` does."""
    best = ast.unparse(ast.parse(source))
    if not fails(best):
        return source
    shorter = True
    while shorter:
        shorter = False
        for step in (_without_statements, _with_parts):
            at = 0
            while (smaller := next_smaller(best, step, at, fails)) is not None:
                (best, at), shorter = smaller, True
    return best


def next_smaller(
    source: str, step: Callable[[ast.Module], Iterator[ast.Module]], at: int, fails: Fails
) -> tuple[str, int] | None:
    """Returns the first candidate from number `at` on that still fails, with its number."""
    for number, tree in enumerate(step(ast.parse(source))):
        if number < at:
            continue
        try:
            text = ast.unparse(ast.fix_missing_locations(tree))
            compile(text, "reduced", "exec")
        except (SyntaxError, ValueError, AttributeError, TypeError):
            continue
        if len(text) < len(source) and fails(text):
            return text, number
    return None


def _places(tree: ast.Module) -> list[tuple[int, str, int]]:
    """Returns all statements as (number of the parent, field, index), the last first."""
    found = []
    for number, node in enumerate(ast.walk(tree)):
        for name in BODIES:
            body = getattr(node, name, None)
            if isinstance(body, list):
                found += [(number, name, i) for i in range(len(body))]
    return found[::-1]


def _without_statements(tree: ast.Module) -> Iterator[ast.Module]:
    """Yields programs without one statement, or with a compound statement replaced by its body."""
    for number, name, i in _places(tree):
        for inner in (None, *BODIES[:3]):
            copied = copy.deepcopy(tree)
            parent = list(ast.walk(copied))[number]
            body = getattr(parent, name)
            if inner is None:
                body[i : i + 1] = [] if len(body) > 1 or name != "body" else [ast.Pass()]
            else:
                parts = getattr(body[i], inner, None)
                if not isinstance(parts, list) or not parts:
                    continue
                body[i : i + 1] = parts
            yield copied


def _with_parts(tree: ast.Module) -> Iterator[ast.Module]:
    """Yields programs with an expression replaced by a part of it or a constant, or without an item of a sequence."""
    nodes = list(ast.walk(tree))
    for number, node in enumerate(nodes):
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                for part in _smaller(value):
                    yield _replaced(tree, number, name, None, part)
            elif isinstance(value, list):
                for i, item in enumerate(value):
                    if isinstance(item, (ast.expr, ast.keyword, ast.arg, ast.comprehension)):
                        yield _replaced(tree, number, name, i, None)
                    if isinstance(item, ast.expr):
                        for part in _smaller(item):
                            yield _replaced(tree, number, name, i, part)


def _smaller(value: ast.expr) -> Iterator[ast.expr]:
    if isinstance(value, (ast.Constant, ast.Name)):
        return
    for child in ast.walk(value):
        if child is not value and isinstance(child, ast.expr) and not isinstance(child, ast.Constant):
            yield child
    yield ast.Constant(1)


def _replaced(tree: ast.Module, number: int, name: str, index: int | None, part: ast.expr | None) -> ast.Module:
    copied = copy.deepcopy(tree)
    parent = list(ast.walk(copied))[number]
    if index is None:
        setattr(parent, name, copy.deepcopy(part))
    elif part is None:
        del getattr(parent, name)[index]
    else:
        getattr(parent, name)[index] = copy.deepcopy(part)
    return copied
