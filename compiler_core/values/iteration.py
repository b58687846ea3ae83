"""Python's builtins that iterate: iter, next, zip, map, sorted, sum and the like."""

from __future__ import annotations

import functools
import itertools
import operator
from typing import TYPE_CHECKING, Any

from compiler_core.errors import Unsupported
from compiler_core.values.base import Value
from compiler_core.values.constant import ConstantValue
from compiler_core.values.iterators import IteratorValue, MappedIteratorValue
from compiler_core.values.operators import binary
from compiler_core.values.rules import HANDLERS, handles
from compiler_core.values.sequences import ListValue, TupleValue
from compiler_core.values.tensor import TensorValue

if TYPE_CHECKING:
    from compiler_core.symbolic import Interpreter


@handles(iter)
def _iter(tx: Interpreter, obj: Value) -> Value:
    return obj.iterate(tx)


@handles(next)
def _next(tx: Interpreter, iterator: Value, default: Value | None = None) -> Value:
    if default is None:
        return iterator.next_or_stop(tx)
    return iterator.next_value(tx) or default


@handles(zip)
def _zip(tx: Interpreter, *args: Value, strict: Value | None = None) -> Value:
    if strict is not None and strict.truth(tx):
        rows = [tx.list_of(a) for a in args]
        if len({len(r) for r in rows}) > 1:
            raise Unsupported("exception", "zip() arguments differ in length")
        return IteratorValue([TupleValue(list(r)) for r in zip(*rows, strict=True)])
    iterators = [a.iterate(tx) for a in args]

    def step(tx: Interpreter) -> Value | None:
        row = []
        for iterator in iterators:
            value = iterator.next_value(tx)
            if value is None:
                return None
            row.append(value)
        return TupleValue(row) if row else None

    return MappedIteratorValue(step)


@handles(enumerate)
def _enumerate(tx: Interpreter, obj: Value, start: Value | None = None) -> Value:
    iterator = obj.iterate(tx)
    counter = itertools.count(0 if start is None else start.constant(tx))

    def step(tx: Interpreter) -> Value | None:
        value = iterator.next_value(tx)
        return None if value is None else TupleValue([ConstantValue(next(counter)), value])

    return MappedIteratorValue(step)


@handles(map)
def _map(tx: Interpreter, function: Value, *args: Value) -> Value:
    rows = _zip(tx, *args)
    assert isinstance(rows, IteratorValue)

    def step(tx: Interpreter) -> Value | None:
        row = rows.next_value(tx)
        return None if row is None else function.call(tx, row.items(tx), {})

    return MappedIteratorValue(step)


@handles(filter)
def _filter(tx: Interpreter, function: Value, obj: Value) -> Value:
    iterator = obj.iterate(tx)

    def step(tx: Interpreter) -> Value | None:
        while (value := iterator.next_value(tx)) is not None:
            kept = value if ConstantValue(None).same_object(function) else function.call(tx, [value], {})
            if kept.truth(tx):
                return value
        return None

    return MappedIteratorValue(step)


@handles(reversed)
def _reversed(tx: Interpreter, obj: Value) -> Value:
    return IteratorValue(list(reversed(obj.items(tx))))


@handles(sorted)
def _sorted(tx: Interpreter, obj: Value, *, key: Value | None = None, reverse: Value | None = None) -> Value:
    return ListValue(sorted_values(tx, tx.list_of(obj), key, reverse))


def sorted_values(tx: Interpreter, values: list[Value], key: Value | None, reverse: Value | None) -> list[Value]:
    none = key is None or ConstantValue(None).same_object(key)
    ranks = [(v if none or key is None else key.call(tx, [v], {})).constant(tx) for v in values]
    try:
        order = sorted(range(len(values)), key=ranks.__getitem__, reverse=reverse is not None and reverse.truth(tx))
    except TypeError as error:
        raise Unsupported("exception", str(error)) from None
    return [values[i] for i in order]


@handles(any)
def _any(tx: Interpreter, obj: Value) -> Value:
    iterator = obj.iterate(tx)
    while (value := iterator.next_value(tx)) is not None:
        if value.truth(tx):
            return ConstantValue(True)
    return ConstantValue(False)


@handles(all)
def _all(tx: Interpreter, obj: Value) -> Value:
    iterator = obj.iterate(tx)
    while (value := iterator.next_value(tx)) is not None:
        if not value.truth(tx):
            return ConstantValue(False)
    return ConstantValue(True)


@handles(sum)
def _sum(tx: Interpreter, obj: Value, start: Value | None = None) -> Value:
    total: Value = start or ConstantValue(0)
    for value in tx.list_of(obj):
        total = binary(operator.add, tx, total, value)
    return total


def _extreme(fn: Any, tx: Interpreter, *args: Value, key: Value | None = None) -> Value:
    values = list(args) if len(args) > 1 else tx.list_of(args[0])
    if any(isinstance(v, TensorValue) for v in values):
        raise Unsupported("data-dependent branch", f"{fn.__name__} of tensors")
    ranks = [(v if key is None else key.call(tx, [v], {})).constant(tx) for v in values]
    try:
        found: int = fn(range(len(values)), key=ranks.__getitem__)
        return values[found]
    except (TypeError, ValueError) as error:
        raise Unsupported("exception", str(error)) from None


HANDLERS[min] = functools.partial(_extreme, min)
HANDLERS[max] = functools.partial(_extreme, max)
