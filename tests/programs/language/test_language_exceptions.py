# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which has no annotations and does odd things)
"""Exceptions raised, caught and let through.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

from compiler_core.tools.testing import same_as_eager


@same_as_eager(graphs=1, breaks=[])
def test_index_errors(x):
    messages = []
    for attempt in (lambda: [1][3], lambda: (1,)[3], lambda: "ab"[5], lambda: [].pop(), lambda: range(3)[7]):
        try:
            attempt()
        except IndexError as e:
            messages.append(str(e))
    return x + len(messages), messages


@same_as_eager(graphs=1, breaks=[])
def test_value_errors(x):
    messages = []
    for attempt in (lambda: int("zz"), lambda: float("q"), lambda: [1].index(2), lambda: [1].remove(3)):
        try:
            attempt()
        except ValueError as e:
            messages.append(str(e))
    return x + len(messages), messages


@same_as_eager(graphs=1, breaks=[])
def test_attribute_error_of_an_object(x):
    class_free = Box(3)
    try:
        class_free.missing
    except AttributeError as e:
        return x + class_free.value, str(e)


class Box:
    def __init__(self, value):
        self.value = value


@same_as_eager(graphs=1, breaks=[])
def test_unbound_local(x):
    try:
        if x.ndim == 3:
            y = 1
        return y
    except UnboundLocalError as e:
        return x + 1, str(e)


@same_as_eager(graphs=1, breaks=[])
def test_unpack_errors(x):
    messages = []
    for values in ([1, 2, 3], [1]):
        try:
            a, b = values
        except ValueError as e:
            messages.append(str(e))
    try:
        a, *b, c = [1]
    except ValueError as e:
        messages.append(str(e))
    return x + 1, messages


def takes(a, /, b, *, c=1):
    return a + b + c


@same_as_eager(graphs=1, breaks=[])
def test_wrong_arguments(x):
    messages = []
    for call in (
        lambda: takes(),
        lambda: takes(1),
        lambda: takes(1, 2, 3),
        lambda: takes(1, 2, d=4),
        lambda: takes(1, 2, b=4),
        lambda: takes(a=1, b=2),
    ):
        try:
            call()
        except TypeError as e:
            messages.append(str(e))
    return x + 1, messages


class Coded(Exception):
    def __init__(self, code, text):
        super().__init__(text)
        self.code = code

    def __str__(self):
        return f"{self.code}: {self.args[0]}"

    @property
    def doubled(self):
        return self.code * 2


@same_as_eager(graphs=1, breaks=[])
def test_nested_handlers(x):
    messages = []
    try:
        try:
            raise KeyError("a")
        except KeyError as e:
            messages.append(e.args)
            raise ValueError("b") from e
    except ValueError as e:
        messages.append((e.args, e.__cause__.args, e.__context__ is e.__cause__, e.__suppress_context__))
    return x + 1, messages


@same_as_eager(graphs=1, breaks=[])
def test_context_and_from_none(x):
    try:
        try:
            raise KeyError("a")
        except KeyError:
            raise ValueError("b") from None
    except ValueError as e:
        return x + 1, e.__cause__, type(e.__context__), e.__suppress_context__


@same_as_eager(graphs=1, breaks=[])
def test_raise_again(x):
    try:
        try:
            raise KeyError("a")
        except KeyError:
            x = x + 1
            raise
    except KeyError as e:
        return x * 2, e.args


@same_as_eager(graphs=1, breaks=["exception"])
def test_assert_fails(x):
    y = x.sin()
    assert y.shape[0] == 3, f"not {y.shape[0]}"
    return y


@same_as_eager(graphs=1, breaks=["exception"])
def test_raise_out_of_the_frame(x):
    y = x.sin()
    raise Coded(y.shape[0], "out")


@same_as_eager(breaks=["exception", "exception"])
def test_raised_in_the_handler(x):
    y = x.cos()
    try:
        raise ValueError("a")
    except ValueError as e:
        raise KeyError("b") from e


@same_as_eager()
def test_a_caught_exception_that_stays(x):
    try:
        raise ValueError("a")
    except ValueError as e:
        kept = e
    return x.sin(), kept, kept.__traceback__ is not None


@same_as_eager(graphs=1, breaks=[])
def test_an_exception_that_is_only_made(x):
    e = Coded(1, "a")
    e.extra = 5
    return x.sin(), e, e.__traceback__, e.__context__


@same_as_eager(graphs=1, breaks=[])
def test_catching_what_is_no_class(x):
    try:
        try:
            raise ValueError("a")
        except "text":
            pass
    except TypeError as e:
        return x + 1, str(e), type(e.__context__)


@same_as_eager(graphs=1, breaks=[])
def test_raising_what_is_no_exception(x):
    try:
        raise 3
    except TypeError as e:
        return x + 1, str(e)
