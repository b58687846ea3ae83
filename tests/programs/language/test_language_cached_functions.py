# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which does odd things)
"""Functions with a cache (``functools.lru_cache``) give what they give uncompiled, and count and evict the same."""

from __future__ import annotations

import contextvars
import functools
import logging
import random
import sys
import traceback
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import compiler_core
import compiler_core.errors
from compiler_core.tools.testing import difference
from tests.sampling import sample

SEEDS = 3
ONE = torch.ones(2)


class World:
    """What the cached functions read and write."""

    def __init__(self) -> None:
        self.scale = 1
        self.log: list[Any] = []
        self.buffer = torch.zeros(2)


class Scaled:
    """An object with a cached method."""

    def __init__(self, scale: int) -> None:
        self.scale = scale

    @functools.lru_cache(maxsize=2)
    def times(self, n: int) -> int:
        return n * self.scale * WORLD.scale


WORLD = World()
OBJECTS = [Scaled(2), Scaled(3)]


@functools.lru_cache(maxsize=1)
def one(n):
    WORLD.log.append(n)
    return n * WORLD.scale


@functools.lru_cache(maxsize=2)
def two(n, *, by=1):
    WORLD.log.append((n, by))
    return (n * WORLD.scale, by)


@functools.cache
def every(n):
    WORLD.log.append(n)
    return [n]


@functools.lru_cache(maxsize=3)
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@functools.lru_cache(maxsize=1)
def root(n):
    WORLD.log.append(n)
    if WORLD.scale % 2:
        raise ValueError(n)
    return n


@functools.lru_cache(maxsize=1)
def mask(n):
    return torch.ones(n) * WORLD.scale


@functools.lru_cache(maxsize=1)
def summed(n):
    return float(WORLD.buffer.sum()) + n


@functools.lru_cache(maxsize=1)
def has_grad(n):
    return torch.is_grad_enabled()


@functools.lru_cache(maxsize=8)
def many(n, kind="", *, by=1):
    WORLD.log.append((n, kind, by))
    return n * WORLD.scale * by


@functools.lru_cache(maxsize=None, typed=True)
def typed(n):
    WORLD.log.append(n)
    return n * WORLD.scale


CACHED = [many, typed, one, two, every, fibonacci, root, mask, summed, has_grad, Scaled.times]


def single(x, n):
    return x + one(n)


def pair(x, n):
    return x * one(n) + one(1) + one(n), two(n), two(n, by=2)


def lists(x, n):
    found = every(n)
    return x + len(found), found is every(n), found


def recursive(x, n):
    return x + fibonacci(n + 4)


def raising(x, n):
    try:
        return x + root(n)
    except ValueError as error:
        return x - 1, str(error)


def tensors(x, n):
    return x + mask(2), mask(2) is mask(2)


def modes(x, n):
    with torch.no_grad():
        inside = has_grad(n)
    return x, inside


def methods(x, n):
    return x + OBJECTS[n % 2].times(n) + OBJECTS[0].times(1)


def broken(x, n):
    first = one(n)
    compiler_core.graph_break()
    return x + first + one(n) + one(1)


def without_tensors(x, n):
    return one(n), two(n)[0]


def writing(x, n):
    WORLD.log.append("written")
    return x + one(n)


def adding(x, n):
    WORLD.buffer.add_(1)
    return x + summed(n)


def inner(x, n):
    return x * one(n)


def nested(x, n):
    return inner(x, n) + inner(x, 1)


def rescaled(x, n):
    WORLD.scale += 1
    return x + one(n) + two(n)[0] + typed(n)


def in_between(x, n):
    first = many(n), typed(1)
    WORLD.scale += 1
    found = many(n), many(1, "a"), many(2, by=n), many(n, kind="b", by=2), typed(1), typed(1.0)
    WORLD.log.append("done")
    return x + sum(first) + sum(found), many(n) + typed(n)


def evicted(x, n):
    first = two(1)[0] + two(n)[0]
    WORLD.scale += 1
    return x + first + two(2)[0] + two(n)[0]


PROGRAMS = [
    rescaled,
    in_between,
    evicted,
    single,
    pair,
    lists,
    recursive,
    raising,
    tensors,
    modes,
    methods,
    broken,
    without_tensors,
    writing,
    adding,
    nested,
]


