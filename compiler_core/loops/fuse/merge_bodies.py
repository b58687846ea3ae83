"""Merges the bodies of two loop nests, with common-subexpression and dead-code elimination."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from compiler_core.loops import ir
from compiler_core.support.texts import unused_name


def rename_conflicting(body: Sequence[ir.Statement], other: Sequence[ir.Statement]) -> list[ir.Statement]:
    """Returns `body` with its values renamed such that none has the name of a value of `other`."""
    taken = {s.name for s in other if not isinstance(s, ir.Store)}
    renamed: dict[str, ir.Argument] = {}
    result: list[ir.Statement] = []
    for statement in body:
        statement = _rename_arguments(statement, renamed)
        if not isinstance(statement, ir.Store):
            name = unused_name(statement.name, taken)
            taken.add(name)
            renamed[statement.name] = name
            statement = replace(statement, name=name)
        result.append(statement)
    return result


def restrict_to_ranges(statement: ir.Statement, within: tuple[ir.Range, ...]) -> ir.Statement:
    """Adds the conditions `within` to a load or a position; other statements are returned as they are."""
    if not within or not isinstance(statement, (ir.Load, ir.Position)):
        return statement
    return replace(statement, within=tuple(dict.fromkeys((*statement.within, *within))))


def merge_bodies(
    first: Sequence[ir.Statement], second: Sequence[ir.Statement], values: Mapping[str, ir.Argument]
) -> tuple[ir.Statement, ...]:
    """Merges two bodies into one.

    Statements that compute the same are merged, loads of the buffers in `values` are replaced by these values, and
    dead code is eliminated.
    """
    result: list[ir.Statement] = []
    known: dict[Hashable, int] = {}
    """The index in `result` of each computation."""
    taken: set[str] = set()
    renamed: dict[str, ir.Argument] = {}
    for number, statement in enumerate((*first, *second)):
        if number == len(first):  # the second may use names of the first for other values
            values = {b: renamed.get(v, v) if isinstance(v, str) else v for b, v in values.items()}
        statement = _rename_arguments(statement, renamed)
        if isinstance(statement, ir.Store):
            result.append(statement)
            continue
        if isinstance(statement, ir.Load) and statement.buffer in values:
            renamed[statement.name] = values[statement.buffer]
            continue
        key = _expression_key(statement)
        if key in known:
            same = result[known[key]]
            assert not isinstance(same, ir.Store)
            renamed[statement.name] = same.name
            result[known[key]] = replace(same, origin=tuple(dict.fromkeys(same.origin + statement.origin)))
            continue
        name = unused_name(statement.name, taken)
        if name != statement.name:
            renamed[statement.name] = name
            statement = replace(statement, name=name)
        else:
            renamed.pop(name, None)
        known[key] = len(result)
        taken.add(name)
        result.append(statement)
    return ir.eliminate_dead_code(result)


def _expression_key(statement: ir.Statement) -> Hashable:
    """Returns a key of what a statement computes: its type and all fields but name and origin."""
    fields = vars(statement).items()
    return type(statement), *[value for field, value in fields if field not in ("name", "origin")]


def _rename_arguments(statement: ir.Statement, renamed: Mapping[str, ir.Argument]) -> ir.Statement:
    """Returns `statement` with its arguments replaced as `renamed` says, including positions in addresses."""
    if not any(argument in renamed for argument in statement.arguments):
        return statement

    def new(argument: ir.Argument) -> ir.Argument:
        return renamed.get(argument, argument) if isinstance(argument, str) else argument

    def position(name: str) -> str:
        found = renamed.get(name, name)
        assert isinstance(found, str)  # a position is never replaced by a literal
        return found

    statement = ir.map_addresses(statement, lambda address: address.renamed(position))
    if isinstance(statement, ir.Compute):
        return replace(statement, arguments=tuple(map(new, statement.arguments)))
    if isinstance(statement, (ir.Reduce, ir.Scan, ir.Store, ir.Position)):
        return replace(statement, value=new(statement.value))
    return statement


def structural_key(loops: ir.Loops, buffers: Mapping[str, ir.Buffer]) -> Hashable:
    """Returns a key that is equal for loop nests which differ only in the names of loops, values and buffers."""
    numbers = {b: str(n) for n, b in enumerate(dict.fromkeys(loops.arguments))}
    renamed: dict[str, ir.Argument] = {}
    body: list[ir.Statement] = []
    for number, statement in enumerate(loops.body):
        statement = _rename_arguments(statement, renamed)
        if isinstance(statement, (ir.Load, ir.Store)):
            statement = replace(statement, buffer=numbers[statement.buffer])
        if not isinstance(statement, ir.Store):
            renamed[statement.name] = str(number)
            statement = replace(statement, name=str(number))
        body.append(statement)
    return loops.outer, loops.inner, tuple((n, buffers[b].dtype) for b, n in numbers.items()), tuple(body)
