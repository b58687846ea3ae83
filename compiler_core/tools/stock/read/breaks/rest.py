"""Whether the code after a graph break may compute with tensors, where Dynamo compiles none of it.

Dynamo leaves a resume function to Python if no argument of it is a tensor, also if it reads tensors from globals or
objects or calls what makes some.
"""

from __future__ import annotations

import ast
import builtins
import functools
import sys
from collections.abc import Iterator, Sequence

_READS = frozenset({"item", "tolist"})
_METHODS = _READS | {
    "append", "appendleft", "extend", "insert", "setdefault",
    "format", "join", "write", "debug", "info", "warning", "error", "critical", "add_scalar",
}  # fmt: skip
"""Methods of containers, texts and loggers, which tensors and modules do not have, and reads of tensors."""
_STATEMENTS = (ast.Expr, ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Pass, ast.Raise, ast.Assert, ast.If)
_ARITHMETIC = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript, ast.AugAssign)
_FIELDS = frozenset({"shape", "dtype", "device", "ndim"})
"""Attributes of tensors that are known without computing."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def formats_by_percent(statement: ast.stmt | None) -> bool:
    """Returns whether a statement formats by ``"..." % value``."""
    operators = [node for node in ast.walk(statement or ast.Pass()) if isinstance(node, ast.BinOp)]
    lefts = [node.left for node in operators if isinstance(node.op, ast.Mod)]
    return any(isinstance(left, ast.Constant) and isinstance(left.value, str) for left in lefts)


def computes_nothing(lines: Sequence[str], lineno: int, called: str = "", has_tensors: bool = False) -> bool:
    """Returns whether what follows a line in its function only reads, formats and keeps values of local variables.

    False also if that is not known.  The variables of a line outside of functions, as in a cell, may be tensors.

    Args:
        lines: those of the whole file, each with its end.
        lineno: the number of the line.
        called: the function that the line calls, which has the break.
        has_tensors: whether local variables may be tensors in the lines that follow.
    """
    module = _parsed("".join(lines))
    inside = [node for node in ast.walk(module) if isinstance(node, _Function) and _has(node, lineno)] if module else []
    if module is None:
        return False
    function = max(inside, key=lambda node: node.lineno, default=module)
    names = _Names(module, function, called)
    rest = [*_rest(function.body, lineno)]
    if (has_tensors or function is module) and any(
        isinstance(each, _ARITHMETIC) for node in rest[1:] for each in ast.walk(node)
    ):
        return False
    return all(map(names.is_harmless, rest))


def statement_at(lines: Sequence[str], lineno: int) -> ast.stmt:
    """Returns the innermost statement around a line; one that does nothing if there is none, or it is not known."""
    module = _parsed("".join(lines)) or ast.Module([], [])
    around = [node for node in ast.walk(module) if isinstance(node, ast.stmt) and _has(node, lineno)]
    return max(around, key=lambda node: node.lineno, default=ast.Pass())


@functools.lru_cache(maxsize=8)
def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def _has(node: ast.stmt, lineno: int) -> bool:
    return node.lineno <= lineno <= (node.end_lineno or node.lineno)


def _rest(body: Sequence[ast.stmt], lineno: int) -> Iterator[ast.AST]:
    """Yields the statements of a block that may run at a line or after it, without those of it that ran before."""
    for statement in body:
        blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
        around = [block for block in blocks if any(_has(each, lineno) for each in block)]
        if isinstance(statement, (ast.If, ast.With, ast.Try)) and around:
            yield from _rest(around[0], lineno)
            yield from getattr(statement, "handlers", [])
            yield from getattr(statement, "finalbody", [])
        elif (statement.end_lineno or statement.lineno) >= lineno:
            yield statement


class _Names:
    """What the names in a function stand for, as far as the text of its module says."""

    def __init__(self, module: ast.Module, function: _Function | ast.Module, called: str) -> None:
        self.called = called
        arguments = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
        self.locals = arguments | _bound(function)
        for node in ast.walk(function):
            if isinstance(node, (ast.Global, ast.Nonlocal)):
                self.locals -= set(node.names)
        self.globals = _bound(module)
        imports = [node for node in module.body if isinstance(node, ast.Import)]
        imported = {name.asname or name.name for node in imports for name in node.names if _is_standard(name.name)}
        self.standard = imported - self.locals
        """Modules of Python's library."""

    def is_harmless(self, node: ast.AST) -> bool:
        """Whether running a node computes with no tensor that is no local variable."""
        if isinstance(node, ast.Call):
            return self._is_harmless_call(node)
        if isinstance(node, ast.Name):
            is_builtin = hasattr(builtins, node.id) and node.id not in self.globals
            return isinstance(node.ctx, ast.Store) or node.id in self.locals or is_builtin
        if isinstance(node, ast.Attribute):
            is_of_library = isinstance(node.value, ast.Name) and node.value.id in self.standard
            is_field = node.attr in _FIELDS and self.is_harmless(node.value)
            return is_of_library or is_field or isinstance(node.ctx, ast.Store)
        if isinstance(node, ast.stmt) and not isinstance(node, _STATEMENTS):
            return False
        if isinstance(node, (ast.Lambda, ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr)):
            return False
        return all(map(self.is_harmless, ast.iter_child_nodes(node)))

    def _is_harmless_call(self, call: ast.Call) -> bool:
        """Whether a call is one of a builtin, of Python's library, of a container or logger, or a read of a tensor."""
        arguments = [*call.args, *call.keywords]
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name == self.called or (isinstance(call.func, ast.Attribute) and name in _READS):
            return True  # what it gets was computed before the break
        if isinstance(call.func, ast.Attribute):
            is_known = call.func.attr in _METHODS or self.is_harmless(call.func)
        else:
            is_known = isinstance(call.func, ast.Name) and call.func.id not in self.locals
            is_known = is_known and self.is_harmless(call.func)
        return is_known and all(map(self.is_harmless, arguments))


def _bound(node: ast.AST) -> set[str]:
    """Returns the names that code binds, those of its inner functions and classes, too."""
    found = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            found.add(each.id)
        elif isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and each is not node:
            found.add(each.name)
        elif isinstance(each, ast.alias):
            found.add((each.asname or each.name).partition(".")[0])
    return found


def _is_standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names
