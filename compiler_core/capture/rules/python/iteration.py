"""Python's builtins that iterate: iter, next, zip, map, sorted, sum and the like."""

from __future__ import annotations

import functools
import heapq
import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.capture.rules.python.itertools import LazyValue
from compiler_core.capture.rules.python.operators import binary
from compiler_core.capture.rules.table import HANDLERS, handles
from compiler_core.capture.values.base import Value, raised
from compiler_core.capture.values.builtin.iterators import IteratorValue, MappedIteratorValue, each, over
from compiler_core.capture.values.builtin.mappings import DictValue, DictViewValue
from compiler_core.capture.values.builtin.sequences import ListValue
from compiler_core.capture.values.constant import ConstantValue, fold, from_python
from compiler_core.capture.values.exceptions import from_error
from compiler_core.capture.values.symbols import SymbolicNumber, extreme, is_symbolic
from compiler_core.capture.values.user.functions import MethodValue
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.capture.values.user.subclasses import SubclassValue
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


@handles(iter)
def _iter(tx: Interpreter, obj: Value, sentinel: Value | None = None) -> Value:
    if sentinel is None:
        return obj.iterate(tx)

    def step(tx: Interpreter) -> Value | None:
        value = obj.call(tx, [], {})
        return None if tx.is_item(value, sentinel) else value

    return MappedIteratorValue(step)


@handles(next)
def _next(tx: Interpreter, iterator: Value, default: Value | None = None) -> Value:
    if default is None:
        return iterator.next_or_stop(tx)
    return iterator.next_value(tx) or default


@handles(reversed)
def _reversed(tx: Interpreter, obj: Value) -> Value:
    if isinstance(obj, (DictValue, DictViewValue)):
        return obj.method___reversed__(tx)
    if isinstance(obj, ObjectValue):
        method = obj.special(tx, "__reversed__")
        if isinstance(method, MethodValue):
            return method.call(tx, [], {})
    if isinstance(obj, ObjectValue) and not isinstance(obj, SubclassValue):
        return _reversed_by_index(tx, obj)
    return IteratorValue(list(reversed(obj.items(tx))))


def _reversed_by_index(tx: Interpreter, obj: ObjectValue) -> Value:
    size = obj.length(tx)
    return LazyValue(obj.get_item(tx, ConstantValue(i)) for i in range(size - 1, -1, -1))


@handles(sorted)
def _sorted(tx: Interpreter, obj: Value, *, key: Value | None = None, reverse: Value | None = None) -> Value:
    return ListValue(sorted_values(tx, tx.list_of(obj), key, reverse))


def sorted_values(tx: Interpreter, values: list[Value], key: Value | None, reverse: Value | None) -> list[Value]:
    """In the order in which Python's own sort puts them, by the comparisons that it makes."""
    ranks = [_rank(tx, v, key) for v in values]
    order = list(range(len(values)))
    try:
        order.sort(key=ranks.__getitem__, reverse=reverse is not None and reverse.truth(tx))
    except TypeError as error:
        raise from_error(error) from None
    return [values[i] for i in order]


def _first_of(descending: bool, tx: Interpreter, n: Value, obj: Value, key: Value | None = None) -> Value:
    """``heapq.nlargest``, ``nsmallest``"""
    ordered = sorted_values(tx, tx.list_of(obj), key, ConstantValue(descending))
    return ListValue(ordered[: max(n.constant(tx), 0)])


HANDLERS[heapq.nlargest] = functools.partial(_first_of, True)
HANDLERS[heapq.nsmallest] = functools.partial(_first_of, False)


def _rank(tx: Interpreter, value: Value, key: Value | None) -> Any:
    found = value if key is None or tx.is_none(key) else key.call(tx, [value], {})
    plain = found.is_constant() and not isinstance(found, SymbolicNumber)
    return found.constant(tx) if plain else _Rank(tx, found)


