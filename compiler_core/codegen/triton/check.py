"""Whether the text of Triton kernels says what it needs: every name that a kernel reads is known where it is read.

Triton finds a name that is not known only when it compiles the kernel on a GPU.  This finds it on any machine, in less
than a millisecond a kernel.  Names live as they do in Triton: what is first assigned in a loop ends with it, and of
what is first assigned under a condition remains what both branches assign.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set

from compiler_core.errors import CompilerBug

BUILT_IN = frozenset({"float", "max", "range"})


def check(text: str) -> None:
    """CompilerBug where a function of the module `text` reads a name that nothing defines there."""
    problems = list(problems_in(text))
    if problems:
        raise CompilerBug("Triton kernels: " + "; ".join(problems))


def problems_in(text: str) -> Iterator[str]:
    module = ast.parse(text)
    known = set(BUILT_IN)
    for node in module.body:
        if isinstance(node, ast.Import):
            known |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            known |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef):
            known.add(node.name)
        elif isinstance(node, ast.Assign):
            yield from (f"line {node.lineno}: {name} is not defined" for name in _read(node.value) - known)
            known |= _assigned(node)
    for node in module.body:
        if isinstance(node, ast.FunctionDef):
            parameters = {argument.arg for argument in node.args.args}
            yield from _Body(node.name, known | parameters).problems(node.body)


class _Body:
    """The statements of a function, in order; `known` are the names that have a value."""

    def __init__(self, function: str, known: Set[str]) -> None:
        self._function, self._known = function, set(known)

    def problems(self, statements: list[ast.stmt]) -> Iterator[str]:
        for statement in statements:
            if isinstance(statement, ast.For):
                yield from self._unknown(statement.iter)
                yield from self._inside(statement.body, _targets(statement.target))
            elif isinstance(statement, ast.If):
                yield from self._unknown(statement.test)
                yield from self._branches(statement)
            else:
                yield from self._unknown(statement)
                self._known |= _assigned(statement)

    def _inside(self, statements: list[ast.stmt], names: Set[str]) -> Iterator[str]:
        yield from _Body(self._function, self._known | names).problems(statements)

    def _branches(self, statement: ast.If) -> Iterator[str]:
        branches = [_Body(self._function, self._known) for _ in range(2)]
        for branch, statements in zip(branches, (statement.body, statement.orelse), strict=True):
            yield from branch.problems(statements)
        self._known = branches[0]._known & branches[1]._known

    def _unknown(self, node: ast.AST) -> Iterator[str]:
        line = getattr(node, "lineno", 0)
        for name in sorted(_read(node) - self._known):
            yield f"{self._function}, line {line}: {name} is not defined"


def _read(node: ast.AST) -> set[str]:
    """The names that are looked up in `node`; an assignment such as ``a += b`` looks up ``a`` too."""
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    own = {a.arg for n in ast.walk(node) if isinstance(n, ast.Lambda) for a in n.args.args}
    return (names - own) | (_targets(node.target) if isinstance(node, ast.AugAssign) else set())


def _assigned(statement: ast.stmt) -> set[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return {name for target in targets for name in _targets(target)}


def _targets(target: ast.expr) -> set[str]:
    return {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
