# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which has no annotations and does odd things)
"""Dataclasses, namedtuples, enums and SimpleNamespace.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import collections
import dataclasses
import enum
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Any, ClassVar, NamedTuple

from compiler_core.tools.testing import same_as_eager


def caught(function, *args, **kwargs):
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return type(error).__name__, str(error)


@dataclass
class Batch:
    x: Any
    scale: float = 2.0
    tags: list = field(default_factory=list)
    count: ClassVar[int] = 7

    def scaled(self):
        return self.x * self.scale


@dataclass(frozen=True)
class Key:
    name: str
    index: int = 0


@dataclass
class Checked:
    size: int
    _: KW_ONLY
    double: InitVar[bool] = False
    total: int = field(init=False)

    def __post_init__(self, double):
        self.total = self.size * 2 if double else self.size


@dataclass(eq=False)
class ByIdentity:
    a: int


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_dataclass_equality(x):
    return (
        Key("a") == Key("a"),
        Key("a") != Key("b"),
        Batch(1) == Batch(1),
        ByIdentity(1) == ByIdentity(1),
        Key("a") == 3,
        x + 1,
    )


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_post_init(x):
    return Checked(3).total, Checked(3, double=True).total, Checked(4, double=True), x + 1


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_dataclass_functions(x):
    b = Batch(x, tags=["a"])
    c = dataclasses.replace(b, scale=5)
    names = [f.name for f in dataclasses.fields(b)]
    return c, c.tags is b.tags, names, dataclasses.is_dataclass(b), dataclasses.is_dataclass(3), c.scaled()


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_dataclass_repr(x):
    return repr(Key("a", 1)), f"{Batch(1)}", x + 1


# ---------------------------------------------------------------- namedtuples


class Pair(NamedTuple):
    a: Any
    b: int = 3

    def both(self):
        return self.a * self.b

    @property
    def next(self):
        return self.b + 1


Spot = collections.namedtuple("Spot", "x y", defaults=(2,))


class Shifted(Spot):
    def __new__(cls, x, y=5):
        return super().__new__(cls, x + 1, y)


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_namedtuple_methods(x):
    p = Pair(x, 2)
    return (
        p._replace(b=7),
        p._asdict(),
        Pair._make([x + 1, 1]),
        Spot(1, 2) == (1, 2),
        Spot(1, 2) < Spot(1, 3),
        hash(Spot(1, 2)),
    )


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_namedtuple_subclass(x):
    s = Shifted(x)
    s.extra = 1
    return s, s.x, s.extra


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_namedtuple_text_and_errors(x):
    return repr(Spot(1, "a")), f"{Pair(1)}", caught(Spot)[0], caught(Spot, 1, 2, 3)[0], x + 1


# ---------------------------------------------------------------- enums


class Color(enum.Enum):
    RED = 1
    GREEN = "g"
    ALSO_RED = 1

    def describe(self, x):
        return x * 2 if self is Color.RED else x

    @property
    def short(self):
        return self.name[0]

    @classmethod
    def default(cls):
        return cls.GREEN


class Mode(str, enum.Enum):
    TRAIN = "train"
    EVAL = "eval"


class Planet(enum.Enum):
    EARTH = (5.9, 6.3)

    def __init__(self, mass, radius):
        self.mass = mass
        self.radius = radius


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_enum(x):
    c = Color.RED
    return c, c.name, c.value, c.describe(x), c.short, Color.default(), Color.ALSO_RED is c, c == Color.GREEN, x + 1


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_enum_lookup(x):
    return (
        Color(1),
        Color["GREEN"],
        [m.name for m in Color],
        len(Color),
        Color.RED in Color,
        caught(Color, 9),
        list(Mode),
        x + 1,
    )


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_enum_with_attributes(x):
    return x * Planet.EARTH.mass, Planet.EARTH.value, Planet((5.9, 6.3)).radius


# ---------------------------------------------------------------- namespaces


class Reduce(enum.Enum):
    SUM = "sum"
    MEAN = "mean"

    def __call__(self, x, dim=0):
        return getattr(x, self.value)(dim)


@same_as_eager(graphs=1, breaks=[])
def test_members_of_an_enum_that_are_called(x):
    return [reduce(x, dim=1) for reduce in Reduce], Reduce.SUM(x), callable(Reduce.SUM), [callable(c) for c in Color]
