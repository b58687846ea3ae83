"""What a statement at a cell's top level binds, and whether it can live in a function."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
LOOPS = (ast.For, ast.AsyncFor, ast.While)
AWAITS = (ast.Await, ast.AsyncFor, ast.AsyncWith)
FRAME_READERS = ("exec", "eval", "locals", "vars", "dir")
"""Builtins that look at the frame that calls them, which in a function is not the namespace."""


@dataclass(frozen=True)
class Plain:
    """A statement stays ordinary module code; `note` tells the reader why, where that matters."""

    note: str = ""


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """`node` and all below it that belong to the same scope (targets of comprehensions do not)."""
    yield node
    for child in _own_children(node):
        yield from own_nodes(child)


def _own_children(node: ast.AST) -> Iterator[ast.AST]:
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
    """The names that the statements bind or delete in their own scope."""
    return {name for s in statements for node in own_nodes(s) for name in _binds(node)}


def _binds(node: ast.AST) -> Iterator[str]:
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
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def contains_loop(statement: ast.stmt) -> bool:
    return any(isinstance(node, LOOPS) for node in own_nodes(statement))


def why_plain(statement: ast.stmt) -> Plain | None:
    """Why the statement cannot, or need not, be part of a function; None if it can."""
    if isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*":
        return Plain(f"`from {statement.module} import *` is only possible at module level")
    if isinstance(statement, (ast.Import, ast.ImportFrom, Definition)):
        return Plain()
    for node in own_nodes(statement):
        if isinstance(node, AWAITS) or (isinstance(node, ast.comprehension) and node.is_async):
            return Plain("it awaits")
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            return Plain(f"`from {node.module} import *` is only possible at module level")
        if isinstance(node, ast.Name) and node.id == "get_ipython":
            return Plain("it is a magic or a shell command of IPython's")
        if isinstance(node, ast.Name) and node.id in FRAME_READERS:
            return Plain(f"`{node.id}` looks at the frame that calls it")
    return None
