# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which has no annotations and does odd things)
"""Classes: attributes, descriptors, properties, super, metaclasses.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import dataclasses
import functools
import typing
from typing import Callable, Dict, List, Optional, Tuple

import torch

from compiler_core.tools.testing import same_as_eager


class Plain:
    kind = "plain"
    shared = []

    def __init__(self, n=1):
        self.n = n

    def scaled(self, x):
        return x * self.n

    @classmethod
    def make(cls, n):
        return cls(n + 1)

    @staticmethod
    def twice(v):
        return v * 2


class Derived(Plain):
    kind = "derived"

    def __init__(self, n, m):
        super().__init__(n)
        self.m = m

    def scaled(self, x):
        return super().scaled(x) + self.m

    @classmethod
    def make(cls, n):
        result = super().make.__func__ is not None
        return cls(n, int(result))

    @staticmethod
    def twice(v):
        return Plain.twice(v) + 1


outside = Derived(2, 3)


@same_as_eager(graphs=1, breaks=[])
def test_from_outside(x):
    return outside.scaled(x), outside.kind, outside.make(5).n, isinstance(outside, Plain), type(outside) is Derived


class Temperature:
    def __init__(self, celsius):
        self._celsius = celsius
        self.log = []

    @property
    def celsius(self):
        """In degrees."""
        return self._celsius

    @celsius.setter
    def celsius(self, value):
        self.log.append(value)
        self._celsius = value

    @celsius.deleter
    def celsius(self):
        self._celsius = 0

    @property
    def kelvin(self):
        return self.celsius + 273


@same_as_eager(graphs=1, breaks=[])
def test_properties(x):
    t = Temperature(20)
    t.celsius = 30
    t.celsius += 1
    a = t.kelvin
    del t.celsius
    return x + a, t.celsius, t.log


@same_as_eager(graphs=1, breaks=[])
def test_property_without_setter(x):
    t = Temperature(20)
    try:
        t.kelvin = 5
    except AttributeError as e:
        message = str(e)
    return x + 1, message


class Positive:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        return getattr(instance, self.name, 0)

    def __set__(self, instance, value):
        if value < 0:
            raise ValueError(f"{self.name} is {value}")
        setattr(instance, self.name, value)

    def __delete__(self, instance):
        delattr(instance, self.name)


class Scaler:
    factor = Positive()

    def __init__(self, factor):
        self.factor = factor


@same_as_eager(graphs=1, breaks=[])
def test_user_descriptor(x):
    s = Scaler(3)
    s.factor = s.factor + 1
    try:
        s.factor = -1
    except ValueError as e:
        message = str(e)
    y = x * s.factor
    del s.factor
    return y, s.factor, message, isinstance(Scaler.factor, Positive)


class Lazy:
    def __init__(self, fn):
        self.fn = fn
        self.name = fn.__name__

    def __get__(self, instance, owner):
        value = self.fn(instance)
        instance.__dict__[self.name] = value
        return value


class Model:
    calls = 0

    def __init__(self, n):
        self.n = n
        self.asked = []

    @Lazy
    def double(self):
        self.asked.append("double")
        return self.n * 2

    @functools.cached_property
    def triple(self):
        self.asked.append("triple")
        return self.n * 3


@same_as_eager(graphs=1, breaks=[], inputs=lambda: [torch.ones(2), Model(3)])
def test_cached_property_outside(x, m):
    return x * m.triple, m.triple, m.asked


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


@same_as_eager(graphs=1, breaks=[])
def test_slots(x):
    s = Slotted(2)
    s.b = 3
    s.a += 1
    y = x * s.a + s.b
    del s.b
    try:
        s.b
    except AttributeError:
        gone = True
    return y, gone, hasattr(s, "b"), s.a


class Open:
    def __init__(self):
        self.known = 1

    def __getattr__(self, name):
        if name.startswith("dyn_"):
            return name[4:]
        raise AttributeError(f"nothing called {name}")

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)
        if name != "count":
            super().__setattr__("count", getattr(self, "count", 0) + 1 if "count" in self.__dict__ else 1)

    def __delattr__(self, name):
        super().__delattr__(name)
        self.deleted = name


@same_as_eager(graphs=1, breaks=[])
def test_attribute_hooks(x):
    o = Open()
    o.a = x
    o.b = 2
    del o.b
    try:
        o.b
    except AttributeError as e:
        message = str(e)
    return o.a + o.count, o.dyn_abc, o.deleted, message, getattr(o, "zzz", None)


class A:
    def who(self):
        return ["A"]

    @property
    def size(self):
        return 1


class B(A):
    def who(self):
        return ["B", *super().who()]

    @property
    def size(self):
        return super().size + 1


class C(A):
    def who(self):
        return ["C", *super().who()]

    @property
    def size(self):
        return super().size * 10


class D(B, C):
    def who(self):
        return ["D", *super(D, self).who()]

    def later(self):
        return [super(B, self).size for _ in range(1)], (lambda s: super(D, s).who())(self)


@same_as_eager(graphs=1, breaks=[])
def test_super_in_a_diamond(x):
    d = D()
    return x * d.size, d.who(), d.later(), [c.__name__ for c in D.__mro__]


@same_as_eager(graphs=1, breaks=["exception"])
def test_super_has_no_such_attribute(x):
    class_ = B()
    try:
        super(A, class_).who
    except AttributeError as e:
        return x + 1, str(e)


class Registry(type):
    def __call__(cls, *args, **kwargs):
        result = super().__call__(*args, **kwargs)
        result.registered = cls.label
        return result

    @property
    def label(cls):
        return "label of " + cls.__name__

    def helper(cls, n):
        return cls, n


class Registered(metaclass=Registry):
    def __init__(self, n):
        self.n = n


@same_as_eager(graphs=1, breaks=[])
def test_metaclass(x):
    r = Registered(3)
    return x * r.n, r.registered, Registered.label, Registered.helper(2)[1], type(Registered) is Registry


class Even(type):
    def __instancecheck__(cls, obj):
        return isinstance(obj, int) and obj % 2 == 0


class EvenNumber(metaclass=Even):
    pass


@same_as_eager(graphs=1, breaks=[])
def test_instancecheck(x):
    return x + 1, isinstance(4, EvenNumber), isinstance(3, (str, EvenNumber)), isinstance("a", EvenNumber)


@same_as_eager(graphs=1, breaks=[], changes=["outside"])
def test_class_list_mutated(x):
    Plain.shared.append(1)
    n = len(outside.shared)
    Plain.shared.clear()
    return x + n


@dataclasses.dataclass
class Config:
    size: int
    names: list = dataclasses.field(default_factory=list)
    scale: float = 1.0

    def __post_init__(self):
        self.area = self.size**2


@dataclasses.dataclass(frozen=True, order=True)
class Version:
    major: int
    minor: int = 0


@same_as_eager(graphs=1, breaks=[])
def test_dataclasses(x):
    c = Config(3, scale=2.0)
    c.names.append("a")
    v = Version(1, 2)
    try:
        v.major = 3
    except dataclasses.FrozenInstanceError as e:
        message = str(e)
    return x * c.area, c, v, v == Version(1, 2), v < Version(1, 3), message, repr(c)


@same_as_eager(graphs=1, breaks=[])
def test_methods_as_values(x):
    p = Plain(2)
    m = p.scaled
    return (
        m(x),
        m.__self__ is p,
        m == p.scaled,
        m == Plain(2).scaled,
        m.__name__,
        Plain.scaled(p, x),
        m.__func__ is Plain.scaled,
    )


@same_as_eager(graphs=1, breaks=[])
def test_missing_attributes(x):
    messages = []
    for obj in (Plain(), Plain, Plain().scaled, len, 3, "a", [], None):
        try:
            obj.nothing
        except AttributeError as e:
            messages.append(str(e))
    return x + len(messages), messages


class WithNew:
    def __new__(cls, n):
        instance = super().__new__(cls)
        instance.from_new = n
        return instance

    def __init__(self, n):
        self.from_init = self.from_new + n


class NotAlways:
    def __new__(cls, n):
        return n if n > 2 else object.__new__(cls)

    def __init__(self, n):
        self.n = n


@same_as_eager(graphs=1, breaks=[])
def test_new(x):
    return x + WithNew(2).from_init, NotAlways(5), NotAlways(1).n


@same_as_eager(graphs=1, breaks=[])
def test_wrong_constructor_arguments(x):
    messages = []
    for make in (lambda: Plain(1, 2), lambda: Derived(1), lambda: A(1)):
        try:
            make()
        except TypeError as e:
            messages.append(str(e))
    return x + len(messages), messages


class Counted:
    calls, last = 0, None

    def __init__(self):
        type(self).calls += 1

    def seen(self):
        return self.calls


class CountedToo(Counted):
    def seen(self):
        return super().calls


class CountedThere(CountedToo):
    def seen(self):
        return super().calls, super().seen()


def uncounted():
    Counted.calls, Counted.last = 0, None
    for cls in (CountedToo, CountedThere):
        if "calls" in vars(cls):
            del cls.calls
    return [torch.randn(3)]


@same_as_eager(graphs=2, breaks=["print"], inputs=uncounted)
def test_attributes_of_classes_are_set(x):
    """The second class gets its own attribute at the first change, which later reads find before that of its base."""
    Counted.last = x.sin()
    a, b, c = Counted(), CountedToo(), CountedToo()
    d = CountedThere()
    a.calls = 7
    setattr(Counted, "calls", Counted.calls + 10)
    y = x * Counted.calls + CountedToo.calls + Counted.last
    there = d.seen()
    print(Counted.calls, CountedToo.calls)
    last, Counted.last = Counted.last, None
    return y * 2, last, a.seen(), b.seen(), c.calls, there


class WithProperty:
    doubled = property(lambda self: self.__dict__["n"] * 2)


@same_as_eager(graphs=1, breaks=[], inputs=lambda: [torch.randn(3), WithProperty()])
def test_dict_of_an_instance_is_changed(x, o):
    o.__dict__["n"] = 3
    o.__dict__.setdefault("log", []).append(x)
    vars(o).update(more=4, n=5)
    del o.__dict__["more"]
    return x * o.doubled, o.log, "more" in vars(o)


@same_as_eager(graphs=1, breaks=["unsupported mutation"], inputs=lambda: [torch.randn(3), WithProperty()])
def test_dict_of_an_instance_behind_a_property(x, o):
    y = x + 1
    o.__dict__["doubled"] = 3
    return y, vars(o)["doubled"]


T = typing.TypeVar("T")


@same_as_eager(graphs=1, breaks=[])
def test_annotations_made_inside(x):
    def f(a: Callable[[T], typing.Any], b: List[int] = [1], c: Optional[Dict[str, T]] = None) -> Tuple[T, ...]:
        return a(x)

    return f(torch.sin), f.__annotations__["b"] is List[int]
