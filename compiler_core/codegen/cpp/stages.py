"""Statements in stages: loops one after the other, and between them what is done for many elements at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from compiler_core.loops import ir

Reads = Callable[[ir.Statement], Set[str]]
"""The values that a statement reads."""


def stages(
    statements: Sequence[ir.Statement], apart: Callable[[ir.Statement], bool], reads: Reads
) -> list[list[ir.Statement]]:
    """`statements`, in order as far as they need each other, those that are `apart` in every other stage.

    Each stands as late as those that read it allow: the fewer values pass from stage to stage.
    """
    depth: list[int] = []
    made: dict[str, int] = {}
    for s in statements:
        at = max((made.get(a, 0) for a in reads(s)), default=0)
        at += at % 2 != apart(s)
        made[result(s)] = at
        depth.append(at)
    read: dict[str, int] = {}
    for k, s in reversed(list(enumerate(statements))):
        at = read.get(result(s), depth[k])
        depth[k] = at = at - (at % 2 != apart(s))
        read |= {a: min(at, read.get(a, at)) for a in reads(s)}
    return [[s for at, s in zip(depth, statements, strict=True) if at == stage] for stage in sorted({*depth})]


def from_outside(statements: Sequence[ir.Statement], reads: Reads) -> Set[str]:
    """The values that they read and others make."""
    return {a for s in statements for a in reads(s)} - {*map(result, statements)}


def arguments(statement: ir.Statement) -> Set[str]:
    return {a for a in statement.arguments if isinstance(a, str)}


def result(statement: ir.Statement) -> str:
    return "" if isinstance(statement, ir.Store) else statement.name
