"""Whether a line of the user's needs a number itself, so that no tensor or symbol can stand for it.

Our engine knows it from capture.  Stock says only that it guards the number; the line says how it is used.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Iterator, Mapping

from compiler_core.tools.stack_values import statement_of

_TAKE_NUMBERS = ("range", "bytes", "chr", "str", "repr", "format", "divmod", "math.")
"""Functions of Python's that take no tensor, or read its value: the beginnings of their names."""


def needs_number(line: str, name: str) -> bool:
    """Returns whether a line counts with a number, looks up by it or formats it; False also if that is not known.

    Args:
        line: a line of a program: a statement, or the head of one.
        name: the number, as its function or a caller of that has it: ``self.config.depth``.
    """
    return _is_in(line, name, _numbers)


def decides_by(line: str, name: str) -> bool:
    """Returns whether a line decides by a number or slices by it: a symbol can stand for it, but no tensor.  The
    arguments are those of `needs_number`."""
    return _is_in(line, name, _decisions)


def _is_in(line: str, name: str, places: Callable[[ast.stmt], Iterator[ast.AST]]) -> bool:
    statement = statement_of(line.strip()) or ast.Pass()
    return any(_is_read(node, name) for place in places(statement) for node in ast.walk(place))


def is_compared(line: str, name: str) -> bool:
    """Returns whether a line compares a number; with what, it does not say.  The arguments are those of
    `needs_number`."""
    statement = statement_of(line.strip())
    comparisons = (node for node in ast.walk(statement or ast.Pass()) if isinstance(node, ast.Compare))
    return any(_is_read(node, name) for comparison in comparisons for node in ast.walk(comparison))


def function_lines(lines: Mapping[int, str], lineno: int) -> list[str]:
    """Returns the lines of the function around a line, as far as their indentation tells; `lines` by number."""
    start = lineno
    while start in lines and not lines[start].lstrip().startswith(("def ", "async def ")):
        start -= 1
    if start not in lines:
        return [lines.get(lineno, "")]
    head = len(lines[start]) - len(lines[start].lstrip())
    end = start + 1
    while end in lines and (not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) > head):
        end += 1
    return [lines[number] for number in range(start, max(end, lineno + 1))]


def parameters(lines: list[str]) -> set[str]:
    """Returns the names of the parameters of a function, given its lines; empty if they are no function."""
    of_function = (node.args for node in _parsed(lines) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {each.arg for args in of_function for each in ast.walk(args) if isinstance(each, ast.arg)}


def variables_of_loops(lines: list[str]) -> set[str]:
    """Returns the names that the ``for`` loops of a function give to items, given its lines."""
    loops = [node for each in _parsed(lines) for node in ast.walk(each) if isinstance(node, ast.For)]
    return {node.id for loop in loops for node in ast.walk(loop.target) if isinstance(node, ast.Name)}


def _parsed(lines: list[str]) -> list[ast.stmt]:
    try:
        return ast.parse(textwrap.dedent("\n".join(lines))).body
    except SyntaxError:
        return []


def _numbers(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yields the expressions of which Python needs the value."""
    for node in ast.walk(statement):
        if isinstance(node, ast.FormattedValue):
            yield node
        elif isinstance(node, ast.Subscript):
            of_dims = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            yield from (each for each in of_dims if not isinstance(each, ast.Slice))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).startswith(_TAKE_NUMBERS):
            yield from node.args


def _decisions(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yields the expressions of which Python needs to know whether they are true, or where they are in a sequence."""
    for node in ast.walk(statement):
        if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)):
            yield node.test
        elif isinstance(node, ast.comprehension):
            yield from node.ifs
        elif isinstance(node, (ast.BoolOp, ast.Slice)):
            yield node
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node.operand


def _is_read(node: ast.AST, name: str) -> bool:
    """Whether a node reads the object with a name, or one with the same last part in a function that is called."""
    if isinstance(node, ast.Attribute):
        return node.attr == name.rpartition(".")[2]
    if isinstance(node, ast.Subscript) and name.endswith("]"):
        return name.endswith(f"[{ast.unparse(node.slice)}]")
    return isinstance(node, ast.Name) and node.id == name