def seen(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return [seen(v) for v in value] if isinstance(value, (list, tuple)) else value


def trace(program: Callable[..., Any], seed: int, calls: int) -> list[Any]:
    """Returns what random calls of a program give, with the state of all caches after each."""
    draw = random.Random(seed)
    for fn in CACHED:
        fn.cache_clear()
    WORLD.__init__()
    found = []
    for _ in range(calls):
        if draw.random() < 0.3:
            WORLD.scale = draw.randrange(1, 4)
        if draw.random() < 0.1:
            draw.choice(CACHED).cache_clear()
        result = program(ONE, draw.randrange(1, 4))
        found.append((seen(result), [fn.cache_info() for fn in CACHED], list(WORLD.log)))
    return found


@pytest.mark.parametrize("program", sample(PROGRAMS, 4))
@pytest.mark.filterwarnings("error::compiler_core.CompileWarning")
def test_values_hits_and_evictions(program):
    for seed in range(SEEDS):
        expected = trace(program, seed, 20)
        assert trace(compiler_core.compile(program, backend="eager", dynamic=False), seed, 20) == expected


@pytest.mark.filterwarnings("error::compiler_core.CompileWarning")
def test_a_cache_that_changes_breaks_the_graph():
    """After two other results for the same arguments, the function is called where the program calls it."""
    WORLD.__init__()
    with compiler_core.record() as record:
        compiled = compiler_core.compile(single, dynamic=False)
        for scale in (1, 2, 3, 4, 5):
            WORLD.scale = scale
            one.cache_clear()
            assert compiled(ONE, 2).tolist() == single(ONE, 2).tolist()
            assert one.cache_info()[:2] == (1, 1)
    compiles = record.frames[0].compiles
    assert [len(each.breaks) for each in compiles] == [0, 0, 0, 1]
    assert (compiles[1].cause.kind, compiles[1].cause.expected, compiles[1].cause.got) == ("CACHED_CALL", "2", "4")
    assert "has had other results in later calls" in compiles[3].breaks[0].explanation


@functools.lru_cache
def drawn(n):
    return torch.rand(n), random.random()


def test_numbers_that_a_function_draws_at_capture():
    """They are the program's: the next ones follow them."""

    def program(x):
        number, further = drawn(1)
        return x + number, further, torch.rand(1)

    found = []
    for run in (program, compiler_core.compile(program, backend="eager")):
        drawn.cache_clear()
        random.seed(0), torch.manual_seed(0)
        found.append([run(ONE), run(ONE), random.random(), torch.rand(1)])
    assert difference(*found) is None


def test_what_a_cache_has_is_read_after_a_change():
    """The function does not run then, so that it reads nothing of what has changed."""

    def program(x):
        WORLD.scale += 1
        return x * many(3, by=2) + typed(2)

    for fn in CACHED:
        fn.cache_clear()
    WORLD.__init__()
    many(3, by=2), typed(2)
    compiled = compiler_core.compile(program, backend="eager", fullgraph=True)
    for scale in (2, 3):
        assert compiled(ONE).tolist() == [8.0, 8.0]
        assert WORLD.scale == scale
    assert (many.cache_info()[:2], typed.cache_info()[:2]) == ((2, 1), (2, 1))
    many.cache_clear()
    with pytest.raises(compiler_core.errors.FullGraphError, match="after a change that it may read"):
        compiled(ONE)


class Stored:
    """An object that the programs below change."""

    counter = contextvars.ContextVar("counter", default=1)

    def __init__(self) -> None:
        self.n, self.items, self.tensor = 1, [], torch.zeros(2)


STORED, OTHER, number = Stored(), Stored(), 1
LOGGER, HANDLED = logging.Logger("plain"), logging.Logger("handled")  # without pytest's handlers, which reach anything
MESSAGES: list[Any] = []


class Handler(logging.Handler):
    def emit(self, record):
        MESSAGES.append((record.getMessage(), STORED.n))


LOGGER.addHandler(logging.StreamHandler())
HANDLED.addHandler(Handler())


def scaled_by_stored(n):
    return STORED.n * n


def closure_of(obj):
    return lambda n: obj.n * n


CACHED_READERS = {
    "attribute": lambda n: STORED.n * n,
    "another object": lambda n: OTHER.n * n,
    "in a function": lambda n: scaled_by_stored(n),
    "in a closure": closure_of(STORED),
    "another closure": closure_of(OTHER),
    "a list": lambda n: len(STORED.items) * n,
    "a global": lambda n: number * n,
    "a context variable": lambda n: Stored.counter.get() * n,
    "a tensor": lambda n: float(STORED.tensor.sum()) * n,
    "an import": lambda n: __import__("sys").modules[__name__].STORED.n * n,
}
WRAPPED = {name: functools.cache(function) for name, function in CACHED_READERS.items()}
WARN_ONCE = functools.cache(lambda logger, message: logger.warning(message))


def reset_stored():
    STORED.__init__()
    OTHER.__init__()
    globals().update(number=1)
    Stored.counter.set(1)
    MESSAGES.clear()
    for function in (*WRAPPED.values(), WARN_ONCE):
        function.cache_clear()


def set_attribute():
    STORED.n += 1


def set_item():
    STORED.items.append(1)


def set_global():
    global number
    number += 1


def set_context():
    Stored.counter.set(Stored.counter.get() + 1)


def set_tensor():
    STORED.tensor.add_(1)


READ_STORED = {"attribute", "in a function", "in a closure", "a list", "a tensor", "an import"}
CHANGES = {
    set_attribute: READ_STORED,
    set_item: READ_STORED,
    set_tensor: READ_STORED | {"another object", "another closure"},  # any tensor may share memory with it
    set_global: {"a global", "an import"},
    set_context: set(WRAPPED),
}
"""What changes something, with the functions that can reach what was changed, whether they read it or not."""


@pytest.mark.parametrize("change", CHANGES)
def test_a_function_that_cannot_read_a_change_is_called(change):
    """The graph breaks only where a function may read what has changed, and only while the cache lacks the result."""
    for name, function in WRAPPED.items():

        def program(x):
            change()
            return x + function(3)

        def calls(called):
            reset_stored()
            found = [(called(ONE).tolist(), function.cache_info()) for _ in range(3)]
            return found, STORED.n, STORED.items, number, Stored.counter.get(), STORED.tensor.tolist()

        expected = calls(program)
        compiled = compiler_core.compile(program, backend="eager", dynamic=False)
        with compiler_core.record() as record:
            assert calls(compiled) == expected, name
        first, *others = record.frames[0].compiles
        if name not in CHANGES[change]:
            assert not first.breaks, name
        else:
            assert "after a change that it may read" in first.breaks[0].explanation, name
        assert not any(compile_.breaks for compile_ in others), name


@pytest.mark.parametrize("logger", [LOGGER, HANDLED])
def test_a_message_that_is_logged_once(logger, capfd):
    """As libraries do with ``warning_once``: one graph, unless a handler of the program may read what has changed."""

    def program(x):
        STORED.n += 1
        WARN_ONCE(logger, "said once")
        return x * 2

    reset_stored()
    with compiler_core.record() as record:
        compiled = compiler_core.compile(program, backend="eager")
        for _ in range(3):
            compiled(ONE)
    assert WARN_ONCE.cache_info()[:2] == (2, 1)
    assert [len(each.breaks) for each in record.frames[0].compiles][:2] == [int(logger is HANDLED), 0]
    assert MESSAGES == ([("said once", 2)] if logger is HANDLED else [])


def bump():
    STORED.n += 1


def counter():
    count = 1

    def read():
        return count

    def change():
        nonlocal count
        count += 1

    return read, change


read_count, change_count = counter()
READ_AND_CHANGED = {
    "attribute": (lambda: STORED.n, lambda: setattr(STORED, "n", STORED.n + 1)),
    "attribute, by a method": (lambda: STORED.n, bump),
    "list": (lambda: len(STORED.items), lambda: STORED.items.append(1)),
    "global": (lambda: number, set_global),
    "tensor": (lambda: STORED.tensor, lambda: STORED.tensor.add_(1)),
    "variable of a function": (read_count, change_count),
}
"""What reads something, and what changes it."""


@pytest.mark.parametrize("what", READ_AND_CHANGED)
@pytest.mark.filterwarnings("error::compiler_core.CompileWarning")
def test_a_function_that_may_change_what_was_read_runs_where_the_program_calls_it(what):
    """The graph breaks at the call while the cache lacks the result, so what was read before keeps its value."""
    read, change = READ_AND_CHANGED[what]

    @functools.lru_cache(maxsize=2)
    def changing(n):
        change()
        return n

    def program(x, n):
        return x * read() + changing(n) + read() * 10

    def calls(called):
        reset_stored()
        changing.cache_clear()
        if what == "variable of a function":
            read_count.__closure__[0].cell_contents = 1
        return [(seen(called(ONE, n)), changing.cache_info()) for n in (1, 2, 1, 3, 1, 1)]

    expected = calls(program)
    with compiler_core.record() as record:
        assert calls(compiler_core.compile(program, backend="eager")) == expected
    assert "which may change what was read before" in record.frames[0].compiles[0].breaks[0].explanation


def test_a_cached_method_that_changes_nothing_does_not_break_the_graph():
    class Positions(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.base, self.weight = 100.0, torch.nn.Parameter(torch.ones(2))

        @functools.lru_cache(maxsize=4)
        def table(self, n):
            steps = [self.base**-i for i in range(n)]
            return torch.tensor(steps[:2])

        def forward(self, x):
            return x * self.weight / self.base + self.table(2)

    module = Positions()
    assert compiler_core.compile(module, fullgraph=True)(ONE).tolist() == module(ONE).tolist()


def test_a_look_into_a_cache_is_compiled_once():
    """The guard on the cache is kept by the compile: nothing else refers to the function that looks."""

    def program(x):
        STORED.items.append(1)
        return x + WRAPPED["a list"](3)

    reset_stored()
    WRAPPED["a list"](3)
    with compiler_core.record() as record:
        compiled = compiler_core.compile(program, backend="eager")
        for _ in range(3):
            compiled(ONE)
    assert len(record.frames[0].compiles) == 1


def test_one_graph_of_an_unchanged_cache():
    compiled = compiler_core.compile(lists, fullgraph=True)
    for _ in range(3):
        assert compiled(ONE, 2)[1:] == (True, every(2))


def fails_in_its_graph(x, n):
    scale = many(n) * two(n)[0]
    try:
        return x[torch.full((1,), 5 * (n - 1))] * scale
    except IndexError:
        return x + two(2)[0]


def breaks_in_a_loop(x, n):
    for i in range(3):
        x = x + many(i) * two(n)[0]
        if x.sum() > 1000:
            break
    return x


def fails_to_be_captured(x, n):
    scale = many(n) + two(n)[0]
    return x * scale, sum(map(type(x).sum, [x, two(2)[0] + x])), sys._getframe().f_code.co_name


@pytest.mark.parametrize("program", [fails_in_its_graph, breaks_in_a_loop, fails_to_be_captured])
def test_a_result_in_a_cache_is_counted_once_if_the_frame_runs_again(program):
    """Capture, guards and a graph that fails only look for it."""

    def calls(called):
        WORLD.__init__()
        for fn in CACHED:
            fn.cache_clear()
        for n in (0, 1, 2):
            many(n), two(n)
        return [(seen(called(ONE, n)), many.cache_info(), two.cache_info()) for n in (1, 2, 1, 2, 2, 1)]

    expected = calls(program)
    assert calls(compiler_core.compile(program, backend="eager", dynamic=False)) == expected


class Logged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        WORLD.log.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


LOGGED = torch.ones(2).as_subclass(Logged)


@functools.cache
def warned(n):
    warnings.warn(f"{n} is not in the cache", UserWarning)
    return float(LOGGED.sum()) + n


def test_a_function_that_runs_at_capture_warns_and_has_its_overrides():
    def calls(called):
        WORLD.__init__()
        warned.cache_clear()
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always")
            results = [called(ONE).tolist() for _ in range(2)]
        return results, [str(each.message) for each in shown], WORLD.log

    def program(x):
        return x * warned(3)

    assert calls(compiler_core.compile(program, fullgraph=True)) == calls(program)


@functools.lru_cache
def logged(n):
    WORLD.log.append(n)
    return n + random.random()


@functools.lru_cache
def failing(n):
    WORLD.log.append((n, random.random()))
    try:
        [][n]
    except IndexError as error:
        raise ValueError(n) from error


def fails(x):
    y = x + logged(1)
    failing(1)
    return y


def fails_after_a_break(x):
    y = x + logged(1)
    print(end="")
    failing(n=2)
    return y


def fails_in_a_called_function(x):
    def inner(y):
        y = y * logged(2)
        failing(0)
        return y

    try:
        return inner(x + 1)
    except ValueError as error:
        x = x - len(error.args)
    finally:
        WORLD.log.append("finally")
    print(end="")
    return inner(x)


def breaks_in_a_loop(x):
    for n in range(3):
        x = x * logged(n)
        print(end="")
    return x, random.random()


def breaks_where_nothing_can_be_split(x):
    with warnings.catch_warnings():
        x = x * logged(3)
        x = x + (logged(4) if x.sum() > 0 else 0)
        print(end="")
    return x * logged(3)


def draws_and_fails(x):
    x = x * random.random()
    print(end="")
    return x + failing(random.randint(1, 2))


@pytest.mark.parametrize(
    "program",
    [
        fails,
        fails_after_a_break,
        fails_in_a_called_function,
        breaks_in_a_loop,
        breaks_where_nothing_can_be_split,
        draws_and_fails,
    ],
)
@pytest.mark.filterwarnings("error::compiler_core.CompileWarning")
def test_a_call_after_a_break_that_capture_has_made_is_not_made_again(program):
    """Values, errors with their lines, counts, numbers drawn and what is alive are as uncompiled in each call."""

    def calls(called):
        WORLD.__init__()
        logged.cache_clear(), failing.cache_clear(), random.seed(0)
        found = []
        for _ in range(3):
            x = torch.ones(2)
            try:
                found.append(seen(called(x)))
            except ValueError as error:
                lines = {f.f_code.co_name: line for f, line in traceback.walk_tb(error.__traceback__)}
                shown = [(name, lines.get(name)) for name in (program.__name__, "inner", "failing")]
                found.append((str(error), shown, repr(error.__cause__), repr(error.__context__)))
            alive = weakref.ref(x)
            del x
            found += [alive(), list(WORLD.log), logged.cache_info(), failing.cache_info(), random.random()]
        return found

    assert calls(compiler_core.compile(program, backend="eager")) == calls(program)
