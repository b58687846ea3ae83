# mypy: ignore-errors
# ruff: noqa
"""How libraries are put together in Python: configurations, registries, descriptors, plugins, parsers, states."""

import abc
import argparse
import array
import base64
import collections
import contextlib
import contextvars
import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import hashlib
import heapq
import inspect
import io
import itertools
import json
import logging
import math
import numbers
import operator
import os
import pathlib
import random
import re
import statistics
import sys
import textwrap
import threading
import types
import typing
import uuid
import warnings
from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from typing import Any, Callable, ClassVar, Generic, Literal, NamedTuple, Optional, Protocol, TypeVar, Union

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.sweeps.snippets.corpus import program

X = lambda: (torch.randn(4, 4),)

logger = logging.getLogger(__name__)
logger.setLevel(logging.ERROR)


@program(X)
def logging_that_is_off(x):
    logger.debug("shape %s", x.shape)
    logger.info(f"mean of {len(x)} rows")
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("sum %f", x.sum().item())
    return x * 2


@dataclass
class RopeConfig:
    theta: float = 10000.0
    kind: Literal["default", "linear"] = "default"
    factor: Optional[float] = None
    names: ClassVar[tuple] = ("theta", "kind")

    @classmethod
    def from_dict(cls, values):
        known = {f.name for f in dataclasses.fields(cls)}
        return cls(**{k: v for k, v in values.items() if k in known})

    def to_dict(self):
        return {k: v for k, v in self.__dict__.items() if v is not None}


@dataclass
class ModelConfig:
    hidden: int = 4
    rope: RopeConfig = field(default_factory=RopeConfig)
    tags: set = field(default_factory=set)
    head_dim: int = field(init=False)

    def __post_init__(self):
        if isinstance(self.rope, dict):
            self.rope = RopeConfig.from_dict(self.rope)
        self.head_dim = self.hidden // 2


@program(X)
def nested_configs(x):
    c = ModelConfig(rope={"theta": 10.0, "unknown": 1}, tags={"a"})
    d = dataclasses.replace(c, hidden=8)
    return x * c.rope.theta + d.head_dim, c.rope.to_dict(), c == ModelConfig(), [f.name for f in dataclasses.fields(d)]


class Validated:
    def __init__(self, low, high, default=None):
        self.low, self.high, self.default = low, high, default

    def __set_name__(self, owner, name):
        self.name = f"_{name}"
        owner.validated = (*getattr(owner, "validated", ()), name)

    def __get__(self, obj, owner=None):
        return self if obj is None else getattr(obj, self.name, self.default)

    def __set__(self, obj, value):
        if not self.low <= value <= self.high:
            raise ValueError(f"{self.name[1:]} must be in [{self.low}, {self.high}], got {value}")
        setattr(obj, self.name, value)

    def __delete__(self, obj):
        delattr(obj, self.name)


class DropoutConfig:
    p = Validated(0.0, 1.0, default=0.1)
    scale = Validated(1, 8, default=2)


@program(X)
def validated_fields(x):
    c, errors = DropoutConfig(), []
    for value in (0.5, 1.5):
        try:
            c.p = value
        except ValueError as e:
            errors.append(str(e))
    before = c.p
    del c.p
    return x * before + c.scale, errors, c.p, DropoutConfig.validated, vars(c)


class Slotted:
    __slots__ = ("q", "k", "__weakref__")

    def __init__(self, q, k=None):
        self.q, self.k = q, k

    def __eq__(self, other):
        return all(getattr(self, s) is getattr(other, s) for s in ("q", "k"))

    def __getstate__(self):
        return {s: getattr(self, s) for s in ("q", "k")}


class Wider(Slotted):
    __slots__ = ("v",)


@program(X)
def slots_inherited(x):
    w = Wider(x)
    w.v = x.sin()
    try:
        w.other = 1
    except AttributeError as e:
        kind = type(e).__name__
    return w.q + w.v, hasattr(w, "k"), w == w, kind, sorted(w.__getstate__())


class Stage(enum.IntEnum):
    LOW = 1
    MID = 2
    HIGH = 4

    @property
    def scale(self):
        return 1.0 / self

    @classmethod
    def parse(cls, text):
        return cls[text.upper()]

    def __str__(self):
        return self.name.lower()


@program(X)
def stages(x):
    out = {str(s): x * s.scale for s in Stage if s is not Stage.MID}
    return out, Stage.parse("high") > 2, Stage(1).name, max(Stage), Stage.LOW in (1, 3), sum(Stage), len(Stage)


class Act(enum.Enum):
    RELU = enum.member(F.relu)
    GELU = enum.member(functools.partial(F.gelu, approximate="tanh"))

    def __call__(self, x):
        return self.value(x)


class Reduction(enum.StrEnum):
    MEAN = enum.auto()
    SUM = enum.auto()
    NONE = enum.auto()


@program(X)
def functions_in_enums(x):
    losses = {r.value: F.mse_loss(x, x * 2, reduction=r) for r in Reduction}
    return [a(x) for a in Act], losses, Reduction("sum") is Reduction.SUM, f"{Reduction.NONE}"


@dataclass
class Conv:
    out: int
    k: int = 3


@dataclass
class Pool:
    kind: str


