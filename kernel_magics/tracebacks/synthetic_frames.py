"""Synthetic frames for tracebacks, in place of calls without a frame (inlined) or frames of generated code.

IPython prints a frame by its code's name, parameters and first line and by the frame's current line.  A synthetic
frame has those of the user's function, stopped at the user's line, and the same local variables, so that ``%debug``
finds them.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
import types
from collections.abc import Mapping
from typing import Any, cast

GENERATED_PREFIXES = ("__stack", "__callee", "__t", "__error", "__graph_out")
"""Prefixes of the variables that generated code adds."""


class _Unavailable:
    """Placeholder for the value of a parameter that no longer exists."""

    def __repr__(self) -> str:
        return "<no longer kept>"


class _Values:
    """Values of local variables as attributes.

    It is a constant of a synthetic code object, and not each value: code objects are hashed with their constants, and
    a value may have no hash.
    """


class _Stop(Exception):
    """Raised at the line at which the synthetic frame stops."""


def synthetic_frame(
    code: types.CodeType, line: int, local: Mapping[str, Any], f_globals: dict[str, Any]
) -> types.FrameType:
    """Returns a frame of a function with the name and parameters of `code`, stopped at `line`.

    `local` are its local variables; parameters without a value get a placeholder.
    """
    shown: dict[str, Any] = dict.fromkeys(_parameters(code), _Unavailable())
    shown |= {n: v for n, v in local.items() if n.isidentifier() and not n.startswith(GENERATED_PREFIXES)}
    function = types.FunctionType(_synthetic_code(code, line, shown), f_globals)
    try:
        function(*[None] * code.co_argcount, **dict.fromkeys(_keyword_only(code)))
    except _Stop as stopped:
        trace = cast(types.TracebackType, stopped.__traceback__)
        return cast(types.TracebackType, trace.tb_next).tb_frame
    raise AssertionError("the synthetic function did not raise")


def _synthetic_code(code: types.CodeType, line: int, local: Mapping[str, Any]) -> types.CodeType:
    body: list[ast.stmt] = [
        ast.Assign([ast.Name(n, ast.Store())], ast.Attribute(ast.Constant("\0values"), n, ast.Load())) for n in local
    ]
    body.append(ast.Raise(ast.Constant("\0")))
    function = ast.FunctionDef("stand_in", _arguments(code), body, [])
    if sys.version_info >= (3, 12):
        function.type_params = []
    for node in ast.walk(function):
        if "lineno" in node._attributes:
            vars(node).update(lineno=line, end_lineno=line, col_offset=0, end_col_offset=0)
    function.lineno = min(code.co_firstlineno, line)
    module = compile(ast.Module([function], []), code.co_filename, "exec")
    (synthetic,) = (c for c in module.co_consts if isinstance(c, types.CodeType))
    values = _Values()
    vars(values).update(local)
    replaced: dict[str, Any] = {"\0": _Stop, "\0values": values}
    constants = tuple(replaced.get(c, c) if isinstance(c, str) else c for c in synthetic.co_consts)
    name, qualname = code.co_name, code.co_qualname
    return synthetic.replace(co_consts=constants, co_name=name, co_qualname=qualname, co_firstlineno=function.lineno)


def code_at(filename: str, name: str, line: int) -> types.CodeType:
    """Compiles the innermost function `name` around a line from its source file, and returns its code."""
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
