"""Finds out whether a cell uses stock `torch.compile` itself.

Such a cell says itself what is compiled, and how: unless an option of the magic says something else, it runs as
written, and what stock `torch.compile` does in it is recorded.
"""

from __future__ import annotations

import ast
import dataclasses
import dis
import inspect
import itertools
import types
from collections.abc import Iterator
from typing import Any

import torch

from kernel_magics.cell.parse import Program
from kernel_magics.run.request import Request
from kernel_magics.run.snapshots import ATTRIBUTE_LOADS, GLOBAL_LOADS, held_codes, names_read


def as_written(request: Request, program: Program, namespace: dict[str, Any]) -> Request:
    """Returns the options with which a cell runs as written, if they leave open how it is compiled, and it uses stock
    `torch.compile` itself; else the same options."""
    if not request.leaves_open or not (how := own_compile(program, namespace)):
        return request
    return dataclasses.replace(request, engine="torch", as_written=how)


def own_compile(program: Program, namespace: dict[str, Any]) -> str:
    """Returns how a cell uses stock `torch.compile` itself, as the end of a sentence about the cell; empty if it does
    not."""
    tree = ast.parse(program.source)
    codes = [program.skeleton, *program.units]
    held = held_codes(namespace, codes)
    names = namespace | _imported(tree)
    lines = [*_lines_of_compiled_modules(tree), *(line for code in codes for line in _lines_of_calls(code, names))]
    if lines:
        return f"calls torch.compile itself, in line {min(lines)}"
    for code in held:
        if next(_lines_of_calls(code, namespace), None):
            return f"calls torch.compile itself, in `{code.co_qualname}`"
    for name in sorted(set().union(*map(names_read, (*codes, *held)))):
        if _is_compiled(namespace.get(name)):
            return f"uses `{name}`, which is compiled by torch.compile"
    return ""


def _imported(tree: ast.Module) -> dict[str, Any]:
    """Returns the names that a cell gives to PyTorch and to `torch.compile` by importing them."""
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found |= {each.asname or each.name: torch for each in names if each.name == "torch"}
            case ast.ImportFrom(module="torch", names=names):
                found |= {each.asname or each.name: torch.compile for each in names if each.name == "compile"}
    return found


def _lines_of_compiled_modules(tree: ast.Module) -> Iterator[int]:
    """Yields the lines at which a cell calls `compile` of an object that it makes, with arguments of `torch.compile`
    only."""
    made = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    known = inspect.signature(torch.compile).parameters
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="compile"), args=[], keywords=given):
                if name in made and all(each.arg in known for each in given):
                    yield node.lineno


def _lines_of_calls(code: types.CodeType, namespace: dict[str, Any]) -> Iterator[int]:
    """Yields the lines at which code, or a function in it, reads `torch.compile`, or `compile` of a module."""
    for first, then in itertools.pairwise(dis.get_instructions(code)):
        if first.opname in GLOBAL_LOADS and first.positions:
            value = namespace.get(first.argval)
            is_attribute = then.opname in ATTRIBUTE_LOADS and then.argval == "compile"
            if value is torch.compile or (is_attribute and (value is torch or isinstance(value, torch.nn.Module))):
                yield first.positions.lineno or 0
    for nested in code.co_consts:
        if isinstance(nested, types.CodeType):
            yield from _lines_of_calls(nested, namespace)


def _is_compiled(value: object) -> bool:
    """Whether stock `torch.compile` has made a function or module, a part of a module, or an attribute of an object."""
    own = vars(value).values() if type(value).__module__ == "__main__" and hasattr(value, "__dict__") else ()
    return any(map(_is_made, (value, *own)))


def _is_made(value: object) -> bool:
    from compiler_core.tools.stock.hooks.torch_internals import is_of_compiled_function
    from compiler_core.torch_private import OptimizedModule

    function = value.__func__ if isinstance(value, types.MethodType) else value
    if isinstance(function, types.FunctionType):
        return is_of_compiled_function(function.__code__)
    if not isinstance(value, torch.nn.Module):
        return False
    return any(isinstance(each, OptimizedModule) or vars(each).get("_compiled_call_impl") for each in value.modules())
