"""The user's code at a graph break: the expression, its statement, and whether it needs what the graph computes."""

from __future__ import annotations

import ast
import functools
import linecache
import tokenize
import types
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.break_kinds import BreakingCode, Earlier, calls_of_branches, decides_on_round
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import ConstantValue
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.hook.skip_rules import is_generator, is_library_file
from compiler_core.resume.resume_functions import NULL, VALUE, ResumeLayout
from compiler_core.tools.stack_values import values_on_stack

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


MAX_LENGTH = 80
_ITERATORS = frozenset({"enumerate", "filter", "iter", "map", "reversed", "zip"})
"""Builtins whose results can only be continued."""
_MAX_DEPTH = 4
_RANDOM = ("random.", "numpy.random.", "torch.random.", "torch.cuda.random.", "torch.utils.data.")
"""The modules whose functions and objects seed generators of random numbers, or draw from them."""
_CONSTANTS = (int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


def breaking_code(tx: Interpreter, is_root: bool, earlier: Earlier) -> BreakingCode:
    """Returns the code that an interpreter is at, in the innermost function of the user's.

    `is_root`: the frame is that of the compiled function itself.  Others may get what a graph computed.
    `earlier`: what may have been done before the frame.
    """
    while tx.parent is not None and is_library_file(tx.code.co_filename):
        tx = tx.parent
    before, instruction = tx.instructions[max(tx.pc - 2, 0)], tx.instructions[max(tx.pc - 1, 0)]
    positions = instruction.positions
    lines = linecache.getlines(tx.code.co_filename)
    tree = _tree("".join(lines))
    if tree is None or positions is None or None in positions:
        return BreakingCode()
    statement, node = _innermost(tree, positions)
    if statement is None or node is None:
        return BreakingCode()
    # the arguments of a call have other places than the call, unless it is that of ``__exit__`` with None
    leaves_with = before.opname == "LOAD_CONST" and instruction.opname == "CALL" and before.positions == positions
    of_operand = instruction.opname.startswith(("TO_BOOL", "POP_JUMP", "BEFORE_WITH", "GET_ITER", "FOR_ITER"))
    enters_with = before.opname == "LOAD_SPECIAL" and instruction.opname == "CALL"  # since 3.14
    if leaves_with or enters_with or of_operand:
        node = _of_operand(statement, node)
    whole = _call_of(statement, node)
    names = {each.id for each in ast.walk(whole) if isinstance(each, ast.Name)}
    found = [scope[name] for scope in (tx.locals, tx.cells) for name in names & scope.keys()]
    read = {each.id for each in ast.walk(whole) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}
    elsewhere = read - tx.f_globals.keys() - tx.f_builtins.keys()  # a resume function gets what was made of these
    needs_graph = any(map(_is_computed, found)) if is_root else bool(found or elsewhere)
    inside = {each.id for part in _parts(whole) for each in ast.walk(part) if isinstance(each, ast.Name)}
    scopes = (tx.locals, tx.cells)
    needs_graph = needs_graph or any(_has_tensor(scope[n]) for scope in scopes for n in inside & scope.keys())
    earlier |= Earlier(tx.capture.graph.mode.has_drawn, bool(tx.capture.changes()))
    objects = [*_objects(whole, tx.f_globals)]
    needs_graph = needs_graph or (earlier.draws and any(map(_uses_generator, objects)))
    may_change = any(not isinstance(value, ConstantValue) for value in found) or any(map(_may_change, objects))
    needs_graph = needs_graph or (earlier.writes and may_change)
    is_call = isinstance(node, ast.Call)
    ends_round = decides_on_round(statement)
    is_loop = isinstance(statement, ast.For) and (node is statement or _gives_iterator(node))
    text, kind = _segment(lines, node), type(statement).__name__
    guards_calls, has_calls = calls_of_branches(statement)
    is_target = False
    match statement:
        case ast.AugAssign(target=ast.Subscript(value=ast.Name(name)) as target) if target is node:
            is_target = any(_has_tensor(scope[name]) for scope in scopes if name in scope)  # keys of a dict are others
    in_generator = is_generator(tx.code)
    return BreakingCode(
        text, kind, needs_graph, is_call, is_loop, ends_round, in_generator, guards_calls, has_calls, is_target
    )


def _call_of(statement: ast.stmt, node: ast.stmt | ast.expr) -> ast.stmt | ast.expr:
    """Returns the call of a function that an expression names; the expression itself if it is none.

    To do that before the graph is to make the call there, so it must not need more than the name.
    """
    return next((each for each in ast.walk(statement) if isinstance(each, ast.Call) and each.func is node), node)


def _gives_iterator(node: ast.AST) -> bool:
    """Whether a node calls a builtin that returns an iterator, such as ``enumerate(loader)``."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _ITERATORS


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the parts of an expression that are computed before it, but those that only read a size."""
    for each in ast.walk(node):
        is_size = (
            isinstance(each, ast.Subscript) and isinstance(each.value, ast.Attribute) and each.value.attr == "shape"
        )
        if each is not node and isinstance(each, (ast.Call, ast.BinOp, ast.UnaryOp, ast.Subscript)) and not is_size:
            yield each


def _objects(node: ast.AST, names: dict[str, Any]) -> Iterator[Any]:
    """Yields the global objects that an expression names, such as the function ``torch.manual_seed``."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield names.get(each.id)
        elif isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name):
            owner = names.get(each.value.id)
            yield getattr(owner, each.attr, None) if isinstance(owner, types.ModuleType) else None


def _uses_generator(obj: Any) -> bool:
    """Whether an object seeds a generator of random numbers or draws from one: a function, an object or a method."""
    of = obj if isinstance(obj, (type, types.FunctionType)) else type(getattr(obj, "__self__", obj))
    return f"{of.__module__}.".startswith(_RANDOM) or f"{getattr(obj, '__module__', None)}.".startswith(_RANDOM)


def _may_change(obj: Any) -> bool:
    """Whether an object has state that the program may change."""
    return not isinstance(obj, (types.ModuleType, type, types.FunctionType, types.BuiltinFunctionType, *_CONSTANTS))


def _has_tensor(value: Value) -> bool:
    return any(issubclass(type(each), TensorValue) for each in (value, *_attributes(value)))


def _of_operand(statement: ast.stmt, node: ast.stmt | ast.expr) -> ast.stmt | ast.expr:
    """Returns what branches on an expression or enters it, or the expression itself if nothing does.

    From CPython 3.12 on, a jump has the place of what it depends on, and from 3.13 on so have a ``with``, its end
    included, and a loop.
    """
    for each in ast.walk(statement):
        match each:
            case ast.If(test=test) | ast.While(test=test) | ast.Assert(test=test) | ast.IfExp(test=test):
                operands = [*_conditions(test)]
            case ast.For(iter=iterable):
                operands = [iterable]
            case ast.With(items=items):
                operands = [item.context_expr for item in items]
            case _:
                continue
        if any(node is operand for operand in operands):
            return each
    return node


def _conditions(test: ast.expr) -> Iterator[ast.expr]:
    """Yields the parts of a condition that have a jump; not a comparison, whose place its jump has in all versions."""
    if not isinstance(test, ast.Compare):
        yield test
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=part):
            yield from _conditions(part)
        case ast.BoolOp(values=parts):
            for part in parts:
                yield from _conditions(part)


def stack_names(tx: Interpreter, layout: ResumeLayout) -> dict[str, str]:
    """Returns the user's expressions of the stack values that a resume function gets, by its parameters for them."""
    before = tx.instructions[layout.target - 1]
    tree, positions = _tree("".join(linecache.getlines(tx.code.co_filename))), before.positions
    if tree is None or positions is None or None in positions:
        return {}
    statement, node = _innermost(tree, positions)
    if statement is None or node is None:
        return {}
    slots = values_on_stack(statement, node)
    if layout.callee_args is not None or before.opname.startswith(_PUSH_NOTHING):
        slots = slots[:-1]
    names, offset = {}, len(layout.stack) - len(slots)
    for i, slot in enumerate(slots, offset):
        is_alone = i > 0 and layout.stack[i - 1] == NULL
        text = (slot[1] if is_alone else None) or slot[0]
        if i >= 0 and layout.stack[i] == VALUE and text and len(text) <= MAX_LENGTH:
            names[f"__stack{i}"] = text
    return names


def callee_names(tx: Interpreter, layout: ResumeLayout, names: dict[str, str]) -> dict[str, str]:
    """Returns the user's expressions of what a caller's resume function passes to this one, by its parameters for it.

    `names`: those of this one's own parameters.
    """
    given = {f"__callee{i}": name for i, name in enumerate(layout.parameters)}
    of = f"{tx.code.co_name}'s "
    return {
        parameter: names[name] if name in names else of + name
        for parameter, name in given.items()
        if name in names or not name.startswith("__")
    }


_PUSH_NOTHING = ("POP_", "JUMP", "STORE_", "DELETE_", "RAISE", "RETURN", "SEND", "FOR_ITER")
"""The beginnings of the names of instructions that leave no value."""


@functools.lru_cache(maxsize=16)
def _tree(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return None


def _innermost(tree: ast.Module, positions: Any) -> tuple[ast.stmt | None, ast.stmt | ast.expr | None]:
    """Returns the innermost statement around `positions`, and the innermost node: an expression or that statement."""
    first, last, start, end = positions
    statement: ast.stmt | None = None
    node: ast.stmt | ast.expr | None = None
    inside: Iterable[ast.AST] = [tree]
    while inside:
        around = [n for n in _children(inside) if _holds(n, (first, start), (last, end))]
        for each in around:
            if isinstance(each, ast.stmt):
                statement = node = each
            elif isinstance(each, ast.expr) and not isinstance(each, ast.FormattedValue):  # a part of an f-string
                node = each
        inside = around
    return statement, node


def _children(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for node in nodes:  # before Python 3.12 a format has the place of the whole f-string
        yield from [node.value] if isinstance(node, ast.FormattedValue) else ast.iter_child_nodes(node)


def _holds(node: ast.AST, start: tuple[int, int], end: tuple[int, int]) -> bool:
    if not isinstance(node, ast.stmt | ast.expr | ast.excepthandler):
        return True  # without a place: arguments, a comprehension, an item of `with`
    last = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
    first = node.lineno, node.col_offset
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef) and node.decorator_list:
        first = node.decorator_list[0].lineno, 0
    return first <= start and end <= last


def _segment(lines: list[str], node: ast.stmt | ast.expr) -> str:
    """Returns the source of a node on one line; of a statement with a body, its first line."""
    has_body = hasattr(node, "body") and isinstance(node, ast.stmt)
    last, end = (node.lineno, None) if has_body else (node.end_lineno or node.lineno, node.end_col_offset)
    parts = [line.encode() for line in lines[node.lineno - 1 : last]]
    if end is not None:
        parts[-1] = parts[-1][:end]
    parts[0] = parts[0][node.col_offset :]
    text = " ".join(_without_comment(part.decode(errors="replace").strip()) for part in parts)
    return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 1]}…"


def _without_comment(line: str) -> str:
    with suppress(tokenize.TokenError):  # a line alone may be incomplete
        for token in tokenize.generate_tokens(iter([line]).__next__):
            if token.type == tokenize.COMMENT:
                return line[: token.start[1]].rstrip()
    return line


def _is_computed(value: Any, depth: int = 0) -> bool:
    """Whether a value is, or holds, a tensor that the graph computes."""
    kind = type(value)  # an object may claim another class
    if issubclass(kind, TensorValue):
        return value._node is not None and value._node.op != "placeholder"
    if issubclass(kind, Value):
        held: Iterable[Any] = _attributes(value)
    elif kind is dict:
        held = value.values()
    elif kind in (list, tuple, set):
        held = value
    else:
        return False
    return depth < _MAX_DEPTH and any(_is_computed(each, depth + 1) for each in held)


def _attributes(value: Value) -> Iterator[Any]:
    yield from getattr(value, "__dict__", {}).values()
    for name in (name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())):
        yield getattr(value, name, None)