@program(lambda: (torch.randn(1, 2, 6, 6),))
def layers_by_match(x):
    def build(spec, c):
        match spec:
            case Conv(out=o, k=1):
                return torch.ones(o, c, 1, 1), lambda x, w: F.conv2d(x, w)
            case Conv(o, k) if k % 2:
                return torch.full((o, c, k, k), 0.1), lambda x, w: F.conv2d(x, w, padding=k // 2)
            case Pool("max" | "avg" as kind):
                return None, lambda x, w: getattr(F, f"{kind}_pool2d")(x, 2)
            case "relu" | "tanh":
                return None, lambda x, w: getattr(torch, spec)(x)
            case {"repeat": int(n), "of": inner, **rest}:
                w, f = build(inner, c)
                return w, lambda x, w: functools.reduce(lambda y, _: f(y, w), range(n), x)
            case [] | None:
                return None, lambda x, w: x
            case (a, b, *_):
                return build(a, c)
            case _:
                raise TypeError(spec)

    for spec in [
        Conv(3, 1),
        "relu",
        Conv(2),
        Pool("avg"),
        {"repeat": 2, "of": "tanh", "more": 1},
        (Pool("max"), 0),
        [],
    ]:
        w, f = build(spec, x.size(1))
        x = f(x, w)
    return x


@program(lambda: (torch.randn(4), {"a": {"b": [1, 2, {"c": 3}]}, "d": None}))
def paths_in_configs(x, cfg):
    def get(node, path, default=None):
        for key in path.split("."):
            match node:
                case dict() if key in node:
                    node = node[key]
                case list() if key.lstrip("-").isdigit():
                    node = node[int(key)]
                case _:
                    return default
        return node

    return x * get(cfg, "a.b.2.c") + get(cfg, "a.b.-2"), get(cfg, "a.x", "none"), get(cfg, "d", 1)


class HookPoint:
    def __init__(self):
        self.hooks = OrderedDict()

    def add(self, fn, *, first=False):
        key = len(self.hooks)
        self.hooks[key] = fn
        if first:
            self.hooks.move_to_end(key, last=False)
        return functools.partial(self.hooks.pop, key, None)

    def __call__(self, x):
        for hook in self.hooks.values():
            if (result := hook(x)) is not None:
                x = result
        return x


@program(X)
def hook_points(x):
    seen, point = [], HookPoint()
    remove = point.add(lambda y: y * 2)
    point.add(lambda y: seen.append(y.shape), first=True)
    y = point(x)
    remove()
    return y, point(x), seen, remove() is None


class Event(typing.NamedTuple):
    name: str
    value: Any = None

    @property
    def loud(self):
        return self.name.upper()

    def scaled(self, k):
        return self._replace(value=self.value * k)


@program(X)
def events(x):
    bus = defaultdict(list)
    on = lambda name: lambda f: bus[name].append(f) or f

    @on("step")
    def first(event):
        return event.scaled(2)

    @on("step")
    def second(event):
        return Event(event.loud, event.value + 1)

    e = Event("step", x)
    for handler in bus[e.name]:
        e = handler(e)
    return e, e._asdict()["name"], Event._fields, Event("a") == ("a", None), bus.get("other")


class Singleton(type):
    _instances: dict = {}

    def __call__(cls, *args, **kwargs):
        if cls not in cls._instances:
            cls._instances[cls] = super().__call__(*args, **kwargs)
        return cls._instances[cls]


class Settings(metaclass=Singleton):
    def __init__(self, scale=2.0):
        self.scale = scale


SETTINGS = Settings()


class Interface(abc.ABC):
    @property
    @abc.abstractmethod
    def name(self): ...

    @staticmethod
    def create(kind, **kw):
        return {c.kind: c for c in Interface.__subclasses__()}[kind](**kw)

    @abc.abstractmethod
    def run(self, x): ...

    def __call__(self, x):
        return {self.name: self.run(x)}


class Scale(Interface):
    kind = "scale"
    name = "scaled"

    def __init__(self, by=2):
        self.by = by

    def run(self, x):
        return x * self.by


class Clip(Interface):
    kind = "clip"

    @property
    def name(self):
        return f"{self.kind}ped"

    def run(self, x):
        return x.clip(-1, 1)


@program(X)
def interfaces(x):
    return Interface.create("scale", by=3)(x) | Interface.create("clip")(x), issubclass(Clip, Interface)


class Chain:
    """Calls that build a pipeline: ``Chain().mul(2).add(1)(x)``."""

    def __init__(self, steps=()):
        self.steps = steps

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kw: Chain((*self.steps, (name, args, kw)))

    def __call__(self, x):
        for name, args, kw in self.steps:
            x = getattr(torch, name)(x, *args, **kw)
        return x

    def __len__(self):
        return len(self.steps)

    def __contains__(self, name):
        return any(name == n for n, *_ in self.steps)


@program(X)
def chained_calls(x):
    chain = Chain().mul(2).clamp(min=-1, max=1).sum(dim=0, keepdim=True)
    return chain(x), len(chain), "mul" in chain, hasattr(chain, "__array__")


class LazyModule:
    def __init__(self, make):
        self.__dict__["_make"] = make
        self.__dict__["_obj"] = None

    def _get(self):
        if self._obj is None:
            self.__dict__["_obj"] = self._make()
        return self._obj

    def __getattr__(self, name):
        return getattr(self._get(), name)

    def __setattr__(self, name, value):
        setattr(self._get(), name, value)

    def __call__(self, *args):
        return self._get()(*args)


class Affine:
    scale = 2.0

    def __call__(self, x):
        return x * self.scale


@program(X)
def lazy_proxies(x):
    lazy = LazyModule(Affine)
    before = lazy._obj is None
    lazy.scale = lazy.scale + 1
    return lazy(x), before, lazy.__dict__["_obj"].scale


class ParamGroup(collections.abc.MutableMapping):
    def __init__(self, *args, **kw):
        self.store = dict(*args, **kw)
        self.reads = 0

    def __getitem__(self, k):
        self.reads += 1
        return self.store[k]

    def __setitem__(self, k, v):
        self.store[k] = v

    def __delitem__(self, k):
        del self.store[k]

    def __iter__(self):
        return iter(self.store)

    def __len__(self):
        return len(self.store)


@program(X)
def mappings_of_users(x):
    g = ParamGroup(lr=0.1, wd=0.0)
    g.setdefault("beta", 0.9)
    g.update({"lr": 0.5}, wd=1)
    popped = g.pop("beta")
    return x * g["lr"] + g.get("none", 2), popped, {**g}, "lr" in g, list(g.items()), g.reads, g == {"lr": 0.5, "wd": 1}


class Window(collections.abc.Sequence):
    def __init__(self, items, start=0):
        self.items, self.start = items, start

    def __len__(self):
        return len(self.items) - self.start

    def __getitem__(self, i):
        if isinstance(i, slice):
            return [self.items[self.start + j] for j in range(*i.indices(len(self)))]
        if not -len(self) <= i < len(self):
            raise IndexError(i)
        return self.items[self.start + i % len(self)]


@program(X)
def sequences_of_users(x):
    w = Window(list(x), 1)
    return [*w], w[::2], w[-1], sum(reversed(w)), [i for i, _ in enumerate(w)]


class Ranked(collections.abc.Set):
    def __init__(self, items):
        self.items = sorted(items)

    def __contains__(self, v):
        return v in self.items

    def __iter__(self):
        return iter(self.items)

    def __len__(self):
        return len(self.items)


@program(X)
def sets_of_users(x):
    a, b = Ranked([3, 1, 2]), Ranked({2, 3})
    return x[list(a & b)], b <= a, a.isdisjoint({5}), sorted(a - b), list(a | {0}), 2 in a


class Counted(set):
    def __init__(self, *given):
        super().__init__(*given)
        self.count = 0

    def add(self, v):
        super().add(v)
        self.count += 1

    def __contains__(self, v):
        return v == "any" or super().__contains__(v)


class Names(frozenset):
    def __new__(cls, *given, sep="."):
        self = super().__new__(cls, *given)
        self.sep = sep
        return self

    def joined(self):
        return self.sep.join(sorted(self))


@program(X)
def subclasses_of_sets(x):
    seen, names = Counted([1]), Names("ab", sep="/")
    seen.add(x)
    seen |= {5, 7}
    seen.discard(7)
    kept = Counted(range(4)) & {2, 3, 9}
    return (
        x * seen.count,
        x in seen,
        "any" in seen,
        len(seen),
        kept,
        type(kept),
        names,
        names.joined(),
        {1} | Counted([2]),
    )


@program(X)
def sets_and_frozensets(x):
    kept, dropped = {"q", "k", "v"}, frozenset(["v", "o"])
    names = kept - dropped
    names |= {"o"}
    names.discard("none")
    both = kept & dropped
    names.symmetric_difference_update({"q", "z"})
    table = {frozenset({1, 2}): x, frozenset(): x.sin()}
    return (
        table[frozenset([2, 1])],
        sorted(names),
        both,
        kept.issuperset(both),
        dropped.isdisjoint({"q"}),
        len({*kept, *dropped}),
    )


@program(X)
def dictionaries_edited(x):
    d = dict.fromkeys("abc", 0) | {"d": x}
    d |= [("e", 1)]
    for k in list(d):
        if d[k] == 0 if isinstance(d[k], int) else False:
            del d[k]
    last = d.popitem()
    inverse = {v: k for k, v in {"q": 0, "k": 1}.items()}
    keys = d.keys() & {"d", "z"}
    return (
        d,
        last,
        inverse,
        keys,
        list(reversed({"a": 1, "b": 2})),
        dict([("a", 1)], b=2),
        d.setdefault("new", []) == [],
    )


@program(X)
def counters_and_multisets(x):
    c = collections.Counter(i % 3 for i in range(7))
    c.update([0, 0])
    c.subtract({1: 5})
    d = +c - collections.Counter({0: 1})
    return x * c[0] + c[99], dict(d), c.total(), sorted(c.elements()), (c & d) == d, c.most_common()[-1]


@program(X)
def deques_as_buffers(x):
    recent = deque([x], maxlen=3)
    for i in range(4):
        recent.append(recent[-1] * 0.5 + i)
    recent.appendleft(recent.pop())
    recent.extendleft([x.mean()])
    recent.rotate(-1)
    return list(recent), len(recent), recent.copy()[0], recent.maxlen


@program(X)
def iterators_joined(x):
    rows = iter(x)
    first = next(rows)
    a, b = itertools.tee([1, 2, 3])
    groups = {k: [v for _, v in g] for k, g in itertools.groupby([(0, 1), (0, 2), (1, 3)], key=lambda p: p[0])}
    return (
        first + next(itertools.chain.from_iterable([rows])),
        list(itertools.accumulate([1, 2, 3], operator.mul, initial=2)),
        list(zip(a, itertools.islice(b, 1, None))),
        groups,
        list(itertools.combinations("abc", 2))[-1],
        list(itertools.permutations(range(3), 2))[:2],
        list(itertools.product([0, 1], repeat=2)),
        list(itertools.zip_longest([1], [2, 3], fillvalue=0)),
        list(itertools.compress("abc", [1, 0, 1])),
        [*itertools.takewhile(lambda v: v < 3, itertools.count(1))],
        list(itertools.dropwhile(lambda v: v < 2, range(4))),
        list(itertools.repeat("a", 2)),
        list(itertools.filterfalse(lambda v: v % 2, range(4))),
        next(itertools.cycle("xy")),
    )


@program(X)
def iterators_with_sentinels(x):
    queue = [3, 2, 0, 9]
    taken = list(iter(lambda: queue.pop(0), 0))
    it = iter(range(6))
    pairs = list(zip(it, it))
    return x * sum(taken), pairs, next(it, "end"), queue, any(v == 9 for v in queue)


class Tree:
    def __init__(self, value, *children):
        self.value, self.children = value, children

    def __iter__(self):
        yield self
        for child in self.children:
            yield from child

    def map(self, f):
        return Tree(f(self.value), *(c.map(f) for c in self.children))

    def fold(self, f):
        return f(self.value, [c.fold(f) for c in self.children])


@program(X)
def recursive_trees(x):
    tree = Tree(x, Tree(x + 1, Tree(x * 2)), Tree(x.sin()))
    doubled = tree.map(lambda v: v * 2)
    depth = tree.fold(lambda v, subs: 1 + max(subs, default=0))
    return doubled.fold(lambda v, subs: v + sum(subs)), depth, len(list(tree))


@program(X)
def generators_as_pipelines(x):
    def source(n):
        try:
            for i in range(n):
                yield x[i] * i
        finally:
            log.append("closed")

    def window(items, k):
        buffer = deque(maxlen=k)
        for item in items:
            buffer.append(item)
            if len(buffer) == k:
                yield torch.stack(tuple(buffer)).mean(0)

    log = []
    out = list(window(source(4), 2))
    g = source(3)
    first = next(g)
    g.close()
    return out, first, log


@program(X)
def generators_that_return(x):
    def inner():
        got = yield 1
        return got * 2

    def outer():
        result = yield from inner()
        yield result

    g = outer()
    next(g)
    value = g.send(x)
    try:
        next(g)
    except StopIteration as e:
        ended = e.value is None

    def thrower():
        try:
            yield 1
        except ValueError as e:
            yield str(e)

    t = thrower()
    next(t)
    return value, ended, t.throw(ValueError("thrown"))


class ConfigError(Exception):
    def __init__(self, key, hint=None):
        super().__init__(key, hint)
        self.key = key

    def __str__(self):
        return f"no {self.key!r}" + (f", {self.args[1]}" if self.args[1] else "")


@program(X)
def exceptions_chained(x):
    def read(d, k):
        try:
            return d[k]
        except KeyError as e:
            raise ConfigError(k, hint="see docs") from e

    try:
        read({}, "lr")
    except (ConfigError, TypeError) as e:
        note = str(e), type(e.__cause__).__name__, e.__cause__.args, e.__suppress_context__
    try:
        try:
            1 / 0
        finally:
            x = x + 1
    except ArithmeticError as e:
        x = x * len(e.args)
    return x, note


@program(X)
def exceptions_with_attributes(x):
    try:
        try:
            raise ValueError("bad")
        except ValueError as e:
            e.while_reading = "a file"
            raise
    except Exception as e:
        notes, kind = e.while_reading, e.__class__.__qualname__
    with contextlib.suppress(KeyError, IndexError):
        x = x + [1][3]
    return x, notes, kind


def require(condition, message, *args):
    if not condition:
        raise AssertionError(message.format(*args))


@program(X)
def assertions(x):
    assert x.ndim == 2 and x.shape[-1] % 2 == 0, f"an even last dimension is needed, not {tuple(x.shape)}"
    assert isinstance(x, Tensor) and not isinstance(x, nn.Parameter)
    require(x.is_floating_point(), "{} is no floating type", x.dtype)
    torch._check(x.size(0) > 1, lambda: f"too few rows: {x.size(0)}")
    torch._check_value(x.dim() == 2)
    return x.unflatten(-1, (2, -1))


@program(X)
def texts_formatted(x):
    n, name, width = x.numel(), "proj", 8
    table = "\n".join(f"{k:<{width}}|{v:>6.2%}" for k, v in {"a": 0.5, "bb": 0.25}.items())
    doc = textwrap.dedent("""\
        one
          two""")
    return (
        x,
        table,
        doc.splitlines(),
        f"{n=} {n:,} {n:#x} {-n:+d} {3.14159:.{2}f} {name!s:^10} {name[:2]:_>4} {1e6:g} {True:d}",
        "{0}-{1}-{0} {k:>3}".format(1, 2, k="a"),
        "%-5s|%05.1f|%+d|%%|%r" % (name, 2.5, 3, [1]),
        "%(a)s %(b)02d" % {"a": 1, "b": 2},
        str(x.shape), repr(x.dtype), f"{x.device}", ascii("é"),
    )  # fmt: skip


@program(X)
def texts_parsed(x):
    line = "block_3/conv-1: k=3, s=2 , p = 1"
    head, _, tail = line.partition(":")
    options = {k.strip(): int(v) for k, v in (item.split("=") for item in tail.split(","))}
    numbers = [int(n) for n in re.findall(r"\d+", head)]
    renamed = re.sub(r"(\w+)_(\d+)", lambda m: f"{m[1].title()}[{m[2]}]", head)
    pattern = re.compile(r"^(?P<block>\w+)/(?P<layer>[\w-]+)$")
    m = pattern.fullmatch(head)
    return (
        x * options["k"] + numbers[-1],
        renamed,
        m.groupdict(),
        m.span("layer"),
        re.split(r"[/-]", head),
        head.rsplit("/", maxsplit=1),
        "a,b".replace(",", ";").join("xy"),
        "Q_proj".casefold().endswith(("proj", "norm")),
        "snake_case".translate(str.maketrans("_", "-")),
        "abc".find("z"), "aXbX".rfind("X"), "  pad ".strip().center(7, "*"), "1_000".isnumeric(), "ab".zfill(4),
        "x".encode().hex(), bytes([1, 2]) + b"a", "tab\tx".expandtabs(4), "a b".split(), "Aa".swapcase(),
    )  # fmt: skip


@program(X)
def numbers_of_python(x):
    return (
        x * math.isqrt(17),
        (7).bit_count(), (0.5).as_integer_ratio(), float.fromhex("0x1p-2"), (2.5).hex(), int(3.9), int("0b11", 0),
        round(2.5), round(-1.25, 1), math.comb(5, 2), math.perm(4, 2), math.hypot(3, 4), math.fsum([0.1] * 10),
        math.copysign(1, -0.0), math.frexp(8.0), math.ldexp(0.5, 3), math.log2(8), math.dist([0, 0], [3, 4]),
        math.isclose(0.1 + 0.2, 0.3), math.lcm(4, 6), math.nan != math.nan, math.trunc(-2.7), math.fmod(-7, 3),
        complex("1+2j").imag, abs(3 + 4j), divmod(-7, 2), 7 // -2, -7 % 3, 2**-1, (1).to_bytes(2, "little"), math.tau,
        max(1, 2.0, True), min("ab"), sum([[1], [2]], []), sorted([3, 1], reverse=True), isinstance(True, numbers.Integral),
    )  # fmt: skip


@program(X)
def exact_numbers(x):
    ratio = fractions.Fraction(3, 4) + 1
    return x * float(ratio), ratio.numerator


@program(X)
def slices_and_ellipsis(x):
    window = slice(None, None, 2)
    crop = (slice(1, 3), ...)
    index = (None,) * 2 + (window,)
    grid = [x[i : i + 2, j : j + 2] for i in range(0, 4, 2) for j in range(0, 4, 2)]
    return x[window], x[crop], x[index], torch.stack(grid), window.indices(5), crop[0].stop, slice(3) == slice(None, 3)


@program(X)
def positional_and_keyword_only(x):
    def f(a, b=2, /, c=3, *args, d, e=5, **kw):
        return a * b + c + sum(args) + d + e + sum(kw.values())

    args, kw = (x, 1), {"d": 1, "z": 2}
    call = functools.partial(f, *args, d=0)
    return f(x, d=1), f(*args, *[4, 5], **kw), call(c=1, **{"e": 0}), f(x, **kw, a=1)


@program(X)
def defaults_that_are_kept(x):
    def collect(v, seen=[], *, log={}):
        seen.append(v)
        log[len(seen)] = v.sum()
        return len(seen)

    n = [collect(r) for r in x[:2]]
    return n, collect.__defaults__[0][-1]


@program(X)
def functions_with_attributes(x):
    def op(v):
        op.calls += 1
        return v * op.scale

    op.calls, op.scale = 0, 2.0
    op.__doc__ = "scales"
    wrapped = functools.wraps(op)(lambda *a: op(*a) + 1)
    y = op(wrapped(x))
    return y, op.calls, wrapped.__name__, wrapped.__wrapped__ is op, wrapped.__doc__, op.__code__.co_varnames


def memoize(f):
    cache = {}

    @functools.wraps(f)
    def inner(*args):
        if args not in cache:
            cache[args] = f(*args)
        return cache[args]

    inner.cache = cache
    return inner


@program(X)
def caches_of_decorators(x):
    @memoize
    def size(h, w, stride=1):
        return (h // stride) * w

    a = size(4, 4) + size(4, 4) + size(4, 4, 2)
    return x * a, len(size.cache)


class Grid:
    def __init__(self, data):
        self.data = data

    def __getitem__(self, key):
        match key:
            case (int() | slice(), int() | slice()):
                return self.data[key]
            case str():
                return self.data[:, ord(key) - ord("a")]
            case _:
                return Grid(self.data[key])

    def __setitem__(self, key, value):
        self.data = self.data.clone()
        self.data[:, ord(key) - 97] = value

    def __class_getitem__(cls, item):
        return (cls.__name__, item)

    def __missing__(self, key):
        return None


@program(X)
def indexing_of_users(x):
    g = Grid(x)
    g["b"] = g["a"] * 2
    g["c"] += 1
    return g[0, 1], g["b"], g[1:].data, g[1:3, 0], Grid[int]


class Money:
    def __init__(self, v):
        self.v = v

    def __radd__(self, o):
        return Money(self.v + (o.v if isinstance(o, Money) else o))

    __add__ = __radd__

    def __iadd__(self, o):
        self.v = self.v + o
        return self

    def __lt__(self, o):
        return self.v < o.v

    def __truediv__(self, o):
        return NotImplemented

    def __rtruediv__(self, o):
        return Money(o / self.v)

    def __divmod__(self, k):
        return self.v // k, self.v % k

    def __index__(self):
        return 2

    def __int__(self):
        return 7

    def __round__(self, n=0):
        return 1.5

    def __invert__(self):
        return -self.v


@program(X)
def reflected_operators(x):
    m = Money(3)
    m += 1
    try:
        m / 2
    except TypeError as e:
        failed = "unsupported" in str(e)
    total = sum([Money(1), Money(2)])
    return (1 / m).v, total.v, divmod(m, 3), int(m), round(m), ~m, failed, [0, 1, 2][m]


class Temperature:
    def __init__(self):
        self._value, self.history = 1.0, []

    @property
    def value(self):
        return self._value

    @value.setter
    def value(self, v):
        self.history.append(self._value)
        self._value = v

    @value.deleter
    def value(self):
        self._value = None


class Logged(Temperature):
    @Temperature.value.setter
    def value(self, v):
        Temperature.value.fset(self, v * 2)


@program(X)
def properties_inherited(x):
    t = Logged()
    t.value = 3.0
    t.value += 1
    y = x / t.value
    del t.value
    return y, t.history, t.value, isinstance(vars(Logged)["value"], property)


class A:
    def run(self, x):
        return [*self.before(), x]

    def before(self):
        return ["A"]


class B(A):
    def before(self):
        return ["B", *super().before()]


class C(A):
    def before(self):
        return ["C", *super().before()]


class D(B, C):
    def before(self):
        return ["D", *super(D, self).before()]


@program(X)
def diamonds(x):
    d = D()
    return (
        d.run(x),
        [c.__name__ for c in D.__mro__],
        super(B, d).before(),
        D.__bases__[0].__name__,
        isinstance(d, (C, int)),
    )


@program(X)
def namespaces(x):
    ns = types.SimpleNamespace(lr=0.1, opts=types.SimpleNamespace(beta=0.9))
    ns.lr *= 2
    ns.__dict__.update(extra=1)
    frozen = types.MappingProxyType({"a": 2})
    return x * ns.lr + ns.opts.beta, vars(ns)["extra"], frozen["a"], dict(frozen), types.SimpleNamespace(**vars(ns)).lr


class Runner:
    skip = None

    def run_b(self, v):
        return v + 1

    def run_a(self, v):
        return v * 2


@program(X)
def reflection(x):
    r = Runner()
    names = sorted(n for n in vars(Runner) if n.startswith("run_") and callable(getattr(r, n)))
    for n in names:
        x = getattr(r, n)(x)
    setattr(r, "done", len(names))
    return x, names, r.done, hasattr(Runner, "none"), "skip" in Runner.__dict__, type(r).__name__, r.__class__ is Runner


@program(X)
def types_checked(x):
    def kind(v):
        if isinstance(v, (int, float)) and not isinstance(v, bool):
            return "number"
        if isinstance(v, str | bytes):
            return "text"
        if isinstance(v, collections.abc.Mapping):
            return "mapping"
        if isinstance(v, collections.abc.Iterable):
            return "iterable"
        return "callable" if callable(v) else type(v).__name__

    values = [1, True, "a", {}, (), x, print, None, torch.float32, range(2)]
    return x, [kind(v) for v in values], isinstance(x.shape, tuple), issubclass(bool, int), type(x) is Tensor


T = TypeVar("T", bound=nn.Module)


class Box(Generic[T]):
    def __init__(self, item: T, *, kind: Union[str, None] = None):
        self.item = item

    def apply(self, f: "Callable[[T], T]") -> "Box[T]":
        return type(self)(f(self.item))


class SupportsScale(Protocol):
    k: float

    def __call__(self, x: Tensor) -> Tensor: ...


@program(X)
def typing_constructs(x):
    v: typing.Final = Box[nn.Module](x).apply(torch.sin)
    w: Annotated[Tensor, "rows"] = typing.cast(Tensor, v.item)
    hints = Box.__init__.__annotations__
    Pair = tuple[int, str]
    return w, sorted(hints), typing.get_origin(Pair) is tuple, typing.get_args(Pair), Optional[int] == Union[int, None]


Annotated = typing.Annotated


@program(X)
def scopes(x):
    total, values = 0, []

    def outer():
        nonlocal total
        k = 1

        def inner():
            nonlocal k, total
            k += 1
            total += k
            return lambda: (k, total)

        return inner

    step = outer()
    for _ in range(3):
        values.append(step()())
    fs = [lambda v, i=i: v * i for i in range(3)]
    late = [lambda v: v * i for i in range(3)]
    return [f(x) for f in fs], [f(x) for f in late], total, values, step.__closure__[0].cell_contents


STEPS = 0
CACHE: dict = {}


@program(X)
def globals_written(x):
    global STEPS
    STEPS += 1
    CACHE["last"] = x.detach()
    CACHE.setdefault("n", []).append(STEPS > 0)
    return x * 2, len(CACHE)


class Guard:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        return self

    def __exit__(self, kind, value, tb):
        self.log.append(kind.__name__ if kind else None)
        return kind is KeyError


@program(X)
def context_managers_nested(x):
    log = []

    @contextlib.contextmanager
    def scope(name):
        log.append(f"+{name}")
        try:
            yield name.upper()
        except ValueError as e:
            log.append(str(e))
        finally:
            log.append(f"-{name}")

    with scope("a") as a, Guard(log), scope("b"):
        x = x * len(a)
        raise ValueError("inside")
    with Guard(log):
        {}["k"]
    with contextlib.ExitStack() as stack:
        names = [stack.enter_context(scope(n)) for n in "cd"]
        stack.push(Guard(log))
        moved = stack.pop_all()
    moved.close()
    return x, log, names


@program(X)
def early_returns_from_with(x):
    log = []

    @contextlib.contextmanager
    def timed():
        log.append("start")
        yield
        log.append("stop")

    def f(v):
        for i in range(3):
            with timed(), torch.no_grad():
                if i == 1:
                    return v * 2
                if i == 0:
                    continue
        return v

    def g():
        try:
            return 1
        finally:
            log.append("finally")

    return f(x), log, g(), torch.is_grad_enabled()


VAR = contextvars.ContextVar("scale", default=1.0)


@program(X)
def context_variables(x):
    token = VAR.set(3.0)
    y = x * VAR.get()
    VAR.reset(token)
    return y + VAR.get()


@program(X)
def paths_and_environment(x):
    p = pathlib.PurePosixPath("models") / "layer.3" / "weight.bin"
    flag = os.environ.get("SNIPPETS_UNSET", "0") == "1"
    return x + flag, os.path.join("a", "b"), os.path.splitext("x.tar.gz")[1], p.suffix, p.parts[-1], os.sep


@program(X)
def enumerated_and_zipped(x):
    out = []
    for i, (a, b) in enumerate(zip(x, x.T), start=1):
        out.append(a * i - b)
    for (i, r), name in zip(enumerate(x), "abcd"):
        out.append(r * (ord(name) - 96 + i))
    ranges = range(10, 0, -3)
    return out, list(map(lambda *a: sum(a), range(3), ranges)), ranges[-1], 4 in ranges, len(ranges), ranges[1:]


@program(X)
def list_surgery(x):
    rows = list(x)
    rows[1:3] = [rows[0] * 2]
    rows.insert(1, x.mean(0))
    rows += [x[0]] * 2
    del rows[0], rows[-1:]
    rows.reverse()
    last = rows.pop()
    nested = [[0] * 2 for _ in range(2)]
    nested[0][1] += 1
    order = [3, 1, 2]
    order.sort(key=lambda v: -v)
    order.remove(1)
    return rows, last, nested, order, [1, 2] < [1, 3], order.count(3), (1,) + (2,) * 2, [*"ab"], order.copy() == order


@program(X)
def conditional_chains(x):
    n, flag = x.size(0), None
    y = x if flag else x * 2 if n > 2 else None
    z = flag or n and x.sum()
    inside = 0 < n <= 4 != 5
    return y, z, inside, not flag, (flag is None) ^ True, flag is not None, n if n else -1, [] or "empty"


class Meter:
    count: int = 0
    total: float = 0.0

    def update(self, v, n=1):
        self.total = self.total + v * n
        self.count += n
        return self

    @property
    def avg(self):
        return self.total / max(self.count, 1)

    def __str__(self):
        return f"{type(self).__name__}({self.count})"

    __repr__ = __str__


@program(lambda: (Meter(), *X()))
def meters_of_callers(meter, x):
    by_name = defaultdict(Meter)
    by_name["loss"].update(x.mean()).update(x.sum(), n=3)
    meter.update(x.detach().max(), 2)
    return by_name["loss"].avg, str(meter), meter.avg, f"{meter!r}", Meter.count


class Accessor:
    """``module.parts[0]`` in place of ``module._parts["0"]``, as wrappers of libraries have it."""

    def __init__(self, owner):
        self.owner = owner

    def __getitem__(self, i):
        return self.owner._parts[str(i)]

    def __len__(self):
        return len(self.owner._parts)


class Parts(nn.Module):
    def __init__(self):
        super().__init__()
        self._parts = nn.ModuleDict({str(i): nn.Linear(4, 4) for i in range(2)})

    @functools.cached_property
    def parts(self):
        return Accessor(self)

    def forward(self, x):
        for i in range(len(self.parts)):
            x = self.parts[i](x)
        return x


@program(lambda: (Parts(), *X()))
def cached_accessors(m, x):
    return m(x), "parts" in m.__dict__, m.parts is m.parts


@program(X)
def copies_of_objects(x):
    c = ModelConfig(tags={"a"})
    shallow, deep = copy.copy(c), copy.deepcopy(c)
    deep.rope.theta = 1.0
    shallow.tags.add("b")
    return x * c.rope.theta, sorted(c.tags), sorted(deep.tags), deep.rope is not c.rope, shallow.rope is c.rope


@program(X)
def dunder_calls(x):
    return (
        x.__add__(1),
        x.__rsub__(1),
        x.__matmul__(x),
        x.__getitem__(0),
        x.__neg__(),
        x.__len__(),
        (3).__add__(4),
        "a".__contains__("a"),
        [1].__len__(),
        x.__class__.__name__,
        torch.Tensor.__mul__(x, 2),
        operator.__add__(x, 1),
    )


@program(X)
def operator_module(x):
    d = {"a": [1, 2]}
    return (
        operator.matmul(x, x.T), operator.iadd(x.clone(), 1), operator.getitem(d, "a"), operator.contains(d, "a"),
        operator.truth([]), operator.index(3), operator.concat([1], [2]), operator.countOf([1, 1], 1),
        operator.itemgetter("a")(d), operator.attrgetter("shape", "ndim")(x), operator.methodcaller("sum", 0)(x),
        operator.xor(5, 3), operator.not_(0), operator.is_(None, None), operator.floordiv(7, 2), operator.indexOf("abc", "c"),
        operator.pow(x, 2), operator.neg(x), operator.invert(5), operator.lshift(1, 3), operator.mod(x, 2), operator.ge(x, 0),
    )  # fmt: skip


class Norms:
    def norm(self, v, p, dim=-1):
        return v.norm(p=p, dim=dim)

    l1 = functools.partialmethod(norm, p=1)
    l2 = functools.partialmethod(norm, p=2, dim=0)


@program(X)
def partials(x):
    base = functools.partial(F.layer_norm, normalized_shape=(4,))
    eps = functools.partial(base, eps=1e-3)
    n = Norms()
    return eps(x), n.l1(x), n.l2(x), eps.keywords, eps.func is F.layer_norm, eps.args


@functools.total_ordering
class Version:
    def __init__(self, text):
        self.parts = tuple(map(int, text.split(".")))

    def __eq__(self, o):
        return self.parts == o.parts

    def __lt__(self, o):
        return self.parts < o.parts


@program(X)
def total_orders(x):
    a, b = Version("1.10"), Version("1.9.1")
    old = torch.__version__.split("+")[0].split(".")[:1] < ["2"]
    return (x * 2 if a >= b else x), a > b, a != b, sorted([a, b])[0].parts, old, sys.version_info >= (3, 8)


class Dispatcher:
    def __init__(self):
        self.table = {}

    def register(self, *kinds):
        def add(f):
            self.table.update(dict.fromkeys(kinds, f))
            return f

        return add

    def __call__(self, value, *args):
        for cls in type(value).__mro__:
            if (f := self.table.get(cls)) is not None:
                return f(value, *args)
        raise TypeError(f"no rule for {type(value).__name__}")


@program(X)
def dispatch_by_hand(x):
    move = Dispatcher()

    @move.register(list, tuple)
    def _(v, f):
        return type(v)(move(i, f) for i in v)

    @move.register(dict)
    def _(v, f):
        return {k: move(i, f) for k, i in v.items()}

    @move.register(Tensor)
    def _(v, f):
        return f(v)

    move.register(object)(lambda v, f: v)
    return move({"a": [x, (x, "b")], "n": OrderedDict(c=x)}, lambda t: t * 2)


class Overloaded:
    @functools.singledispatchmethod
    def scale(self, k, x):
        raise NotImplementedError

    @scale.register
    def _(self, k: int, x):
        return x * k

    @scale.register
    def _(self, k: list, x):
        return [self.scale(i, x) for i in k]


@program(X)
def overloads(x):
    return Overloaded().scale([2, [3]], x)


@program(X)
def times_of_day(x):
    return x * datetime.timedelta(minutes=2).total_seconds()


class Lookup(type):
    """A metaclass by which a class is a table of its entries."""

    def __new__(mcs, name, bases, space, **kw):
        cls = super().__new__(mcs, name, bases, space)
        cls.entries = {k: v for k, v in space.items() if not k.startswith("_")}
        return cls

    def __getitem__(cls, key):
        return cls.entries[key]

    def __len__(cls):
        return len(cls.entries)

    def __iter__(cls):
        return iter(cls.entries)

    def __contains__(cls, key):
        return key in cls.entries

    @property
    def first(cls):
        return next(iter(cls.entries))


class Sizes(metaclass=Lookup):
    small = 2
    large = 4


class Vector3:
    def __class_getitem__(cls, unit):
        return functools.partial(cls, unit=unit)

    def __init__(self, v, unit="m"):
        self.v, self.unit = v, unit


@program(X)
def classes_as_tables(x):
    v = Vector3["km"](x)
    return x * Sizes["large"], len(Sizes), [k for k in Sizes], "small" in Sizes, Sizes.first, v.unit, v.v + 1


@program(X)
def questions_about_classes(x):
    getter = Temperature.value.fget
    t = Temperature()
    kinds = [type(Sizes).__name__, type(Act).__name__, type(Interface).__name__]
    return getter(t) * x, kinds, ModelConfig.__dataclass_params__.frozen, RopeConfig.from_dict.__func__ is not None


@program(X)
def tracebacks_and_slots(x):
    s = Slotted(x)
    try:
        s.unknown = 1
    except AttributeError as e:
        seen = e.__traceback__ is not None
        message = str(e)
    return s.q * 2, seen, message


@program(lambda: (nn.Sequential(nn.Linear(4, 4), nn.ReLU()), *X()))
def modules_moved(m, x):
    return m.to(x.device)(x) + m.cpu()(x), m.float() is m, x.retains_grad


@program(X)
def names_renamed(x):
    camel = re.sub(r"_(\w)", lambda m: m.group(1).upper(), "out_proj_bias")
    snake = re.compile(r"(?<!^)(?=[A-Z])").sub("_", "OutProj").lower()
    new_enough = torch.__version__ >= "2.0" and not torch.__version__.startswith("1.")
    return x * new_enough, camel, snake, textwrap.shorten("a long text of words", 12), textwrap.indent("a\nb", "- ")


@program(X)
def reductions_by_index(x):
    i = torch.tensor([0, 2, 2, 1])
    return {r: torch.zeros(3, 4).index_reduce(0, i, x, r, include_self=False) for r in ("mean", "amax", "prod")}
