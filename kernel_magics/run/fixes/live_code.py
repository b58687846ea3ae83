"""Runs code that is changed for one run: edited text of a cell in place of the functions that the cell has defined,
lines before each unit of a cell, modules that are compiled each by itself."""

from __future__ import annotations

import ast
import gc
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from compiler_core.records import Record
from kernel_magics.cell.parse import Unit
from kernel_magics.run.snapshots import reachable

if TYPE_CHECKING:
    import torch


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


# ---- code that was compiled before ---------------------------------------------------------------


@contextmanager
def fresh_code(record: Record) -> Iterator[None]:
    """Context manager in which stock has compiled none of the functions of a record: it keeps what it compiled, and the
    sizes that it saw, by code objects."""
    from compiler_core.tools.stock.uncached import without_known_sizes

    places = {(frame.filename, frame.line) for frame in record.frames}
    by_code: dict[types.CodeType, list[types.FunctionType]] = {}
    for each in gc.get_objects():
        if type(each) is types.FunctionType:  # of a proxy, `isinstance` asks the object behind it
            code = each.__code__
            if (code.co_filename, code.co_firstlineno) in places:
                by_code.setdefault(code, []).append(each)
    with ExitStack() as stack:
        for code, functions in by_code.items():
            stack.enter_context(replaced_code(functions, copied(code)))
        stack.enter_context(without_known_sizes())
        yield


def copied(code: types.CodeType) -> types.CodeType:
    """Returns a copy of a code object, with copies of those of the functions inside it."""
    constants = tuple(copied(each) if isinstance(each, types.CodeType) else each for each in code.co_consts)
    return code.replace(co_consts=constants)


# ---- other code around it ------------------------------------------------------------------------


def with_lines(
    lines: list[str], namespace: dict[str, Any], compile_unit: Callable[[types.FunctionType], Unit]
) -> Callable[[types.FunctionType], Unit]:
    """Returns a function that compiles a unit so that lines of Python run before it, those of names that it reads.

    A line assigns, or marks a tensor.  Its effect is undone after the unit, unless the unit has assigned again.
    """
    parsed = [(ast.parse(line).body[0], compile(line, "<line>", "exec")) for line in lines]

    def compiled(unit: types.FunctionType) -> Unit:
        run, names = compile_unit(unit), _names(unit.__code__)

        def run_after_lines() -> object:
            with ExitStack() as undo:
                for statement, code in parsed:
                    if any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(statement)):
                        undo.enter_context(_line(statement, code, namespace))
                return run()

        return run_after_lines

    return compiled


@contextmanager
def assigned_lines(lines: list[str], arguments: dict[str, Any], namespace: dict[str, Any]) -> Iterator[bool]:
    """Context manager in which lines have run, of arguments of a call or else of globals; yields whether any has.

    The effect on an object is undone at the end.
    """
    has_run = False
    with ExitStack() as undo:
        for line in lines:
            statement = ast.parse(line).body[0]
            root = next(each.id for each in ast.walk(_object_of(statement)) if isinstance(each, ast.Name))
            names = arguments if root in arguments else namespace
            if root in names:
                undo.enter_context(_line(statement, compile(line, "<line>", "exec"), names))
                has_run = True
        yield has_run


def _object_of(statement: ast.stmt) -> ast.expr:
    """Returns what a line assigns to or marks."""
    match statement:
        case ast.Assign([target]) | ast.Expr(ast.Call(_, [target, *_])):
            return target
    raise ValueError(ast.unparse(statement))


@contextmanager
def _line(statement: ast.stmt, code: types.CodeType, namespace: dict[str, Any]) -> Iterator[None]:
    from compiler_core.tools.inspection.what_if import remove_marks

    match statement:
        case ast.Assign([target]):
            text = ast.unparse(target)
            before = eval(text, namespace)
            exec(code, namespace)
            made = eval(text, namespace)
            try:
                yield
            finally:
                if eval(text, namespace) is made:
                    _assign(target, before, namespace)
        case ast.Expr(ast.Call(_, [tensor, *_])):
            marked = eval(ast.unparse(tensor), namespace)
            exec(code, namespace)
            try:
                yield
            finally:
                remove_marks(marked)


def _assign(target: ast.expr, value: object, namespace: dict[str, Any]) -> None:
    if isinstance(target, ast.Name):
        namespace[target.id] = value
    else:
        exec(f"{ast.unparse(target)} = value", namespace, {"value": value})


def _names(code: types.CodeType) -> set[str]:
    return set(code.co_names).union(*(_names(each) for each in code.co_consts if isinstance(each, types.CodeType)))


@contextmanager
def compiled_class(block: type[torch.nn.Module], compile_function: Callable[[Any], Any]) -> Iterator[None]:
    """Context manager in which the forward of a class of modules is compiled, once for all of them."""
    from compiler_core.tools.stock.uncached import uncached

    own = vars(block).get("forward")
    block.forward = compile_function(uncached(block.forward))
    try:
        yield
    finally:
        if own is None:
            del block.forward
        else:
            block.forward = own
