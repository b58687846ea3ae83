# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which has no annotations and does odd things)
"""Differences from plain Python that CPython's tests of the standard library found, as small programs.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import abc
import collections
import contextlib
import dataclasses
import enum
import functools
import io
import operator
import sys
import types

import pytest
import torch

import compiler_core
from compiler_core.tools.testing import Expected, check, same_as_eager

LOG = []


@same_as_eager()
def test_raise_in_a_callee_that_a_break_split(x):
    @contextlib.contextmanager
    def yields_twice():
        yield
        yield

    result = yields_twice()
    result.__enter__()
    with pytest.raises(RuntimeError):
        result.__exit__(None, None, None)
    return x + 1, result.gen.gi_suspended


@same_as_eager(
    breaks=[],
    inputs=[lambda n=n: (torch.ones(1), collections.deque([1, 2], n)) for n in (7, None, 2)],
)
def test_text_of_a_deque(x, d):
    return repr(d), str(d), x + 1


class SubSet(set):
    pass


@same_as_eager(inputs=[lambda s=s: (torch.ones(1), s) for s in ({1}, SubSet([1]), frozenset([1]))])
def test_class_of_a_set(x, s):
    return x + 1 if s.__class__ is set else x + 2


class NoModule(type):
    __module__ = property(lambda cls: LOG.append("asked") or 1 / 0)


class WithoutModule(metaclass=NoModule):
    pass


@same_as_eager(changes=["LOG"])
def test_metaclass_with_a_module_property(x):
    return type(WithoutModule()).__name__, hasattr(WithoutModule, "nothing"), x + 1


@same_as_eager(graphs=1, breaks=[])
def test_names_of_arguments_that_rules_have_too(x):
    return dict(self=x, tx=1, function=2, other=3), collections.OrderedDict(tx=x + 1), types.SimpleNamespace(tx=x)


def fresh(text):
    """An equal string that is another object."""
    return "".join([text[:2], text[2:]])


WORDS = "xyzpdq", fresh("xyzpdq")


@same_as_eager(inputs=[lambda a=a, b=b: (torch.ones(1), a, b) for a in WORDS for b in WORDS])
def test_equal_strings_that_are_two_objects(x, a, b):
    c, d = a[:3] + b[3:], "xyzpdq"
    y = x + (1 if a is b else 2)
    compiler_core.graph_break()
    return y, a is c, b is c, a is b, a is d, c in [a], c == a


@same_as_eager(graphs=1, breaks=[], inputs=lambda: (torch.ones(1), float("nan")))
def test_nan_is_found_by_identity(x, nan):
    return x + 1, nan in [nan], nan is nan, [nan].index(nan), nan == nan


def test_enum_that_counts_its_members_as_they_are_made():
    def number(cls, x):
        return len(cls.__members__) + 1, [m.name for m in cls], x + 1

    def counted_values(number):
        class Counted(enum.Enum):
            def __new__(cls):
                member = object.__new__(cls)
                member._value_ = number(cls, torch.ones(1))[:2]
                return member

            a = ()
            b = ()
            c = ()

        return [m.value for m in Counted]

    found = counted_values(compiler_core.compile(number, backend="eager", strict=True))
    assert found == counted_values(number) == [(1, []), (2, ["a"]), (3, ["a", "b"])]


@dataclasses.dataclass(frozen=True)
class Frozen:
    n: int


class ByIdentity:
    def __init__(self, n):
        self.n = n


@functools.lru_cache
def doubled(of):
    return of.n * 2


OBJECTS = [cls(n) for cls in (ByIdentity, Frozen) for n in (1, 2, 3)]


@same_as_eager(graphs=len(OBJECTS), breaks=[], inputs=[lambda o=o: (torch.ones(1), o) for o in OBJECTS])
def test_cached_function_of_objects(x, o):
    return x * doubled(o)


@same_as_eager(inputs=[lambda n=n: (torch.ones(1), n) for n in (1, 2)])
def test_cached_function_of_an_object_made_here(x, n):
    return x * doubled(ByIdentity(n)), x * doubled(Frozen(n))


@same_as_eager(inputs=lambda: (torch.ones(1), types.SimpleNamespace(a=1), ByIdentity(1)))
def test_views_of_the_dict_of_an_object(x, a, b):
    c = ByIdentity(2)
    views = a.__dict__.items(), b.__dict__.values(), types.MappingProxyType(b.__dict__), c.__dict__.keys()
    compiler_core.graph_break()
    a.z, b.z, c.z = 2, 3, 4
    return x + 1, [list(v) for v in views]


@same_as_eager(breaks=["asked for"], inputs=lambda: (torch.ones(1), 1))
def test_tuple_as_a_key_is_the_very_object(x, n):
    key = (n, None)
    d = {key: 1}
    first = list(d)[0]
    compiler_core.graph_break()
    return x + 1, first is key


def test_builtin_that_another_module_shadows_later():
    other = types.ModuleType("a_module_of_the_users")
    exec("def scaled(x, n):\n    return x * abs(n)\n", vars(other))

    def program(x):
        return other.scaled(x, -2)

    compiled = compiler_core.compile(program, backend="eager", strict=True)
    x = torch.ones(1)
    assert compiled(x).item() == 2
    other.abs = lambda n: 100
    assert compiled(x).item() == 100


def test_builtin_and_stream_that_are_replaced_for_a_while(monkeypatch):
    def program(x, text):
        sys.stdout.write(text)
        return x + 1, oct(8)

    compiled = compiler_core.compile(program, backend="eager", strict=True)
    for text in ("first", "second"):
        stream = io.StringIO()
        with contextlib.redirect_stdout(stream):
            assert compiled(torch.ones(1), text)[1] == "0o10"
        assert stream.getvalue() == text
    monkeypatch.setattr("builtins.oct", lambda number: "replaced")
    assert compiled(torch.ones(1), "first")[1] == "replaced"


def calls_with(*values):
    return [lambda v=v: (torch.ones(1), v) for v in values]


@same_as_eager(breaks=[], inputs=calls_with(None, ByIdentity(1)))
def test_function_bound_to_none_or_an_object(x, o):
    def bound(*args):
        return len(args)

    return x + bound.__get__(o, ByIdentity)()


@same_as_eager(graphs=2, breaks=[], inputs=calls_with(None, 5))
def test_generator_that_returns_none_or_a_number(x, n):
    def body():
        yield 1
        return n

    def delegate():
        found.append((yield from body()))

    found = []
    list(delegate())
    try:
        result = body()
        next(result)
        next(result)
    except StopIteration as stop:
        found.append(stop.value)
    return x + 1, found


@same_as_eager(breaks=[], inputs=calls_with(None, abs, lambda v: v > 1))
def test_filter_by_none_or_a_function(x, function):
    return x + 1, list(filter(function, [0, 1, 2]))


@same_as_eager(breaks=[], inputs=calls_with(None, abs))
def test_sort_by_none_or_a_key(x, key):
    return x + 1, sorted([1, -3, 2], key=key), max([1, -3, 2], key=key)


class Hooked(torch.nn.Module):
    def __init__(self, answer):
        super().__init__()
        self.answer = answer
        self.inner = torch.nn.Identity()
        self.inner.register_forward_hook(lambda module, args, result: self.answer)

    def forward(self, x):
        return self.inner(x) + 1


def test_hook_that_returns_none_or_a_tensor():
    model = Hooked(None)
    compiled = compiler_core.compile(model, backend="eager", strict=True)
    x = torch.ones(2)
    assert compiled(x).tolist() == [2, 2]
    model.answer = torch.zeros(2)
    assert compiled(x).tolist() == [1, 1]


def test_import_of_a_module_that_its_package_has_not_yet(tmp_path, monkeypatch):
    package = tmp_path / "a_package_of_the_users"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner.py").write_text("VALUE = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    __import__(package.name)

    def program(x):
        from a_package_of_the_users import inner

        return x * inner.VALUE

    compiled = compiler_core.compile(program, backend="eager", strict=True)
    assert [compiled(torch.ones(1)).item() for _ in range(2)] == [3, 3]


def test_capture_has_no_room_for_calls():
    def leaf(x):
        return x + 1

    def deep(x, n):
        return deep(x, n - 1) if n else leaf(x)

    compiled = compiler_core.compile(deep, backend="eager", strict=True)

    def from_far_below(n):
        return from_far_below(n - 1) if n else compiled(torch.ones(1), 1)

    room = _room()
    for left in (60, 80, 120, 200):
        assert from_far_below(room - left).item() == 2
    assert compiled(torch.ones(1), 1).item() == 2


def _room():
    """Returns how many calls fit on the stack: on CPython 3.12, some errors of `torch.cond` take part of it for ever."""
    try:
        return 1 + _room()
    except RecursionError:
        return 0


class Unready(enum.IntFlag):
    A = 1

    def __repr__(self):
        LOG.append("repr")
        return "unready"


@same_as_eager(changes=["LOG"], breaks=["asked for"])
def test_constant_with_a_repr_of_its_own(x):
    flag = Unready.A
    compiler_core.graph_break()
    return x + 1, flag


@same_as_eager(breaks=["skipped function"], inputs=lambda: (torch.ones(1), 1))
def test_inner_function_that_looks_at_its_locals(x, n):
    def inner(y):
        w = n + y
        return locals()

    return x + 1, sorted(inner(3))


@same_as_eager()
def test_exception_kept_and_raised_again_after_a_break(x):
    try:
        try:
            try:
                raise TypeError
            except Exception:
                raise ValueError from None
        except ValueError as exc:
            compiler_core.graph_break()
            seen = exc.__cause__, exc.__suppress_context__
            exc.__suppress_context__ = False
            raise exc
    except ValueError as exc:
        return x + 1, seen, exc.__cause__, exc.__suppress_context__


class SaysList:
    __class__ = property(lambda self: list)


SAYING = {cls: cls() for cls in (SaysList, list)}


@same_as_eager(inputs=calls_with(*SAYING))
def test_object_that_says_what_its_class_is(x, cls):
    o = SAYING[cls]
    return x + 1, isinstance(o, list), o.__class__, type(o)


class Computed:
    foo = classmethod(property(lambda cls: LOG.append(cls.__name__) or len(LOG)))


class OfClass:
    value = 3

    @classmethod
    @property
    def doubled(cls):
        return cls.value * 2


class OfSubclass(OfClass):
    value = 4

    @classmethod
    @property
    def doubled(cls):
        return super().doubled + 1


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="a classmethod binds no property any more")
@same_as_eager(
    breaks=[],
    inputs=[lambda o=o: (torch.ones(1), o) for o in (OfClass, OfSubclass, OfClass(), OfSubclass())],
    changes=["LOG"],
)
def test_properties_of_classes(x, o):
    return x * o.doubled, Computed.foo


class Logs:
    def __le__(self, other):
        LOG.append(("le", type(self).__name__))
        return NotImplemented

    def __ge__(self, other):
        LOG.append(("ge", type(self).__name__))
        return NotImplemented

    def __add__(self, other):
        LOG.append(("add", type(self).__name__))
        return NotImplemented

    def __radd__(self, other):
        LOG.append(("radd", type(self).__name__))
        return 5


class LogsToo(Logs):
    pass


class LogsAnew(Logs):
    def __radd__(self, other):
        LOG.append("anew")
        return 6


class Base(abc.ABC):
    def __eq__(self, other):
        LOG.append("base")
        return NotImplemented


@Base.register
class Virtual:
    def __eq__(self, other):
        LOG.append("virtual")
        return NotImplemented


LOGGING = [Logs, LogsToo, LogsAnew, Base, Virtual]


@pytest.mark.parametrize("left", LOGGING)
@pytest.mark.parametrize("right", LOGGING)
def test_which_operand_is_asked_first(left, right):
    def program(x, a, b):
        found = [a == b]
        for op in (operator.le, operator.add):
            try:
                found.append(op(a, b))
            except TypeError as error:
                found.append(str(error))
        return x + 1, found

    check(program, lambda: (torch.ones(1), left(), right()), changes=["LOG"])


@same_as_eager(inputs=calls_with("xyz", b"xyz"))
def test_iterator_over_text_across_a_break(x, text):
    first, second = iter(text), iter(text)
    next(first)
    list(second)
    compiler_core.graph_break()
    return x + 1, type(first), list(first), type(second), list(second)


@same_as_eager(inputs=[lambda c=c: (torch.ones(1), c(), LogsAnew()) for c in (Logs, LogsAnew, Logs)], changes=["LOG"])
def test_operand_whose_class_decides_who_is_asked(x, a, b):
    try:
        return x + 1, a + b
    except TypeError as error:
        return x, str(error)


@same_as_eager()
def test_value_of_a_stop_iteration_that_was_set(x):
    stop = StopIteration("spam")
    stop.value = "eggs"
    return x + 1, stop.value, stop.args


@same_as_eager()
def test_super_without_arguments_outside_a_method(x):
    def outside():
        return super()

    try:
        return x, outside()
    except RuntimeError as error:
        return x + 1, str(error)


class First:
    def method(self, x):
        return x + 1


class Second(First):
    def method(self, x):
        return super().method(x) * 10


class Between(First):
    def method(self, x):
        return x + 5


class Third(Second, Between):
    pass


def test_what_super_is_depends_on_the_class_of_self():
    inputs = [lambda c=c: (c(), torch.ones(1)) for c in (Second, Third)]
    check(Second.method, inputs, Expected(graphs=2, breaks=[]))


@same_as_eager(inputs=calls_with(Second(), 5))
def test_super_of_something_else(x, o):
    try:
        return Second.method(o, x)
    except TypeError as error:
        return x, str(error)


class Asked(dict):
    def get(self, key, default=None):
        LOG.append(key)
        return dict.get(self, key, default)


class Keys:
    KEY = "a"


@same_as_eager(inputs=calls_with({"a": 0, "b": 1}, Asked(a=0), Asked(b=1)), changes=["LOG"])
def test_mapping_pattern_with_a_key_twice(x, d):
    try:
        match d:
            case {"c": _, "b": _}:
                found = "both"
            case {Keys.KEY: y, "a": z}:
                found = y, z
            case _:
                found = "none"
    except ValueError as error:
        found = str(error)
    return x + 1, found


class Answering(set):
    """Operations of sets do not ask it."""

    def __len__(self):
        return 42

    def __contains__(self, item):
        return item == 5 or super().__contains__(item)


class Listed(set):
    def __iter__(self):
        LOG.append("listed")
        return iter([7])


class SubFrozen(frozenset):
    pass


SETS = [SubSet([1, 2]), {1, 2}, SubSet([1]), SubFrozen([1, 2]), Answering([1, 2]), Answering([2]), Listed([1]), None]


@same_as_eager(inputs=[lambda s=s: (torch.ones(1), s) for s in SETS], changes=["LOG"])
def test_members_of_instances_of_subclasses(x, s):
    if s is None:
        return x
    same = s == {1, 2}, s <= {1, 2, 3}, s | {9}, {9} - s, type(s.copy()), s.copy() is s
    return x * len(s), 2 in s, 5 in s, sorted(s), [i for i in s], bool(s), same, s


@same_as_eager(graphs=2, breaks=[], inputs=[lambda s=s: (torch.ones(1), SubSet(s)) for s in ([1, 2], [1, 2], [])])
def test_changes_of_instances_of_subclasses(x, s):
    s.add(4)
    s.discard(1)
    s |= {5}
    s.tag = len(s)
    return x * s.tag, s, type(s)
