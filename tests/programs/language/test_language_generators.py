# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which has no annotations and does odd things)
"""Generators, iterators, and context managers made of generators.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import contextlib


from compiler_core.tools.testing import same_as_eager


@same_as_eager(graphs=0, breaks=["generator"])
def test_left_in_a_block(x):
    y = x.sin()
    out = []

    def parts():
        try:
            yield x + 1
            yield x + 2
        finally:
            out.append(x * 3)

    for v in parts():
        out.append(v)
        break
    return out, y


@same_as_eager(graphs=1, breaks=[])
def test_send_and_value_of_return(x):
    def adder():
        total = x
        while True:
            v = yield total
            if v is None:
                return total * 2
            total = total + v

    it = adder()
    next(it)
    it.send(3)
    it.send(4)
    try:
        next(it)
    except StopIteration as e:
        return e.value


@same_as_eager(graphs=1, breaks=[])
def test_send_to_one_not_started(x):
    def one():
        yield 1

    try:
        one().send(3)
    except TypeError as e:
        return x + 1, str(e)


@same_as_eager(graphs=1, breaks=[])
def test_throw_and_close(x):
    log = []

    def worker():
        try:
            yield 1
        except ValueError as e:
            yield e.args[0]
        try:
            yield 3
        finally:
            log.append("closed")

    it = worker()
    a = next(it)
    b = it.throw(ValueError(7))
    c = next(it)
    it.close()
    it.close()
    return x * a * b * c, log


@same_as_eager(graphs=1, breaks=[])
def test_close_that_is_ignored(x):
    def stubborn():
        while True:
            try:
                yield 1
            except GeneratorExit:
                yield 2

    it = stubborn()
    next(it)
    try:
        it.close()
    except RuntimeError as e:
        message = str(e)
    return x + 1, message, [v for _, v in zip(range(0), it)]


@same_as_eager(graphs=1, breaks=[])
def test_yield_from(x):
    def inner(n):
        for i in range(n):
            yield x + i
        return n

    def outer():
        a = yield from inner(2)
        b = yield from [x * 2, x * 3]
        return a, b

    it = outer()
    found = []
    while True:
        try:
            found.append(next(it))
        except StopIteration as e:
            return found, e.value


@same_as_eager(graphs=1, breaks=[])
def test_sent_through_yield_from(x):
    def inner():
        got = yield 1
        return got * 2

    def outer():
        return (yield from inner())

    it = outer()
    next(it)
    try:
        it.send(x)
    except StopIteration as e:
        return e.value


@same_as_eager(graphs=1, breaks=[])
def test_an_exception_in_a_generator(x):
    def worker():
        yield 1
        raise ValueError("in it")

    found = []
    it = worker()
    try:
        for v in it:
            found.append(v)
    except ValueError as e:
        found.append(str(e))
    return x + 1, found, next(it, "ended")


@same_as_eager(graphs=1, breaks=[])
def test_stop_iteration_in_a_generator(x):
    def worker():
        yield 1
        raise StopIteration(3)

    try:
        list(worker())
    except RuntimeError as e:
        return x + 1, str(e), type(e.__cause__), e.__cause__.value


@same_as_eager(graphs=1, breaks=[])
def test_generator_that_runs_itself(x):
    def worker():
        yield next(it)

    it = worker()
    try:
        next(it)
    except ValueError as e:
        return x + 1, str(e)


def scaled(x, n):
    for i in range(n):
        yield x * i


@same_as_eager(breaks=["print", "unsupported iteration", "unsupported iteration"])
def test_generator_across_a_break(x):
    total = x
    it = scaled(x, 3)
    y = x + 1
    print("here")
    for v in it:
        total = total + v
    return total + y


class Count:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        return self.n


@same_as_eager(graphs=1, breaks=[])
def test_iterator_class(x):
    total = x
    for i in Count(3):
        total = total + i
    return total, list(Count(2)), next(Count(5)), sum(Count(3)), [*Count(2)], dict(enumerate(Count(2)))


@same_as_eager(graphs=1, breaks=[])
def test_iterator_class_by_hand(x):
    c = Count(1)
    it = iter(c)
    first, second = next(it), next(it, None)
    return x + first, second, it is c


class ByIndex:
    def __getitem__(self, i):
        if i > 3:
            raise IndexError
        return i * 2


@same_as_eager(graphs=1, breaks=[])
def test_iteration_by_index(x):
    return [x + i for i in ByIndex()], list(ByIndex()), sum(ByIndex())


@contextlib.contextmanager
def noted(log, v):
    log.append("in")
    try:
        yield v * 2
    finally:
        log.append("out")


@same_as_eager(graphs=1, breaks=[])
def test_contextmanager_and_exception(x):
    log = []
    try:
        with noted(log, x) as y:
            z = y + 1
            raise ValueError("b")
    except ValueError as e:
        log.append(str(e))
    return z, log


@contextlib.contextmanager
def swallow(*kinds):
    try:
        yield
    except kinds:
        pass


@same_as_eager(graphs=1, breaks=[])
def test_contextmanager_swallows(x):
    with swallow(KeyError, IndexError):
        x = x + 1
        raise KeyError(2)
    return x
