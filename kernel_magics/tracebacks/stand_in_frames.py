"""Frames for tracebacks that stand in for those that have no frame of their own, or one with names of ours.

IPython prints a frame by what its code says of itself (name, parameters, first line) and by where the
frame is.  A stand-in says what the user's function says and stands at the user's line; it holds the
same local variables, so that ``%debug`` finds them.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
import types
from collections.abc import Mapping
from typing import Any, cast

OURS = ("__stack", "__callee", "__t", "__error", "__graph_out")
"""Begin the names of generated code's own variables."""


class _Gone:
    """In place of a parameter's value that is no longer kept."""

    def __repr__(self) -> str:
        return "<no longer kept>"


class _Stop(Exception):
    """Raised where the stand-in is to stand."""


def stand_in(code: types.CodeType, line: int, local: Mapping[str, Any], f_globals: dict[str, Any]) -> types.FrameType:
    """A frame of a function that calls itself what `code` does, at `line`."""
    shown: dict[str, Any] = dict.fromkeys(_parameters(code), _Gone())
    shown |= {n: v for n, v in local.items() if n.isidentifier() and not n.startswith(OURS)}
    function = types.FunctionType(_code(code, line, shown), f_globals)
    try:
        function(*[None] * code.co_argcount, **dict.fromkeys(_keyword_only(code)))
    except _Stop as stopped:
        trace = cast(types.TracebackType, stopped.__traceback__)
        return cast(types.TracebackType, trace.tb_next).tb_frame
    raise AssertionError("a stand-in ends where it stands")


def _code(code: types.CodeType, line: int, local: Mapping[str, Any]) -> types.CodeType:
    body: list[ast.stmt] = [ast.Assign([ast.Name(n, ast.Store())], ast.Constant(f"\0{n}")) for n in local]
    body.append(ast.Raise(ast.Constant("\0")))
    function = ast.FunctionDef("stand_in", _arguments(code), body, [])
    if sys.version_info >= (3, 12):
        function.type_params = []
    for node in ast.walk(function):
        if "lineno" in node._attributes:
            vars(node).update(lineno=line, end_lineno=line, col_offset=0, end_col_offset=0)
    function.lineno = min(code.co_firstlineno, line)
    module = compile(ast.Module([function], []), code.co_filename, "exec")
    (made,) = (c for c in module.co_consts if isinstance(c, types.CodeType))
    values: dict[str, Any] = {"\0": _Stop} | {f"\0{n}": v for n, v in local.items()}
    constants = tuple(values.get(c, c) if isinstance(c, str) else c for c in made.co_consts)
    name, qualname = code.co_name, code.co_qualname
    return made.replace(co_consts=constants, co_name=name, co_qualname=qualname, co_firstlineno=function.lineno)


def code_at(filename: str, name: str, line: int) -> types.CodeType:
    """The code of the innermost function `name` around a line, made anew from its source."""
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except SyntaxError:
        tree = ast.Module([], [])
    functions = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)) and n.name == name]
    around = [n for n in functions if n.lineno <= line <= (n.end_lineno or n.lineno)]
    if not around:
        return compile("", filename, "exec").replace(co_name=name, co_qualname=name, co_firstlineno=line)
    innermost = max(around, key=lambda n: n.lineno)
    module = compile(ast.Module([innermost], []), filename, "exec")
    return next(c for c in module.co_consts if isinstance(c, types.CodeType) and c.co_name == name)


def _parameters(code: types.CodeType) -> tuple[str, ...]:
    more = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + more]


def _keyword_only(code: types.CodeType) -> tuple[str, ...]:
    return code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]


def _arguments(code: types.CodeType) -> ast.arguments:
    names = [ast.arg(n) for n in code.co_varnames[: code.co_argcount]]
    keywords = [ast.arg(n) for n in _keyword_only(code)]
    rest = [ast.arg(n) for n in _parameters(code)[code.co_argcount + code.co_kwonlyargcount :]]
    star = rest.pop(0) if code.co_flags & inspect.CO_VARARGS else None
    double_star = rest.pop(0) if code.co_flags & inspect.CO_VARKEYWORDS else None
    return ast.arguments([], names, star, keywords, [None for _ in keywords], double_star, [])
