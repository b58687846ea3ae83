"""Loop distribution: splits a loop body into consecutive loops, with bulk operations on arrays between them.

A bulk operation handles all elements of a block at once: a conversion of float16, or a scan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from compiler_core.loops import ir

Reads = Callable[[ir.Statement], Set[str]]
"""Returns the names of the values that a statement reads."""


def distribute(
    statements: Sequence[ir.Statement], is_bulk: Callable[[ir.Statement], bool], reads: Reads
) -> list[list[ir.Statement]]:
    """Assigns each statement to a loop, in dependence order; returns the loops' statements, first loop first.

    Loops have even numbers and bulk operations odd ones.  Each statement is placed as late as its readers allow, so
    that few values have to be stored between loops.
    """
    numbers = _earliest_loops(statements, is_bulk, reads)
    first_reader: dict[str, int] = {}
    for k, s in reversed(list(enumerate(statements))):
        number = first_reader.get(result_name(s), numbers[k])
        if (number % 2 == 1) != is_bulk(s):
            number -= 1
        numbers[k] = number
        for name in reads(s):
            first_reader[name] = min(number, first_reader.get(name, number))
    return [[s for n, s in zip(numbers, statements, strict=True) if n == number] for number in sorted({*numbers})]


def _earliest_loops(
    statements: Sequence[ir.Statement], is_bulk: Callable[[ir.Statement], bool], reads: Reads
) -> list[int]:
    """Returns for each statement the number of the first loop, or bulk operation, in which it can be."""
    numbers: list[int] = []
    producer: dict[str, int] = {}
    for s in statements:
        number = max((producer.get(a, 0) for a in reads(s)), default=0)
        if (number % 2 == 1) != is_bulk(s):
            number += 1
        producer[result_name(s)] = number
        numbers.append(number)
    return numbers


def live_in(statements: Sequence[ir.Statement], reads: Reads) -> Set[str]:
    """Returns the values that `statements` read and do not compute."""
    return {a for s in statements for a in reads(s)} - {*map(result_name, statements)}


def argument_names(statement: ir.Statement) -> Set[str]:
    """Returns the names of the values that a statement takes as arguments."""
    return {a for a in statement.arguments if isinstance(a, str)}


def result_name(statement: ir.Statement) -> str:
    """Returns the name of the value that a statement computes; empty for a store."""
    return "" if isinstance(statement, ir.Store) else statement.name
