"""Rules for Python's builtins that iterate: iter, next, sorted, sum, min, map, zip, and `itertools`."""

from __future__ import annotations

import bisect
import functools
import heapq
import itertools
import math
import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from compiler_core.capture.rules.python.operators import binary, equal, key_of
from compiler_core.capture.rules.table import HANDLERS, add_rules, handles, handles_each
from compiler_core.capture.values import reads
from compiler_core.capture.values.base import (
    ABSENT,
    Args,
    Kwargs,
    ObservedException,
    Value,
    lookup_in_mro,
    observed_exception,
    to_index,
    type_errors_left_to_python,
)
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue, errors_of_program
from compiler_core.capture.values.builtin.containers import (
    IteratorValue,
    MappedIteratorValue,
    Recreation,
    iterate_over,
    remaining_values,
)
from compiler_core.capture.values.builtin.mappings import DictValue, DictViewValue
from compiler_core.capture.values.builtin.sequences import ListValue, TupleValue
from compiler_core.capture.values.builtin.static import evaluate, fold, from_python
from compiler_core.capture.values.builtin.symbols import ReadValue, SymbolicNumber, is_symbolic, symbolic_extreme
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
    if obj.python_type() in (list, tuple, range, str, bytes):
        return IteratorValue(values, obj, is_reversed=True)
    return IteratorValue(list(reversed(values)))


def sorted_values(tx: Interpreter, values: list[Value], key: Value | None, reverse: Value | None) -> list[Value]:
    """Returns `values` sorted by Python's sort, with the comparisons that it makes."""
    ranks = [_sort_key(tx, v, key) for v in values]
    order = list(range(len(values)))
    with errors_of_program(TypeError):
        order.sort(key=ranks.__getitem__, reverse=reverse is not None and reverse.truth(tx))
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
    with errors_of_program(TypeError):
        return ConstantValue(fn(ranks, _sort_key(tx, x, None)))


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


