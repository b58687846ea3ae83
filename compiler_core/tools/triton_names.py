"""Finds undefined names in generated Triton kernels, of which Triton says so only where a kernel is compiled."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set

from compiler_core.errors import CompilerBug

BUILTINS_IN_USE = frozenset({"float", "max", "range"})


def check_names(text: str) -> None:
    """Raises CompilerBug if a function of the module `text` reads an undefined name."""
    problems = list(undefined_names(text))
    if problems:
        raise CompilerBug("generated Triton kernels are invalid: " + "; ".join(problems))


def undefined_names(text: str) -> Iterator[str]:
    """Yields a message for each undefined name that the module `text` reads."""
    module = ast.parse(text)
    known = set(BUILTINS_IN_USE)
    for node in module.body:
        if isinstance(node, ast.Import):
            known |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            known |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef):
            known.add(node.name)
        elif isinstance(node, ast.Assign):
            yield from (f"line {node.lineno}: {name} is not defined" for name in _names_read(node.value) - known)
            known |= _names_assigned(node)
    for node in module.body:
        if isinstance(node, ast.FunctionDef):
            parameters = {argument.arg for argument in node.args.args}
            yield from _ScopeChecker(node.name, known | parameters).problems(node.body)


class _ScopeChecker:
    """Checks the statements of a function in order; `known` are the names that are defined."""

    def __init__(self, function: str, known: Set[str]) -> None:
        self._function, self._known = function, set(known)

    def problems(self, statements: list[ast.stmt]) -> Iterator[str]:
        for statement in statements:
            if isinstance(statement, ast.For):
                yield from self._unknown(statement.iter)
                yield from self._inside(statement.body, _target_names(statement.target))
            elif isinstance(statement, ast.If):
                yield from self._unknown(statement.test)
                yield from self._branches(statement)
            else:
                yield from self._unknown(statement)
                self._known |= _names_assigned(statement)

    def _inside(self, statements: list[ast.stmt], names: Set[str]) -> Iterator[str]:
        yield from _ScopeChecker(self._function, self._known | names).problems(statements)

    def _branches(self, statement: ast.If) -> Iterator[str]:
        branches = [_ScopeChecker(self._function, self._known) for _ in range(2)]
        for branch, statements in zip(branches, (statement.body, statement.orelse), strict=True):
            yield from branch.problems(statements)
        self._known = branches[0]._known & branches[1]._known

    def _unknown(self, node: ast.AST) -> Iterator[str]:
        line = getattr(node, "lineno", 0)
        for name in sorted(_names_read(node) - self._known):
            yield f"{self._function}, line {line}: {name} is not defined"


def _names_read(node: ast.AST) -> set[str]:
    """Returns the names that `node` reads; an assignment such as ``a += b`` also reads ``a``."""
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    own = {a.arg for n in ast.walk(node) if isinstance(n, ast.Lambda) for a in n.args.args}
    return (names - own) | (_target_names(node.target) if isinstance(node, ast.AugAssign) else set())


def _names_assigned(statement: ast.stmt) -> set[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return {name for target in targets for name in _target_names(target)}


def _target_names(target: ast.expr) -> set[str]:
    return {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
