"""Rules for `itertools`, zip, map, filter and enumerate: iterators that compute a value when the program reads it."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from compiler_core.capture.rules.python.operators import binary, equal, key_of
from compiler_core.capture.rules.table import HANDLERS, handles, handles_each
from compiler_core.capture.values.base import ObservedException, Value, observed_exception, to_index
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue, errors_of_program
from compiler_core.capture.values.builtin.containers import (
    IteratorValue,
    MappedIteratorValue,
    Recreation,
    iterate_over,
    remaining_values,
)
from compiler_core.capture.values.builtin.sequences import TupleValue
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter

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


def generator_rule(*callables: Any) -> Callable[[Callable[..., ValueIterator]], Callable[..., ValueIterator]]:
    """Makes a generator function the rule for `callables`.  The rule itself makes iterators of its arguments."""

    def register(rule: Callable[..., ValueIterator]) -> Callable[..., ValueIterator]:
        @functools.wraps(rule)
        def handler(tx: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
            return GeneratorIteratorValue(rule(tx, *args, **kwargs))

        for obj in callables:
            HANDLERS[obj] = handler
        return rule

    return register


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

    def wrong(i: int, how: str) -> ObservedException:
        return observed_exception(
            ValueError, f"zip() argument {i + 1} is {how} than argument{' ' if i == 1 else 's 1-'}{i}"
        )

    if ended:
        raise wrong(ended, "shorter")
    for i, iterator in enumerate(iterators[1:], 1):
        if iterator.next_value(tx) is not None:
            raise wrong(i, "longer")


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


@handles(filter)
def _filter(tx: Interpreter, function: Value, iterable: Value, /) -> Value:
    return _filtered(tx, filter, function, iterable, True)


@handles(itertools.filterfalse)
def _filterfalse(tx: Interpreter, function: Value, iterable: Value) -> Value:
    return _filtered(tx, itertools.filterfalse, function, iterable, False)


def _filtered(tx: Interpreter, cls: Any, function: Value, iterable: Value, wanted: bool) -> Value:
    iterator = iterable.iterate(tx)

    def step(tx: Interpreter) -> Value | None:
        while (value := iterator.next_value(tx)) is not None:
            tested = value if tx.is_none(function) else function.call(tx, [value], {})
            if tested.truth(tx) == wanted:
                return value
        return None

    return MappedIteratorValue(step, lambda: (cls, [function, iterator]), cls)


@generator_rule(itertools.chain)
def _chain(tx: Interpreter, *iterables: Value) -> ValueIterator:
    for iterable in iterables:
        yield from iterate_over(tx, iterable)


@handles(itertools.chain.from_iterable)
def _from_iterable(tx: Interpreter, iterables: Value) -> Value:
    outer = iterables.iterate(tx)
    return GeneratorIteratorValue(
        value for iterable in remaining_values(tx, outer) for value in iterate_over(tx, iterable)
    )


@handles(itertools.islice)
def _islice(tx: Interpreter, iterable: Value, /, *bounds: Value) -> Value:
    whole = slice(*(b.constant(tx) for b in bounds))
    given = (whole.start, whole.stop, whole.step)
    if whole.step == 0 or any(b is not None and (not isinstance(b, int) or b < 0) for b in given):
        raise Unsupported("exception", "bounds of itertools.islice")
    return GeneratorIteratorValue(_sliced(tx, iterable.iterate(tx), whole.start or 0, whole.stop, whole.step or 1))


def _sliced(tx: Interpreter, iterator: Value, at: int, stop: int | None, step: int) -> ValueIterator:
    taken = 0
    while True:
        while taken < at:
            if iterator.next_value(tx) is None:
                return
            taken += 1
        if stop is not None and taken >= stop:
            return
        value = iterator.next_value(tx)
        if value is None:
            return
        taken += 1
        at = at + step if stop is None else min(at + step, stop)
        yield value


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
    return GeneratorIteratorValue(_long_rows(tx, [a.iterate(tx) for a in args], fillvalue))


def _long_rows(tx: Interpreter, iterators: list[Value], fill: Value) -> ValueIterator:
    active: list[Value | None] = list(iterators)
    while any(a is not None for a in active):
        row = []
        for i, iterator in enumerate(active):
            value = None if iterator is None else iterator.next_value(tx)
            if value is None:
                active[i] = None
                if not any(a is not None for a in active):
                    return
            row.append(fill if value is None else value)
        yield TupleValue(row)


@handles(itertools.accumulate)
def _accumulate(tx: Interpreter, iterable: Value, func: Value | None = None, *, initial: Value | None = None) -> Value:
    return GeneratorIteratorValue(_accumulated(tx, iterable.iterate(tx), func, initial))


def _accumulated(tx: Interpreter, iterator: Value, func: Value | None, initial: Value | None) -> ValueIterator:
    total = iterator.next_value(tx) if initial is None or tx.is_none(initial) else initial
    if total is None:
        return
    yield total
    for value in remaining_values(tx, iterator):
        plain = func is None or tx.is_none(func)
        total = binary(operator.add, tx, total, value) if plain or func is None else func.call(tx, [total, value], {})
        yield total


@handles(itertools.repeat)
def _repeat(tx: Interpreter, object: Value, times: Value | None = None) -> Value:
    if times is None:
        return GeneratorIteratorValue(itertools.repeat(object))
    return GeneratorIteratorValue(itertools.repeat(object, _index(tx, times)))


def _index(tx: Interpreter, number: Value) -> int:
    """``operator.index(number)``"""
    found: int = tx.fold(operator.index, [to_index(tx, number)], {}).constant(tx)
    return found


@handles(itertools.count)
def _count(tx: Interpreter, start: Value = ConstantValue(0), step: Value = ConstantValue(1)) -> Value:  # noqa: B008
    start.install_guards(tx)
    _check_numbers(start, step)
    at = _as_int(tx, start) if step.python_type() in (int, bool) and step.constant(tx) == 1 else start
    return GeneratorIteratorValue(_counted(tx, at, step))


def _counted(tx: Interpreter, at: Value, step: Value) -> ValueIterator:
    while True:
        yield at
        at = binary(operator.add, tx, at, step)


def _check_numbers(*given: Value) -> None:
    for each in given:
        if not hasattr(each.python_type(), "__add__") or issubclass(each.python_type(), (str, bytes, list, tuple)):
            raise Unsupported("exception", "itertools.count of what is no number")


def _as_int(tx: Interpreter, number: Value) -> Value:
    """Converts a bool to an int, as ``itertools.count`` does with its start if its step is 1."""
    return ConstantValue(int(number.constant(tx))) if number.python_type() is bool else number


@handles(itertools.cycle)
def _cycle(tx: Interpreter, iterable: Value) -> Value:
    return GeneratorIteratorValue(_cycled(tx, iterable.iterate(tx)))


def _cycled(tx: Interpreter, iterator: Value) -> ValueIterator:
    saved = []
    for value in remaining_values(tx, iterator):
        saved.append(value)
        yield value
    while saved:
        yield from saved


@handles(itertools.takewhile)
def _takewhile(tx: Interpreter, function: Value, iterable: Value) -> Value:
    steps = remaining_values(tx, iterable.iterate(tx))
    return GeneratorIteratorValue(itertools.takewhile(lambda value: function.call(tx, [value], {}).truth(tx), steps))


@handles(itertools.dropwhile)
def _dropwhile(tx: Interpreter, function: Value, iterable: Value) -> Value:
    steps = remaining_values(tx, iterable.iterate(tx))
    return GeneratorIteratorValue(itertools.dropwhile(lambda value: function.call(tx, [value], {}).truth(tx), steps))


@handles(itertools.starmap)
def _starmap(tx: Interpreter, function: Value, iterable: Value) -> Value:
    steps = remaining_values(tx, iterable.iterate(tx))
    return GeneratorIteratorValue(function.call(tx, tx.list_of(row), {}) for row in steps)


@handles(itertools.compress)
def _compress(tx: Interpreter, data: Value, selectors: Value) -> Value:
    values, chosen = remaining_values(tx, data.iterate(tx)), remaining_values(tx, selectors.iterate(tx))
    return GeneratorIteratorValue(value for value, wanted in zip(values, chosen, strict=False) if wanted.truth(tx))


@handles(itertools.pairwise)
def _pairwise(tx: Interpreter, iterable: Value) -> Value:
    pairs = itertools.pairwise(remaining_values(tx, iterable.iterate(tx)))
    return GeneratorIteratorValue(TupleValue(list(pair)) for pair in pairs)


@handles(itertools.tee)
def _tee(tx: Interpreter, iterable: Value, n: Value | None = None) -> Value:
    count = 2 if n is None else n.constant(tx)
    with errors_of_program(TypeError, ValueError):
        itertools.tee((), count)
    copies = itertools.tee(remaining_values(tx, iterable.iterate(tx)), count)
    return TupleValue([GeneratorIteratorValue(copy) for copy in copies])


@handles(itertools.groupby)
def _groupby(tx: Interpreter, iterable: Value, key: Value | None = None) -> Value:
    groups = itertools.groupby(remaining_values(tx, iterable.iterate(tx)), lambda value: _GroupKey(tx, value, key))
    return GeneratorIteratorValue(TupleValue([found.rank, GeneratorIteratorValue(group)]) for found, group in groups)


class _GroupKey:
    def __init__(self, tx: Interpreter, value: Value, key: Value | None) -> None:
        self.tx = tx
        self.rank = key_of(tx, value, key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _GroupKey) and equal(self.tx, self.rank, other.rank)

    __hash__ = None  # type: ignore[assignment]


def _batched(tx: Interpreter, iterable: Value, n: Value) -> Value:
    steps, size = remaining_values(tx, iterable.iterate(tx)), n.constant(tx)
    batches = iter(lambda: list(itertools.islice(steps, size)), [])
    return GeneratorIteratorValue(TupleValue(batch) for batch in batches)


if hasattr(itertools, "batched"):  # Python 3.12
    HANDLERS[itertools.batched] = _batched
