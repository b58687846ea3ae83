"""Rules for Python's builtins that iterate: iter, next, reversed, sorted, any, all, sum, min, max, reduce."""

from __future__ import annotations

import bisect
import functools
import heapq
import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.capture.rules.python.itertools import GeneratorIteratorValue
from compiler_core.capture.rules.python.operators import binary, key_of
from compiler_core.capture.rules.table import handles, handles_each
from compiler_core.capture.values import reads
from compiler_core.capture.values.base import Value, observed_exception, type_errors_left_to_python
from compiler_core.capture.values.builtin.constant import ConstantValue, exception_from_error
from compiler_core.capture.values.builtin.containers import (
    IteratorValue,
    MappedIteratorValue,
    iterate_over,
    remaining_values,
)
from compiler_core.capture.values.builtin.conversion import evaluate, fold, from_python
from compiler_core.capture.values.builtin.deferred import ReadValue
from compiler_core.capture.values.builtin.mappings import DictValue, DictViewValue
from compiler_core.capture.values.builtin.sequences import ListValue, TupleValue
from compiler_core.capture.values.builtin.symbols import SymbolicNumber, is_symbolic, symbolic_extreme
from compiler_core.capture.values.classes import ABSENT, lookup_in_mro
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.user.functions import MethodValue
from compiler_core.capture.values.user.objects import ObjectValue, SubclassValue
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


@handles(iter)
def _iter(tx: Interpreter, obj: Value, sentinel: Value | None = None, /) -> Value:
    if sentinel is None:
        return obj.iterate(tx)
    if lookup_in_mro(obj.python_type(), "__call__") is ABSENT:
        return evaluate(functools.partial(iter, None, None))  # raises; the words differ between versions of Python

    def step(tx: Interpreter) -> Value | None:
        value = obj.call(tx, [], {})
        return None if tx.is_same_or_equal(value, sentinel) else value

    return MappedIteratorValue(step)


@handles(next)
def _next(tx: Interpreter, iterator: Value, default: Value | None = None, /) -> Value:
    if default is None:
        return iterator.next_or_stop(tx)
    return iterator.next_value(tx) or default


@handles(reversed)
def _reversed(tx: Interpreter, obj: Value) -> Value:
    if isinstance(obj, (DictValue, DictViewValue)):
        return obj.method___reversed__(tx)
    if isinstance(obj, TensorValue):
        return obj.get_attr(tx, "__reversed__").call(tx, [], {})
    if isinstance(obj, ObjectValue):
        method = obj.special_method(tx, "__reversed__")
        if isinstance(method, MethodValue):
            return method.call(tx, [], {})
    if isinstance(obj, ObjectValue) and not isinstance(obj, SubclassValue):
        size = obj.length(tx)
        return GeneratorIteratorValue(obj.get_item(tx, ConstantValue(i)) for i in range(size - 1, -1, -1))
    with type_errors_left_to_python("the argument of reversed"):
        values = obj.unpack(tx)
    if not hasattr(obj.python_type(), "__reversed__") and not hasattr(obj.python_type(), "__getitem__"):
        raise Unsupported("exception", f"reversed() of a {obj.python_type().__name__}")
    return IteratorValue(list(reversed(values)))


@handles(sorted)
def _sorted(tx: Interpreter, obj: Value, *, key: Value | None = None, reverse: Value | None = None) -> Value:
    return ListValue(sorted_values(tx, tx.list_of(obj), key, reverse))


def sorted_values(tx: Interpreter, values: list[Value], key: Value | None, reverse: Value | None) -> list[Value]:
    """Returns `values` sorted by Python's sort, with the comparisons that it makes."""
    ranks = [_sort_key(tx, v, key) for v in values]
    order = list(range(len(values)))
    try:
        order.sort(key=ranks.__getitem__, reverse=reverse is not None and reverse.truth(tx))
    except TypeError as error:
        raise exception_from_error(error) from None
    return [values[i] for i in order]


@handles_each(heapq.nlargest, heapq.nsmallest)
def _heap_select(fn: Any, tx: Interpreter, n: Value, obj: Value, key: Value | None = None) -> Value:
    ordered = sorted_values(tx, tx.list_of(obj), key, ConstantValue(fn is heapq.nlargest))
    return ListValue(ordered[: max(n.constant(tx), 0)])


