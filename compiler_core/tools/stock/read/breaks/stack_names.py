"""What the user wrote for the values of the stack that a resume function of stock `torch.compile` gets.

Dynamo says the line of a graph break, and often which function it is about: the expression is the only such call there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import TypeGuard

from compiler_core.records import GraphBreak, Guard, StackLine
from compiler_core.tools.stack_values import statement_of, values_on_stack

MAX_LENGTH = 80
_NAMED = re.compile(r"(?:Tensor|ndarray)\.(\w+)\(\)|(?:builtin(?: operator)?|function|method) `(?:[^`.]*\.)*(\w+)\.?`")
_ON_STACK = re.compile(r"L\['___stack(\d+)'\]")
_READS = frozenset({".item", ".tolist", "float", "int", "bool"})
"""Calls that read the value of a tensor, which Dynamo calls ``item``."""


def expressions_on_stack(break_: GraphBreak, at: StackLine) -> list[str]:
    """Returns the expressions of what Python has evaluated of the statement, the last one last; an empty text for a
    long one.

    Args:
        break_: the break before the resume function.
        at: the line of its stack at which the function was split.
    """
    statement = statement_of(at.text.strip())
    inside = next(iter(break_.stack[break_.stack.index(at) + 1 :]), None)
    call = _call(statement, break_, inside) if statement is not None else None
    if statement is None or call is None:
        return []
    values = values_on_stack(statement, call, one_for_call=True)
    return [text if text and len(text) <= MAX_LENGTH else "" for text, _ in values]


def stack_names(expressions: list[str], guards: Iterable[Guard]) -> dict[str, str]:
    """Returns expressions by ``stack0`` and so on.

    Args:
        expressions: those of the statement's values, the last one last.
        guards: those of the resume function.  What its values below are is not known: each ``with`` block that is
            entered has one.
    """
    numbers = [int(found[1]) for guard in guards if (found := _ON_STACK.match(guard.source))]
    below = max(max(numbers, default=0) + 1 - len(expressions), 0)
    return {f"stack{i}": text for i, text in enumerate(expressions, below) if text}


def is_of_result(break_: GraphBreak, expressions: list[str]) -> bool:
    """Returns whether a break is at a method of what an earlier break in its line has left, or at a method that was
    looked up before it, or enters it by ``with``.

    Args:
        break_: the break.
        expressions: those of the values that the resume function gets, the last one last.
    """
    at = break_.place
    statement = statement_of(at.text.strip()) if at is break_.stack[-1] else None
    left = list(filter(None, expressions[-1:]))
    if isinstance(statement, ast.With):
        return any(ast.unparse(item.context_expr) in left for item in statement.items)
    call = _call(statement, break_, None) if statement is not None else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    # the resume function gets a method whose arguments broke the graph as an object of Python's
    return ast.unparse(call.func.value) in left or ast.unparse(call.func) in expressions[:-1]


def _call(statement: ast.stmt, break_: GraphBreak, inside: StackLine | None) -> ast.expr | None:
    """Returns the call that broke the graph, if there is one that it must be.  `inside`: the line in its function.

    For ``x[mask]`` it is the subscript.
    """
    if inside is None and break_.reason in ("data-dependent branch", "assertion"):
        return None  # which leave no value
    if inside is not None:
        names = {inside.function, f".{inside.function}"}
    elif break_.kind.startswith("Dynamic shape operator"):
        made = [node for node in ast.walk(statement) if isinstance(node, ast.Call) or _may_be_masked(node)]
        return made[0] if len(made) == 1 else None
    else:
        found = _NAMED.search(break_.kind) or _NAMED.search(break_.explanation)
        name = next(filter(None, found.groups())) if found else ""
        names = {name, f".{name}", *(_READS if break_.reason == "tensor value read" else ())}
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
    named = [each for each in calls if _name(each) in names]
    read = [node for node in ast.walk(statement) if _may_be_masked(node)] if not named else []
    if break_.reason == "tensor value read" and read:  # ``items[i]``, where i is a tensor
        return read[0] if len(read) == 1 else None
    calls = named or calls
    if break_.reason == "tensor value read":  # ``int(x.item())`` reads at ``item``
        calls = [each for each in calls if not any(other in ast.walk(each) for other in calls if other is not each)]
    return calls[0] if len(calls) == 1 else None


def _may_be_masked(node: ast.AST) -> TypeGuard[ast.Subscript]:
    """Whether a node reads ``x[mask]``, as far as its text says."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load):
        return False
    return not isinstance(node.slice, (ast.Constant, ast.Slice))


def _name(call: ast.Call) -> str:
    """Returns the name of a function, or with a dot that of a method."""
    return f".{call.func.attr}" if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