class _Rank:
    """A value, compared as the program's own comparison says."""

    def __init__(self, tx: Interpreter, value: Value) -> None:
        self.tx = tx
        self.value = value

    def __lt__(self, other: Any) -> bool:
        theirs = other.value if isinstance(other, _Rank) else from_python(other)
        return less(self.tx, self.value, theirs)

    def __gt__(self, other: Any) -> bool:  # of a constant on the left
        return less(self.tx, from_python(other), self.value)


def less(tx: Interpreter, left: Value, right: Value) -> bool:
    """``left < right``"""
    if isinstance(left, ComparedValue) and isinstance(right, ComparedValue):
        result = left.compare.call(tx, [left.obj, right.obj], {})
        return binary(operator.lt, tx, result, ConstantValue(0)).truth(tx)
    return binary(operator.lt, tx, left, right).truth(tx)


@handles(functools.cmp_to_key)
def _cmp_to_key(tx: Interpreter, mycmp: Value) -> Value:
    return ComparedValue(mycmp, mycmp)


class ComparedValue(Value):
    """What ``functools.cmp_to_key(compare)`` makes of an object; called, it makes one of another."""

    def __init__(self, compare: Value, obj: Value) -> None:
        self.compare = compare
        self.obj = obj

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return ComparedValue(self.compare, args[0])


@handles(any)
def _any(tx: Interpreter, obj: Value) -> Value:
    return ConstantValue(any(value.truth(tx) for value in over(tx, obj)))


@handles(all)
def _all(tx: Interpreter, obj: Value) -> Value:
    return ConstantValue(all(value.truth(tx) for value in over(tx, obj)))


@handles(sum)
def _sum(tx: Interpreter, obj: Value, start: Value | None = None) -> Value:
    total: Value = start or ConstantValue(0)
    if total.python_type() in (str, bytes, bytearray):
        raise Unsupported("exception", "sum() of text")
    values = tx.list_of(obj)
    # Python adds the numbers at the beginning in a loop of its own, which loses fewer digits
    count = next((i for i, v in enumerate(values) if not _is_number(v)), len(values))
    if count and _is_number(total):
        total = fold(tx, sum, [ListValue(values[:count]), total], {})
        values = values[count:]
    for value in values:
        total = binary(operator.add, tx, total, value)
    return total


@handles(math.prod)
def _prod(tx: Interpreter, obj: Value, *, start: Value | None = None) -> Value:
    values = [start or ConstantValue(1), *tx.list_of(obj)]
    if not is_symbolic(values):
        return fold(tx, math.prod, [ListValue(values)], {})
    return functools.reduce(lambda total, value: binary(operator.mul, tx, total, value), values)


def _is_number(value: Value) -> bool:
    plain = isinstance(value, ConstantValue) and not isinstance(value, SymbolicNumber)
    return plain and issubclass(value.python_type(), (int, float, complex))


def _extreme(fn: Any, tx: Interpreter, *args: Value, key: Value | None = None, default: Value | None = None) -> Value:
    values = list(args) if len(args) > 1 else tx.list_of(args[0])
    if not values and default is not None:
        return default
    if not values:
        raise from_error(_error_of(fn))
    if (key is None or tx.is_none(key)) and (symbolic := extreme(fn, tx, values)) is not None:
        return symbolic
    ranks = [v if key is None or tx.is_none(key) else key.call(tx, [v], {}) for v in values]
    best = 0
    for i in range(1, len(values)):
        pair = (ranks[i], ranks[best])
        if less(tx, *pair) if fn is min else binary(operator.gt, tx, *pair).truth(tx):
            best = i
    return values[best]


def _error_of(fn: Any) -> Exception:
    try:
        fn([])
    except ValueError as error:
        return error
    raise AssertionError


HANDLERS[min] = functools.partial(_extreme, min)
HANDLERS[max] = functools.partial(_extreme, max)


@handles(functools.reduce)
def _reduce(tx: Interpreter, function: Value, iterable: Value, initial: Value | None = None) -> Value:
    iterator = iterable.iterate(tx)
    total = iterator.next_value(tx) if initial is None else initial
    if total is None:
        raise raised(TypeError, "reduce() of empty iterable with no initial value")
    for value in each(tx, iterator):
        total = function.call(tx, [total, value], {})
    return total
