"""Reads a schedule from its text: the rewrites of a kernel's nest, which `loops/schedule` makes.

A line has a rewrite; ``#`` starts a comment::

    split(i0, 128)
    reorder(i0_tile, i1, i0)
    vectorize(i0)
"""

from __future__ import annotations

import ast
import difflib
import operator
from collections.abc import Callable
from typing import Any

from compiler_core.errors import CompilerBug, UsageError
from compiler_core.loops import ir
from compiler_core.loops.ir.nest import check
from compiler_core.loops.schedule.script import REWRITES, WRITABLE, Schedule
from compiler_core.support.size_expr import Int, Size


def read_schedule(loops: ir.Loops, text: str, language: ir.Language = "cpp") -> Schedule:
    """Returns the schedule that `text` describes, applied to the naive nest of `loops`.

    Raises UsageError, with the line and the reason, for text that is no rewrite and for rewrites that are not legal.
    """
    made = Schedule(loops)
    for number, line in enumerate(text.splitlines(), 1):
        code = line.partition("#")[0].strip()
        if not code:
            continue
        above = "The lines above it are legal: change" if made.rewrites else "Change"
        try:
            name, args, options = _read_rewrite(code, loops, language)
            made.apply(name, *args, **options)
            check(made.nest)
        except (UsageError, TypeError, CompilerBug) as error:
            why = f"{name} takes {_signature(name)}" if isinstance(error, TypeError) else str(error).splitlines()[0]
            raise UsageError(f"line {number}, {code}: {why}\n{above} this one, or remove it.") from None
    return made


def _signature(name: str) -> str:
    parameters = REWRITES[name].__code__.co_varnames[1 : REWRITES[name].__code__.co_argcount]
    return ", ".join(parameters) or "names of loops or values"


def _read_rewrite(code: str, loops: ir.Loops, language: ir.Language) -> tuple[str, list[Any], dict[str, Any]]:
    known = f"the rewrites of a {'C++' if language == 'cpp' else 'Triton'} kernel are {', '.join(WRITABLE[language])}"
    try:
        call = ast.parse(code, mode="eval").body
    except SyntaxError:
        raise UsageError(f"a line is one rewrite, such as split(i0, 128); {known}") from None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise UsageError(f"a line is one rewrite, such as split(i0, 128); {known}")
    if call.func.id not in WRITABLE[language]:
        close = difflib.get_close_matches(call.func.id, WRITABLE[language], 1)
        meant = f"; did you mean {close[0]}?" if close else ""
        raise UsageError(f"there is no rewrite {call.func.id}{meant}; {known}")
    options = {k.arg: _read_argument(k.value, loops) for k in call.keywords if k.arg}
    return call.func.id, [_read_argument(a, loops) for a in call.args], options


def _read_argument(node: ast.expr, loops: ir.Loops) -> str | Int:
    """Returns a name of a loop or value, a condition in quotes, or a number, which may have the symbols of `loops`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | str) and not isinstance(node.value, bool):
        return node.value
    symbols = {
        s.name: Size({(s,): 1}) for n in loops.numbers if isinstance(n, Size) for monomial in n.terms for s in monomial
    }
    if isinstance(node, ast.Name):
        return symbols.get(node.id, node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = ast.BinOp(ast.Constant(0), ast.Sub(), node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        left, right = (_read_argument(each, loops) for each in (node.left, node.right))
        if not isinstance(left, str) and not isinstance(right, str):
            return _ARITHMETIC[type(node.op)](left, right)
    raise UsageError(f"arguments are names of loops or values, and numbers, not {ast.unparse(node)}")


_ARITHMETIC: dict[type[ast.operator], Callable[[Int, Int], Int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul
}  # fmt: skip
