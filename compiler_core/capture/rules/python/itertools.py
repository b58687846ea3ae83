"""`itertools`: each rule is a generator over values, run as far as the program asks."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from compiler_core.capture.rules.python.operators import binary, equal
from compiler_core.capture.rules.table import HANDLERS, handles
from compiler_core.capture.values.base import Raised, Value
from compiler_core.capture.values.builtin.iterators import Again, IteratorValue, MappedIteratorValue, each, over
from compiler_core.capture.values.builtin.sequences import TupleValue
from compiler_core.capture.values.constant import NONE, ConstantValue
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter

Steps = Iterator[Value]


class LazyValue(MappedIteratorValue):
    """An iterator whose values a Python generator makes."""

    def __init__(self, steps: Steps, again: Again | None = None) -> None:
        super().__init__(self._next, again)
        self.steps = steps
        self.failed = False

    def _next(self, tx: Interpreter) -> Value | None:
        if self.failed:
            raise Unsupported("unsupported iteration", "an iterator that has raised before")
        try:
            return next(self.steps, None)
        except Raised:
            self.failed = True
            raise


def lazily(*callables: Any) -> Callable[[Callable[..., Steps]], Callable[..., Steps]]:
    """Make a generator the rule for `callables`; its arguments are made iterators only as it says."""

    def register(rule: Callable[..., Steps]) -> Callable[..., Steps]:
        @functools.wraps(rule)
        def handler(tx: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
            return LazyValue(rule(tx, *args, **kwargs))

        for obj in callables:
            HANDLERS[obj] = handler
        return rule

    return register


@handles(zip)
def _zip(tx: Interpreter, *args: Value, strict: Value | None = None) -> Value:
    is_strict = strict is not None and strict.truth(tx)
    iterators = [a.iterate(tx) for a in args]
    return LazyValue(_rows(tx, iterators, is_strict), None if is_strict else lambda: (zip, iterators))


def _rows(tx: Interpreter, iterators: list[Value], strict: bool = False) -> Steps:
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
    """The iterator at `ended` has no more values: none may have, nor may any before it have had one."""
    from compiler_core.capture.values.base import raised

    def wrong(i: int, how: str) -> Raised:
        return raised(ValueError, f"zip() argument {i + 1} is {how} than argument{' ' if i == 1 else 's 1-'}{i}")

    if ended:
        raise wrong(ended, "shorter")
    for i, iterator in enumerate(iterators[1:], 1):
        if iterator.next_value(tx) is not None:
            raise wrong(i, "longer")


@handles(enumerate)
def _enumerate(tx: Interpreter, iterable: Value, start: Value | None = None) -> Value:
    iterator, count = iterable.iterate(tx), 0 if start is None else operator.index(start.constant(tx))

    def steps() -> Steps:
        nonlocal count
        for value in each(tx, iterator):
            count += 1
            yield TupleValue([ConstantValue(count - 1), value])

    return LazyValue(steps(), lambda: (enumerate, [iterator, ConstantValue(count)]))


@handles(map)
def _map(tx: Interpreter, function: Value, *args: Value) -> Value:
    rows = [a.iterate(tx) for a in args]

    def step(tx: Interpreter) -> Value | None:
        row: list[Value] = []
        for iterator in rows:
            value = iterator.next_value(tx)
            if value is None:
                return None
            row.append(value)
        return function.call(tx, row, {})

    return MappedIteratorValue(step, lambda: (map, [function, *rows]))


@handles(filter)
def _filter(tx: Interpreter, function: Value, iterable: Value) -> Value:
    return _selected(tx, filter, function, iterable, True)


@handles(itertools.filterfalse)
def _filterfalse(tx: Interpreter, function: Value, iterable: Value) -> Value:
    return _selected(tx, itertools.filterfalse, function, iterable, False)


def _selected(tx: Interpreter, cls: Any, function: Value, iterable: Value, wanted: bool) -> Value:
    iterator = iterable.iterate(tx)

    def step(tx: Interpreter) -> Value | None:
        while (value := iterator.next_value(tx)) is not None:
            tested = value if tx.is_none(function) else function.call(tx, [value], {})
            if tested.truth(tx) == wanted:
                return value
        return None

    return MappedIteratorValue(step, lambda: (cls, [function, iterator]))


@lazily(itertools.chain)
def _chain(tx: Interpreter, *iterables: Value) -> Steps:
    for iterable in iterables:
        yield from over(tx, iterable)


@handles(itertools.chain.from_iterable)
def _from_iterable(tx: Interpreter, iterables: Value) -> Value:
    outer = iterables.iterate(tx)
    return LazyValue(value for iterable in each(tx, outer) for value in over(tx, iterable))


@handles(itertools.islice)
def _islice(tx: Interpreter, iterable: Value, *bounds: Value) -> Value:
    whole = slice(*(b.constant(tx) for b in bounds))
    if any(b is not None and (not isinstance(b, int) or b < 0) for b in (whole.start, whole.stop, whole.step)):
        raise Unsupported("exception", "bounds of itertools.islice")
    return LazyValue(_sliced(tx, iterable.iterate(tx), whole.start or 0, whole.stop, whole.step or 1))


def _sliced(tx: Interpreter, iterator: Value, at: int, stop: int | None, step: int) -> Steps:
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


def _combined(function: Any, tx: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
    """The functions that read all that they are given before the first result."""
    named = {k: v.constant(tx) for k, v in kwargs.items()}
    if function is itertools.product:
        found = function(*map(tx.list_of, args), **named)
    else:
        found = function(tx.list_of(args[0]), *(a.constant(tx) for a in args[1:]), **named)
    rows = []
    for row in found:
        tx.capture.count_round()
        rows.append(TupleValue(list(row)))
    return IteratorValue(list(rows))


for _function in (
    itertools.product, itertools.permutations, itertools.combinations, itertools.combinations_with_replacement,
):  # fmt: skip
    HANDLERS[_function] = functools.partial(_combined, _function)


@handles(itertools.zip_longest)
def _zip_longest(tx: Interpreter, *args: Value, fillvalue: Value = NONE) -> Value:
    return LazyValue(_long_rows(tx, [a.iterate(tx) for a in args], fillvalue))


def _long_rows(tx: Interpreter, iterators: list[Value], fill: Value) -> Steps:
    alive: list[Value | None] = list(iterators)
    while any(a is not None for a in alive):
        row = []
        for i, iterator in enumerate(alive):
            value = None if iterator is None else iterator.next_value(tx)
            if value is None:
                alive[i] = None
                if not any(a is not None for a in alive):
                    return
            row.append(fill if value is None else value)
        yield TupleValue(row)


@handles(itertools.accumulate)
def _accumulate(tx: Interpreter, iterable: Value, func: Value | None = None, *, initial: Value | None = None) -> Value:
    return LazyValue(_accumulated(tx, iterable.iterate(tx), func, initial))


def _accumulated(tx: Interpreter, iterator: Value, func: Value | None, initial: Value | None) -> Steps:
    total = iterator.next_value(tx) if initial is None or tx.is_none(initial) else initial
    if total is None:
        return
    yield total
    for value in each(tx, iterator):
        plain = func is None or tx.is_none(func)
        total = binary(operator.add, tx, total, value) if plain or func is None else func.call(tx, [total, value], {})
        yield total


@handles(itertools.repeat)
def _repeat(tx: Interpreter, obj: Value, times: Value | None = None) -> Value:
    if times is None:
        return LazyValue(itertools.repeat(obj))
    return LazyValue(itertools.repeat(obj, times.constant(tx)))


@lazily(itertools.count)
def _count(tx: Interpreter, start: Value = ConstantValue(0), step: Value = ConstantValue(1)) -> Steps:  # noqa: B008
    start.look(tx)
    at = _as_int(tx, start) if step.python_type() in (int, bool) and step.constant(tx) == 1 else start
    while True:
        yield at
        at = binary(operator.add, tx, at, step)


def _as_int(tx: Interpreter, number: Value) -> Value:
    """As ``itertools.count`` takes its start where its step is 1: an int in place of a bool."""
    return ConstantValue(int(number.constant(tx))) if number.python_type() is bool else number


@handles(itertools.cycle)
def _cycle(tx: Interpreter, iterable: Value) -> Value:
    return LazyValue(_cycled(tx, iterable.iterate(tx)))


def _cycled(tx: Interpreter, iterator: Value) -> Steps:
    saved = []
    for value in each(tx, iterator):
        saved.append(value)
        yield value
    while saved:
        yield from saved


@handles(itertools.takewhile)
def _takewhile(tx: Interpreter, function: Value, iterable: Value) -> Value:
    steps = each(tx, iterable.iterate(tx))
    return LazyValue(itertools.takewhile(lambda value: function.call(tx, [value], {}).truth(tx), steps))


@handles(itertools.dropwhile)
def _dropwhile(tx: Interpreter, function: Value, iterable: Value) -> Value:
    steps = each(tx, iterable.iterate(tx))
    return LazyValue(itertools.dropwhile(lambda value: function.call(tx, [value], {}).truth(tx), steps))


@handles(itertools.starmap)
def _starmap(tx: Interpreter, function: Value, iterable: Value) -> Value:
    steps = each(tx, iterable.iterate(tx))
    return LazyValue(function.call(tx, tx.list_of(row), {}) for row in steps)


@handles(itertools.compress)
def _compress(tx: Interpreter, data: Value, selectors: Value) -> Value:
    values, chosen = each(tx, data.iterate(tx)), each(tx, selectors.iterate(tx))
    return LazyValue(value for value, wanted in zip(values, chosen, strict=False) if wanted.truth(tx))


@handles(itertools.pairwise)
def _pairwise(tx: Interpreter, iterable: Value) -> Value:
    pairs = itertools.pairwise(each(tx, iterable.iterate(tx)))
    return LazyValue(TupleValue(list(pair)) for pair in pairs)


@handles(itertools.tee)
def _tee(tx: Interpreter, iterable: Value, n: Value | None = None) -> Value:
    copies = itertools.tee(each(tx, iterable.iterate(tx)), 2 if n is None else n.constant(tx))
    return TupleValue([LazyValue(copy) for copy in copies])


@handles(itertools.groupby)
def _groupby(tx: Interpreter, iterable: Value, key: Value | None = None) -> Value:
    groups = itertools.groupby(each(tx, iterable.iterate(tx)), lambda value: _GroupKey(tx, value, key))
    return LazyValue(TupleValue([found.rank, LazyValue(group)]) for found, group in groups)


class _GroupKey:
    def __init__(self, tx: Interpreter, value: Value, key: Value | None) -> None:
        self.tx = tx
        self.rank = value if key is None or tx.is_none(key) else key.call(tx, [value], {})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _GroupKey) and equal(self.tx, self.rank, other.rank)

    __hash__ = None  # type: ignore[assignment]


def _batched(tx: Interpreter, iterable: Value, n: Value) -> Value:
    steps, size = each(tx, iterable.iterate(tx)), n.constant(tx)
    batches = iter(lambda: list(itertools.islice(steps, size)), [])
    return LazyValue(TupleValue(batch) for batch in batches)


if hasattr(itertools, "batched"):  # Python 3.12
    HANDLERS[itertools.batched] = _batched
