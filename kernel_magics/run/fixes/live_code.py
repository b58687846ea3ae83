"""Runs edited text of a cell in place of the functions that the cell has defined."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kernel_magics.run.snapshots import reachable


@contextmanager
def replaced_code(functions: list[types.FunctionType], code: types.CodeType) -> Iterator[None]:
    """Context manager in which functions run other code."""
    before = [function.__code__ for function in functions]
    try:
        for function in functions:
            function.__code__ = code
        yield
    finally:
        for function, own in zip(functions, before, strict=True):
            function.__code__ = own


def functions_at(
    namespace: dict[str, Any], codes: list[types.CodeType], filename: str, lineno: int
) -> list[types.FunctionType]:
    """Returns the functions and methods that `codes` can reach and whose text contains a line of a file."""
    _, holders = reachable(namespace, codes)
    held = [each for holder in holders for each in _functions_of(holder)]
    return [each for each in held if each.__code__.co_filename == filename and lineno in lines_of(each.__code__)]


def _functions_of(holder: types.FunctionType | type) -> list[types.FunctionType]:
    found = [holder] if isinstance(holder, types.FunctionType) else vars(holder).values()
    return [each for each in found if isinstance(each, types.FunctionType)]


def lines_of(code: types.CodeType) -> range:
    """Returns the line numbers of a function, nested ones included."""
    numbers = {line for _, _, line in code.co_lines() if line}
    for nested in code.co_consts:
        if isinstance(nested, types.CodeType):
            numbers |= set(lines_of(nested))
    return range(min(numbers, default=0), max(numbers, default=-1) + 1)


def compiled_code(shell: Any, source: str, number: int, name: str, lineno: int) -> types.CodeType | None:
    """Returns the code of the function with a qualified name and a line in the text of a cell; None without one."""
    filename = shell.compile.cache(source, number, raw_code=source)
    with shell.compile.extra_flags(ast.PyCF_ALLOW_TOP_LEVEL_AWAIT):
        module = compile(source, filename, "exec", shell.compile.flags, dont_inherit=True)
    return next((each for each in _nested(module) if each.co_qualname == name and lineno in lines_of(each)), None)


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield each
            yield from _nested(each)
