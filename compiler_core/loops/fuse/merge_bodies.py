"""The statements of two loops as those of one."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from compiler_core.loops import ir


def apart(body: Sequence[ir.Statement], other: Sequence[ir.Statement]) -> list[ir.Statement]:
    """`body`, with none of its names in `other`."""
    taken = {s.name for s in other if not isinstance(s, ir.Store)}
    renamed: dict[str, ir.Argument] = {}
    made: list[ir.Statement] = []
    for statement in body:
        statement = _with_arguments(statement, renamed)
        if not isinstance(statement, ir.Store):
            name = _unused(statement.name, taken)
            taken.add(name)
            renamed[statement.name] = name
            statement = replace(statement, name=name)
        made.append(statement)
    return made


def only_within(statement: ir.Statement, within: tuple[ir.Range, ...]) -> ir.Statement:
    if not within or not isinstance(statement, (ir.Load, ir.Position)):
        return statement
    return replace(statement, within=tuple(dict.fromkeys((*statement.within, *within))))


def one_body(
    first: Sequence[ir.Statement], second: Sequence[ir.Statement], values: Mapping[str, ir.Argument]
) -> tuple[ir.Statement, ...]:
    """The statements of two loops as one: each once, loads of buffers in `values` as the value, nothing idle."""
    return ir.alive(_share(first, second, values))


def _share(
    first: Sequence[ir.Statement], second: Sequence[ir.Statement], values: Mapping[str, ir.Argument]
) -> list[ir.Statement]:
    """Both with each statement once, and loads of buffers in `values`, which the first made, replaced by the value."""
    made: list[ir.Statement] = []
    known: dict[Hashable, int] = {}
    taken: set[str] = set()
    renamed: dict[str, ir.Argument] = {}
    for number, statement in enumerate((*first, *second)):
        if number == len(first):  # a name of the second's may be one of the first's
            values = {b: renamed.get(v, v) if isinstance(v, str) else v for b, v in values.items()}
        statement = _with_arguments(statement, renamed)
        if isinstance(statement, ir.Store):
            made.append(statement)
        elif isinstance(statement, ir.Load) and statement.buffer in values:
            renamed[statement.name] = values[statement.buffer]
        elif (at := known.get(key := _nameless(statement))) is not None:
            same = made[at]
            assert not isinstance(same, ir.Store)
            renamed[statement.name] = same.name
            made[at] = replace(same, origin=tuple(dict.fromkeys(same.origin + statement.origin)))
        else:
            name = _unused(statement.name, taken)
            if name != statement.name:
                renamed[statement.name] = name
            else:
                renamed.pop(name, None)
            known[key] = len(made)
            taken.add(name)
            made.append(statement if name == statement.name else replace(statement, name=name))
    return made


def _nameless(statement: ir.Statement) -> Hashable:
    """What a statement computes: two that are equal but for name and origin have it in common."""
    fields = vars(statement).items()
    return type(statement), *[value for field, value in fields if field not in ("name", "origin")]


def _with_arguments(statement: ir.Statement, renamed: Mapping[str, ir.Argument]) -> ir.Statement:
    if not any(argument in renamed for argument in statement.arguments):
        return statement

    def new(argument: ir.Argument) -> ir.Argument:
        return renamed.get(argument, argument) if isinstance(argument, str) else argument

    def position(name: str) -> str:
        found = renamed.get(name, name)
        assert isinstance(found, str)  # a position is never known as a number
        return found

    statement = ir.readdressed(statement, lambda address: address.renamed(position))
    if isinstance(statement, ir.Compute):
        return replace(statement, arguments=tuple(map(new, statement.arguments)))
    if isinstance(statement, (ir.Reduce, ir.Scan, ir.Store, ir.Position)):
        return replace(statement, value=new(statement.value))
    return statement


def without_names(loops: ir.Loops, buffers: Mapping[str, ir.Buffer]) -> Hashable:
    """What loops are but for their names and those of their values and buffers: numbers stand for these."""
    numbers = {b: str(n) for n, b in enumerate(dict.fromkeys(loops.arguments))}
    renamed: dict[str, ir.Argument] = {}
    body: list[ir.Statement] = []
    for number, statement in enumerate(loops.body):
        made = _with_arguments(statement, renamed)
        if isinstance(made, (ir.Load, ir.Store)):
            made = replace(made, buffer=numbers[made.buffer])
        if not isinstance(made, ir.Store):
            renamed[made.name] = str(number)
            made = replace(made, name=str(number))
        body.append(made)
    return loops.outer, loops.inner, tuple((n, buffers[b].dtype) for b, n in numbers.items()), tuple(body)


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name