class ComparisonKeyValue(Value):
    """An object wrapped by the result of ``functools.cmp_to_key(compare)``; a call wraps another object."""

    def __init__(self, compare: Value, obj: Value) -> None:
        self.compare = compare
        self.obj = obj

    def call(self, tx: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        return ComparisonKeyValue(self.compare, args[0])


@handles(sum)
def _sum(tx: Interpreter, obj: Value, start: Value | None = None) -> Value:
    total: Value = start or ConstantValue(0)
    if total.python_type() in (str, bytes, bytearray):
        raise Unsupported("exception", "sum() of text")
    values = tx.list_of(obj)
    # Python adds the numbers at the beginning in a special loop, which is more precise
    count = next((i for i, v in enumerate(values) if not _is_number(v)), len(values))
    if count and _is_number(total):
        total = fold(tx, sum, [ListValue(values[:count]), total])
        values = values[count:]
    for value in values:
        total = binary(operator.add, tx, total, value)
    return total


@handles(math.prod)
def _prod(tx: Interpreter, obj: Value, *, start: Value | None = None) -> Value:
    values = [start or ConstantValue(1), *tx.list_of(obj)]
    if not is_symbolic(values):
        return fold(tx, math.prod, [ListValue(values)])
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


# ---------------------------------------------------------------- lazy iterators
#
# ``zip``, ``map``, ``filter``, ``enumerate`` and those of `itertools` compute a value when the program reads it.
# Most of `itertools` are Python's own functions over generators of values.


ValueIterator = Iterator[Value]


class GeneratorIteratorValue(MappedIteratorValue):
    """An iterator whose values a Python generator yields."""

    def __init__(self, steps: ValueIterator, again: Recreation | None = None) -> None:
        super().__init__(self._next, again)
        self.steps = steps
        self.failed = False

    def _next(self, tx: Interpreter) -> Value | None:
        if self.failed:
            raise Unsupported("unsupported iteration", "an iterator that has raised an exception before")
        try:
            return next(self.steps, None)
        except ObservedException:
            self.failed = True
            raise


def _steps(tx: Interpreter, iterable: Value) -> ValueIterator:
    """Yields the values of an iterable, of which Python's own functions make other iterators."""
    return remaining_values(tx, iterable.iterate(tx))


def _call(tx: Interpreter, function: Value, *args: Value) -> Value:
    return function.call(tx, args, {})


@handles(zip)
def _zip(tx: Interpreter, *args: Value, strict: Value | None = None) -> Value:
    is_strict = strict is not None and strict.truth(tx)
    iterators = [a.iterate(tx) for a in args]
    return GeneratorIteratorValue(_rows(tx, iterators, is_strict), None if is_strict else lambda: (zip, iterators))


def _rows(tx: Interpreter, iterators: list[Value], strict: bool = False) -> ValueIterator:
    while iterators:
        row: list[Value] = []
        for iterator in iterators:
            value = iterator.next_value(tx)
            if value is None:
                if strict:
                    _check_lengths(tx, iterators, len(row))
                return
            row.append(value)
        yield TupleValue(row)


def _check_lengths(tx: Interpreter, iterators: list[Value], ended: int) -> None:
    """Raises the ValueError of a strict zip, whose iterator at index `ended` has ended, if the lengths differ."""
    lengths = [1] * ended + [0] * (len(iterators) - ended)
    for i, iterator in enumerate(iterators[1:] if not ended else (), 1):
        if iterator.next_value(tx) is not None:
            lengths[i] = 1
            break
    evaluate(lambda: len(list(zip(*map(range, lengths), strict=True))))


@handles(enumerate)
def _enumerate(tx: Interpreter, iterable: Value, start: Value | None = None) -> Value:
    iterator, count = iterable.iterate(tx), 0 if start is None else _index(tx, start)

    def steps() -> ValueIterator:
        nonlocal count
        for value in remaining_values(tx, iterator):
            count += 1
            yield TupleValue([ConstantValue(count - 1), value])

    return GeneratorIteratorValue(steps(), lambda: (enumerate, [iterator, ConstantValue(count)]))


@handles(map)
def _map(tx: Interpreter, function: Value, /, *args: Value) -> Value:
    if not args:
        raise observed_exception(TypeError, "map() must have at least two arguments.")
    rows = [a.iterate(tx) for a in args]

    def step(tx: Interpreter) -> Value | None:
        row: list[Value] = []
        for iterator in rows:
            value = iterator.next_value(tx)
            if value is None:
                return None
            row.append(value)
        return function.call(tx, row, {})

    return MappedIteratorValue(step, lambda: (map, [function, *rows]), map)


def _filtered(tx: Interpreter, cls: Any, function: Value, iterable: Value, wanted: bool) -> Value:
    iterator = iterable.iterate(tx)

    def step(tx: Interpreter) -> Value | None:
        while (value := iterator.next_value(tx)) is not None:
            tested = value if tx.is_none(function) else function.call(tx, [value], {})
            if tested.truth(tx) == wanted:
                return value
        return None

    return MappedIteratorValue(step, lambda: (cls, [function, iterator]), cls)


@handles(itertools.chain.from_iterable)
def _from_iterable(tx: Interpreter, iterables: Value) -> Value:
    parts = (iterate_over(tx, each) for each in _steps(tx, iterables))
    return GeneratorIteratorValue(itertools.chain.from_iterable(parts))


@handles(itertools.islice)
def _islice(tx: Interpreter, iterable: Value, /, *bounds: Value) -> Value:
    with errors_of_program(TypeError, ValueError):
        return GeneratorIteratorValue(itertools.islice(_steps(tx, iterable), *(b.constant(tx) for b in bounds)))


@handles_each(
    itertools.product, itertools.permutations, itertools.combinations, itertools.combinations_with_replacement
)
def _combinatorial(function: Any, tx: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
    """Rule for the functions that read all their arguments before the first result."""
    named = {k: v.constant(tx) for k, v in kwargs.items()}
    is_product = function is itertools.product
    given = [tx.list_of(a) if is_product or i == 0 else a.constant(tx) for i, a in enumerate(args)]
    with errors_of_program(TypeError, ValueError):
        found = function(*given, **named)
    rows = []
    for row in found:
        tx.capture.count_iteration()
        rows.append(TupleValue(list(row)))
    return IteratorValue(list(rows))


@handles(itertools.zip_longest)
def _zip_longest(tx: Interpreter, *args: Value, fillvalue: Value = NONE) -> Value:
    rows = itertools.zip_longest(*(_steps(tx, a) for a in args), fillvalue=fillvalue)
    return GeneratorIteratorValue(TupleValue(list(row)) for row in rows)


@handles(itertools.accumulate)
def _accumulate(tx: Interpreter, iterable: Value, func: Value = NONE, *, initial: Value = NONE) -> Value:
    add: Any = functools.partial(binary, operator.add, tx)
    steps, combine = _steps(tx, iterable), add if tx.is_none(func) else functools.partial(_call, tx, func)
    start = None if tx.is_none(initial) else initial
    return GeneratorIteratorValue(itertools.accumulate(steps, combine, initial=start))


@handles(itertools.repeat)
def _repeat(tx: Interpreter, object: Value, times: Value | None = None) -> Value:
    if times is None:
        return GeneratorIteratorValue(itertools.repeat(object))
    return GeneratorIteratorValue(itertools.repeat(object, _index(tx, times)))


def _index(tx: Interpreter, number: Value) -> int:
    """``operator.index(number)``"""
    found: int = tx.fold(operator.index, [to_index(tx, number)]).constant(tx)
    return found


@handles(itertools.count)
def _count(tx: Interpreter, start: Value = ConstantValue(0), step: Value = ConstantValue(1)) -> Value:  # noqa: B008
    start.install_guards(tx)
    _check_numbers(start, step)
    at = _as_int(tx, start) if step.python_type() in (int, bool) and step.constant(tx) == 1 else start
    add = functools.partial(binary, operator.add, tx)
    return GeneratorIteratorValue(itertools.accumulate(itertools.repeat(step), add, initial=at))


def _check_numbers(*given: Value) -> None:
    for each in given:
        if not hasattr(each.python_type(), "__add__") or issubclass(each.python_type(), (str, bytes, list, tuple)):
            raise Unsupported("exception", "itertools.count of what is no number")


def _as_int(tx: Interpreter, number: Value) -> Value:
    """Converts a bool to an int, as ``itertools.count`` does with its start if its step is 1."""
    return ConstantValue(int(number.constant(tx))) if number.python_type() is bool else number


@handles_each(itertools.takewhile, itertools.dropwhile)
def _while(fn: Any, tx: Interpreter, function: Value, iterable: Value) -> Value:
    return GeneratorIteratorValue(fn(lambda value: _call(tx, function, value).truth(tx), _steps(tx, iterable)))


@handles(itertools.compress)
def _compress(tx: Interpreter, data: Value, selectors: Value) -> Value:
    values, chosen = _steps(tx, data), _steps(tx, selectors)
    return GeneratorIteratorValue(value for value, wanted in zip(values, chosen, strict=False) if wanted.truth(tx))


@handles(itertools.pairwise)
def _pairwise(tx: Interpreter, iterable: Value) -> Value:
    pairs = itertools.pairwise(_steps(tx, iterable))
    return GeneratorIteratorValue(TupleValue(list(pair)) for pair in pairs)


@handles(itertools.tee)
def _tee(tx: Interpreter, iterable: Value, n: Value | None = None) -> Value:
    count = 2 if n is None else n.constant(tx)
    with errors_of_program(TypeError, ValueError):
        itertools.tee((), count)
    copies = itertools.tee(_steps(tx, iterable), count)
    return TupleValue([GeneratorIteratorValue(copy) for copy in copies])


@handles(itertools.groupby)
def _groupby(tx: Interpreter, iterable: Value, key: Value | None = None) -> Value:
    groups = itertools.groupby(_steps(tx, iterable), lambda value: _GroupKey(tx, value, key))
    return GeneratorIteratorValue(TupleValue([found.rank, GeneratorIteratorValue(group)]) for found, group in groups)


class _GroupKey:
    def __init__(self, tx: Interpreter, value: Value, key: Value | None) -> None:
        self.tx = tx
        self.rank = key_of(tx, value, key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _GroupKey) and equal(self.tx, self.rank, other.rank)

    __hash__ = None  # type: ignore[assignment]


def _batched(tx: Interpreter, iterable: Value, n: Value) -> Value:
    steps, size = _steps(tx, iterable), n.constant(tx)
    batches = iter(lambda: list(itertools.islice(steps, size)), [])
    return GeneratorIteratorValue(TupleValue(batch) for batch in batches)


if hasattr(itertools, "batched"):  # Python 3.12
    HANDLERS[itertools.batched] = _batched


add_rules(
    {
        sorted: lambda tx, obj, *, key=None, reverse=None: ListValue(sorted_values(tx, tx.list_of(obj), key, reverse)),
        functools.cmp_to_key: lambda tx, mycmp: ComparisonKeyValue(mycmp, mycmp),
        any: lambda tx, obj: ConstantValue(any(value.truth(tx) for value in iterate_over(tx, obj))),
        all: lambda tx, obj: ConstantValue(all(value.truth(tx) for value in iterate_over(tx, obj))),
        filter: lambda tx, function, iterable, /: _filtered(tx, filter, function, iterable, True),
        itertools.filterfalse: lambda tx, function, iterable: _filtered(
            tx, itertools.filterfalse, function, iterable, False
        ),
        itertools.chain: lambda tx, *iterables: GeneratorIteratorValue(
            itertools.chain.from_iterable(iterate_over(tx, each) for each in iterables)
        ),
        itertools.cycle: lambda tx, iterable: GeneratorIteratorValue(itertools.cycle(_steps(tx, iterable))),
        itertools.starmap: lambda tx, function, iterable: GeneratorIteratorValue(
            _call(tx, function, *tx.list_of(row)) for row in _steps(tx, iterable)
        ),
    }
)
