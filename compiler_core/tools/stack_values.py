"""What lies on the stack when Python evaluates an expression in a statement.

A resume function gets what Python has evaluated of a statement so far as parameters, which have no names in the user's
code; these are their expressions.  Stock's logs, which are read without PyTorch, have such parameters, too.
"""

from __future__ import annotations

import ast
import itertools
import re
import sys

Slots = list[tuple[str | None, str | None]]
"""Values, the lowest first: the expression, and another that it has where the slot before it is empty."""


_HEADER = re.compile(r"(?:if|while|for|with|elif|else|try)\b.*:\s*(?:#.*)?$")


def statement_of(text: str) -> ast.stmt | None:
    """Parses a line that is one whole statement, or the head of one; None if it is neither."""
    if _HEADER.match(text):
        text = f"{text.removeprefix('el')}\n    pass"  # a comment may follow the colon
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError):
        return None
    return statements[0] if len(statements) == 1 else None


def passed_alone(statement: ast.stmt | None) -> str:
    """Returns the only argument of the only call with arguments in a statement; empty if there is no such one."""
    calls = [node for node in ast.walk(statement or ast.Pass()) if isinstance(node, ast.Call)]
    match [call for call in calls if call.args or call.keywords]:
        case [ast.Call(args=[argument], keywords=[])] if not isinstance(argument, ast.Starred):
            return ast.unparse(argument)
    return ""


def calls_are_nested(statement: ast.stmt | None) -> bool:
    """Whether each call of a statement is around the next one, as in ``next(iter(loader))``."""
    calls = [node for node in ast.walk(statement or ast.Pass()) if isinstance(node, ast.Call)]
    return all(inner in ast.walk(outer) for outer, inner in itertools.pairwise(calls))


def values_on_stack(statement: ast.AST, node: ast.AST, one_for_call: bool = False) -> Slots:
    """Returns what lies on the stack once `node` is evaluated, itself the last.

    What lies further below is left out: iterators of loops, and what is not known.

    Args:
        statement: the statement, or what else is around `node`.
        node: an expression in it.
        one_for_call: whether a function that will be called is one value, as for Dynamo, and not the two of CPython.
    """
    path = _path(statement, node)
    slots: Slots = [(ast.unparse(node), None)]
    for parent, child in zip(reversed(path[:-1]), reversed(path[1:]), strict=True):
        before = (
            _before_argument(parent, child, one_for_call) if isinstance(parent, ast.Call) else _before(parent, child)
        )
        if before is None:
            break
        slots = before + slots
    return slots


def _path(top: ast.AST, node: ast.AST) -> list[ast.AST]:
    """Returns the nodes from `top` to `node`; only `node` if it is not inside."""
    found = [node]
    parents = {child: parent for parent in ast.walk(top) for child in ast.iter_child_nodes(parent)}
    while found[0] in parents:
        found.insert(0, parents[found[0]])
    return found


def _before(parent: ast.AST, child: ast.AST) -> Slots | None:
    """Returns the operands of `parent` that are evaluated before `child`; None if that is not known."""
    match parent:
        case ast.BinOp(left=left):
            return [] if child is left else _texts(left)
        case ast.Compare(left=left, comparators=[_]):
            return [] if child is left else _texts(left)
        case ast.Subscript(value=value):
            return [] if child is value else _texts(value)
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return _texts(*items[: items.index(child)]) if child in items else None
        case ast.AugAssign(target=ast.Name() as target):
            return _texts(target)
        case ast.JoinedStr(values=values):
            return [(None, None)] * values.index(child) if child in values else None
        case ast.comprehension() | ast.Lambda() | ast.Compare() | ast.Dict() | ast.AugAssign() | ast.Starred():
            return None
    return []


def _before_argument(call: ast.Call, child: ast.AST, one_for_call: bool) -> Slots | None:
    function = ast.unparse(call.func)
    is_method = isinstance(call.func, ast.Attribute)
    if child is call.func:
        return [] if is_method or one_for_call else [(None, None)]
    values = [*call.args, *call.keywords]
    if child not in values or any(isinstance(each, ast.Starred) for each in call.args):
        return None
    before = [each.value if isinstance(each, ast.keyword) else each for each in values[: values.index(child)]]
    if one_for_call:
        return _texts(call.func, *before)
    holder = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else function
    if sys.version_info >= (3, 13):  # the function, and its object or nothing
        return [(function, None), (holder, None), *_texts(*before)]
    return [(function if is_method else None, None), (holder, function), *_texts(*before)]  # nothing comes first


def _texts(*nodes: ast.AST) -> Slots:
    return [(ast.unparse(each), None) for each in nodes]