@handles_each(bisect.bisect_left, bisect.bisect_right)
def _bisect(fn: Any, tx: Interpreter, a: Value, x: Value) -> Value:
    if not isinstance(a, (ListValue, TupleValue)):
        raise Unsupported("unsupported call", f"{fn.__name__}({a})")
    ranks = [_sort_key(tx, v, None) for v in tx.list_of(a)]
    try:
        return ConstantValue(fn(ranks, _sort_key(tx, x, None)))
    except TypeError as error:
        raise exception_from_error(error) from None


def _sort_key(tx: Interpreter, value: Value, key: Value | None) -> Any:
    found = key_of(tx, value, key)
    plain = found.is_constant() and not isinstance(found, SymbolicNumber)
    return found.constant(tx) if plain else _SortKey(tx, found)


class _SortKey:
    """A sort key that compares values by the program's own comparison."""

    def __init__(self, tx: Interpreter, value: Value) -> None:
        self.tx = tx
        self.value = value

    def __lt__(self, other: Any) -> bool:
        other_value = other.value if isinstance(other, _SortKey) else from_python(other)
        return less(self.tx, self.value, other_value)

    def __gt__(self, other: Any) -> bool:  # called for a constant on the left of <
        return less(self.tx, from_python(other), self.value)


def less(tx: Interpreter, left: Value, right: Value) -> bool:
    """``left < right``"""
    if isinstance(left, ComparisonKeyValue) and isinstance(right, ComparisonKeyValue):
        result = left.compare.call(tx, [left.obj, right.obj], {})
        return binary(operator.lt, tx, result, ConstantValue(0)).truth(tx)
    return binary(operator.lt, tx, left, right).truth(tx)


@handles(functools.cmp_to_key)
def _cmp_to_key(tx: Interpreter, mycmp: Value) -> Value:
    return ComparisonKeyValue(mycmp, mycmp)


class ComparisonKeyValue(Value):
    """An object wrapped by the result of ``functools.cmp_to_key(compare)``; a call wraps another object."""

    def __init__(self, compare: Value, obj: Value) -> None:
        self.compare = compare
        self.obj = obj

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return ComparisonKeyValue(self.compare, args[0])


@handles(any)
def _any(tx: Interpreter, obj: Value) -> Value:
    return ConstantValue(any(value.truth(tx) for value in iterate_over(tx, obj)))


@handles(all)
def _all(tx: Interpreter, obj: Value) -> Value:
    return ConstantValue(all(value.truth(tx) for value in iterate_over(tx, obj)))


@handles(sum)
def _sum(tx: Interpreter, obj: Value, start: Value | None = None) -> Value:
    total: Value = start or ConstantValue(0)
    if total.python_type() in (str, bytes, bytearray):
        raise Unsupported("exception", "sum() of text")
    values = tx.list_of(obj)
    # Python adds the numbers at the beginning in a special loop, which is more precise
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


@handles_each(min, max)
def _extreme(fn: Any, tx: Interpreter, *args: Value, key: Value | None = None, default: Value | None = None) -> Value:
    if not args:
        raise Unsupported("exception", f"{fn.__name__}() without arguments")
    values = list(args) if len(args) > 1 else tx.list_of(args[0])
    if not values and default is not None:
        return default
    if not values:
        return evaluate(functools.partial(fn, []))  # raises
    if (key is None or tx.is_none(key)) and any(isinstance(v, ReadValue) for v in values):
        return reads.extreme(tx, fn, values)
    if (key is None or tx.is_none(key)) and (symbolic := symbolic_extreme(fn, tx, values)) is not None:
        return symbolic
    ranks = [key_of(tx, v, key) for v in values]
    best = 0
    for i in range(1, len(values)):
        pair = (ranks[i], ranks[best])
        if less(tx, *pair) if fn is min else binary(operator.gt, tx, *pair).truth(tx):
            best = i
    return values[best]


@handles(functools.reduce)
def _reduce(tx: Interpreter, function: Value, iterable: Value, initial: Value | None = None, /) -> Value:
    with type_errors_left_to_python("the second argument of functools.reduce"):
        iterator = iterable.iterate(tx)
    total = iterator.next_value(tx) if initial is None else initial
    if total is None:
        raise observed_exception(TypeError, "reduce() of empty iterable with no initial value")
    for value in remaining_values(tx, iterator):
        total = function.call(tx, [total, value], {})
    return total
