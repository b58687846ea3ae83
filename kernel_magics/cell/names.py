"""Names that top-level statements of a cell bind, and which statements cannot be moved into a function."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
LOOPS = (ast.For, ast.AsyncFor, ast.While)
AWAITS = (ast.Await, ast.AsyncFor, ast.AsyncWith)
FRAME_READERS = ("exec", "eval", "locals", "vars", "dir")
"""Builtins that read the calling frame, which inside a function is not the cell's namespace."""


@dataclass(frozen=True)
class SkeletonStatement:
    """Marks a statement that stays ordinary module code, in the skeleton."""

    note: str = ""
    """The reason for the user, if the statement would otherwise have been compiled."""


def scope_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yields `node` and its descendants in the same scope (without targets of comprehensions)."""
    yield node
    for child in _scope_children(node):
        yield from scope_nodes(child)


def _scope_children(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.ClassDef):
        yield from [*node.decorator_list, *node.bases, *node.keywords]
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield from [*node.decorator_list, node.args, *([node.returns] if node.returns else [])]
    elif isinstance(node, ast.Lambda):
        yield node.args
    elif isinstance(node, ast.comprehension):
        yield from [node.iter, *node.ifs]
    else:
        yield from ast.iter_child_nodes(node)


def bound_names(statements: Iterable[ast.stmt]) -> set[str]:
    """Returns the names that the statements bind or delete in their own scope."""
    return {name for s in statements for node in scope_nodes(s) for name in _names_bound_by(node)}


def _names_bound_by(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.alias(name=name, asname=asname):
            yield asname or name.partition(".")[0]
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case ast.MatchMapping(rest=str(name)):
            yield name


def is_future(statement: ast.stmt) -> bool:
    """Returns whether a statement is ``from __future__ import ...``."""
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def contains_loop(statement: ast.stmt) -> bool:
    """Returns whether a statement has a loop in its scope; those of nested functions do not count."""
    return any(isinstance(node, LOOPS) for node in scope_nodes(statement))


def skeleton_reason(statement: ast.stmt) -> SkeletonStatement | None:
    """Returns why the statement cannot, or need not, be part of a function; None if it can be."""
    if isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*":
        return SkeletonStatement(f"`from {statement.module} import *` is only possible at module level")
    if isinstance(statement, (ast.Import, ast.ImportFrom, Definition)):
        return SkeletonStatement()
    for node in scope_nodes(statement):
        if isinstance(node, AWAITS) or (isinstance(node, ast.comprehension) and node.is_async):
            return SkeletonStatement("it awaits")
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            return SkeletonStatement(f"`from {node.module} import *` is only possible at module level")
        if isinstance(node, ast.Name) and node.id == "get_ipython":
            return SkeletonStatement("it is an IPython magic or shell command")
        if isinstance(node, ast.Name) and node.id in FRAME_READERS:
            return SkeletonStatement(f"`{node.id}` reads the frame that calls it")
    return None
