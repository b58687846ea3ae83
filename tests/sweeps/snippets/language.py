# mypy: ignore-errors
# ruff: noqa
"""Python as model code uses it: classes, protocols, decorators, context managers, containers, odd corners."""

import abc
import bisect
import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import inspect
import itertools
import math
import operator
import re
import string
import struct
import sys
import types
import typing
import weakref
from collections import ChainMap, Counter, OrderedDict, UserDict, defaultdict, deque

import torch
import torch.nn.functional as F
from torch import nn

from tests.sweeps.snippets.corpus import program

X = lambda: (torch.randn(4, 4),)


class Registry:
    def __init__(self):
        self._entries = {}

    def register(self, name=None):
        def wrap(cls):
            self._entries[name or cls.__name__.lower()] = cls
            return cls

        return wrap

    def build(self, cfg):
        cfg = dict(cfg)
        return self._entries[cfg.pop("type")](**cfg)

    def __contains__(self, name):
        return name in self._entries


ACTIVATIONS = Registry()


@ACTIVATIONS.register()
class Swish:
    def __init__(self, beta=1.0):
        self.beta = beta

    def __call__(self, x):
        return x * torch.sigmoid(self.beta * x)


@ACTIVATIONS.register("squared")
class SquaredRelu:
    def __call__(self, x):
        return F.relu(x).square()


@program(X)
def registry(x):
    acts = [ACTIVATIONS.build(c) for c in ({"type": "swish", "beta": 2.0}, {"type": "squared"})]
    return [a(x) for a in acts], "gelu" in ACTIVATIONS


class Meta(type):
    def __call__(cls, *args, **kwargs):
        obj = super().__call__(*args, **kwargs)
        obj.built = True
        return obj


class Built(metaclass=Meta):
    def __init__(self, scale):
        self.scale = scale


@program(X)
def metaclass_call(x):
    b = Built(2.0)
    return x * b.scale, b.built


class Plugin:
    plugins = []

    def __init_subclass__(cls, /, weight=1.0, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.weight = weight
        Plugin.plugins.append(cls)


class Double(Plugin, weight=2.0):
    def run(self, x):
        return x * self.weight


class Shift(Plugin):
    run = lambda self, x: x + self.weight


@program(X)
def subclasses_registered(x):
    for cls in Plugin.plugins:
        x = cls().run(x)
    return x, [c.__name__ for c in Plugin.__subclasses__()]


@typing.runtime_checkable
class Scaler(typing.Protocol):
    def scale(self, x): ...


class Twice:
    def scale(self, x):
        return x * 2


@program(lambda: (torch.randn(3), Twice()))
def runtime_protocol(x, s):
    return s.scale(x) if isinstance(s, Scaler) else x


T = typing.TypeVar("T")


class Stack(typing.Generic[T]):
    def __init__(self) -> None:
        self.items: list[T] = []

    def push(self, item: T) -> "Stack[T]":
        self.items.append(item)
        return self

    def pop(self) -> T:
        return self.items.pop()


@program(X)
def generic_class(x):
    s = Stack[torch.Tensor]().push(x).push(x.sin())
    return s.pop() + s.pop()


class Flags(enum.Flag):
    A = enum.auto()
    B = enum.auto()
    AB = A | B


@program(X)
def flags(x):
    f = Flags.A | Flags.B
    if Flags.A in f:
        x = x + 1
    return x, f is Flags.AB, (f & Flags.B).name, bool(f & ~Flags.AB)


class Color(str, enum.Enum):
    RED = "red"
    BLUE = "blue"

    @classmethod
    def _missing_(cls, value):
        return cls.BLUE


@program(X)
def string_enum(x):
    table = {"red": x, "blue": x * 2}
    return table[Color("red").value] + table[Color("unknown")], Color.RED == "red", [c.name for c in Color]


@dataclasses.dataclass(order=True)
class Item:
    priority: int
    payload: object = dataclasses.field(compare=False, default=None)
    tags: list = dataclasses.field(default_factory=list, repr=False)
    scale: dataclasses.InitVar[float] = 1.0

    def __post_init__(self, scale):
        self.priority = int(self.priority * scale)


@program(X)
def ordered_dataclasses(x):
    items = [Item(2, x), Item(1, x.sin(), scale=5.0), Item(0)]
    items.sort(reverse=True)
    return [i.payload for i in items if i.payload is not None], max(items).priority, items[-1] == Item(0)


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    h: int
    w: int

    def __mul__(self, k):
        return dataclasses.replace(self, h=self.h * k, w=self.w * k)

    def __iter__(self):
        return iter(dataclasses.astuple(self))


@program(X)
def frozen_slots(x):
    h, w = Shape(2, 2) * 2
    try:
        Shape(1, 1).h = 2
    except dataclasses.FrozenInstanceError as e:
        return x.view(h, w), str(e)


@dataclasses.dataclass(kw_only=True)
class Base:
    a: int = 1

    def __init_subclass__(cls):
        cls.kind = cls.__name__


@dataclasses.dataclass(kw_only=True)
class Derived(Base):
    b: int

    def __or__(self, other):
        return type(self)(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in dataclasses.fields(self)})


@program(X)
def dataclass_arithmetic(x):
    d = Derived(b=2) | Derived(a=5, b=1)
    return x * d.a + d.b, d.kind, dataclasses.is_dataclass(d)


class Lazy:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, owner=None):
        if obj is None:
            return self
        if self.name not in obj.__dict__:
            obj.__dict__[self.name] = obj.compute()
        return obj.__dict__[self.name]


class Table:
    table = Lazy()
    n = 0

    def compute(self):
        self.n += 1
        return torch.arange(4.0)


@program(X)
def lazy_descriptor(x):
    t = Table()
    return x + t.table + t.table, t.n


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.calls = 0

    @functools.cached_property
    def scale(self):
        return 2.0

    @property
    def device(self):
        return next(self.parameters()).device

    @property
    def dtype(self):
        return next(p.dtype for p in self.parameters() if p.is_floating_point())

    @staticmethod
    def act(x):
        return x.relu()

    @classmethod
    def default(cls, **kw):
        return kw.get("bias", 1.0)

    def forward(self, x, *, inplace=False):
        self.calls += 1
        x = self.lin(x.to(self.device, self.dtype)) * self.scale
        return self.act(x) + self.default(bias=0.5)

    def __getitem__(self, i):
        return [self.lin, self.act][i]


@program(lambda: (Model(), *X()))
def properties_of_module(m, x):
    y = m(x, inplace=True)
    return m[0](m[1](y)), m.calls


class Logged:
    def forward(self, x):
        self.log("in", x.mean())
        out = super().forward(x)
        self.log("out", out.mean())
        return out

    def log(self, name, value):
        self.__dict__.setdefault("logs", {})[name] = value.detach()


class Normed:
    def forward(self, x):
        return F.normalize(super().forward(x), dim=-1)


class Mixed(Logged, Normed, nn.Linear):
    pass


@program(lambda: (Mixed(4, 4), *X()))
def mixins(m, x):
    return m(x), m.logs, [c.__name__ for c in type(m).__mro__[:3]]


class Timer(contextlib.ContextDecorator):
    def __init__(self):
        self.events = []

    def __enter__(self):
        self.events.append("start")
        return self

    def __exit__(self, *exc):
        self.events.append("stop")
        return False


@program(X)
def context_decorator(x):
    timer = Timer()

    @timer
    def f(x):
        return x.exp()

    with timer as t:
        y = f(x)
    return y, t.events


@contextlib.contextmanager
def swapped(obj, **values):
    old = {k: getattr(obj, k) for k in values}
    for k, v in values.items():
        setattr(obj, k, v)
    try:
        yield obj
    finally:
        for k, v in old.items():
            setattr(obj, k, v)


@program(lambda: (nn.BatchNorm1d(4, momentum=0.5), *X()))
def attributes_swapped(m, x):
    with swapped(m, momentum=0.0, eps=1e-2) as n:
        y = n(x)
    return y + m(x), m.momentum


@program(X)
def exit_stack(x):
    log = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.callback(log.append, "closed")
        y = x * 2
    with contextlib.suppress(ZeroDivisionError):
        1 / 0
    with contextlib.nullcontext(3) as n, contextlib.closing(types.SimpleNamespace(close=lambda: log.append("c"))):
        y = y + n
    return y, log


def retry(times=2, exceptions=(ValueError,)):
    def decorator(f):
        @functools.wraps(f)
        def wrapper(*args, **kwargs):
            for attempt in range(times):
                try:
                    return f(*args, attempt=attempt, **kwargs)
                except exceptions as e:
                    last = e
            raise RuntimeError("failed") from last

        wrapper.calls = 0
        return wrapper

    return decorator


@retry(3)
def flaky(x, attempt):
    if attempt < 2:
        raise ValueError(attempt)
    return x * attempt


@program(X)
def retried(x):
    return flaky(x), flaky.__name__, flaky.calls


class ShapeError(ValueError):
    def __init__(self, want, got):
        super().__init__(f"want {want}, got {tuple(got)}")
        self.got = got


@program(X)
def custom_exceptions(x):
    def check(x, want):
        if x.shape != want:
            raise ShapeError(want, x.shape)
        return x

    notes = []
    try:
        check(x, (4, 5))
    except ShapeError as e:
        notes += [str(e), e.got[0], isinstance(e, ValueError)]
    else:
        notes.append("fine")
    finally:
        x = check(x, (4, 4)) * 2
    return x, notes


@program(X)
def exception_groups_of_validation(x):
    errors = []
    for bad in (None, "3", -1):
        try:
            if not isinstance(bad, int):
                raise TypeError(f"{bad!r} is no int")
            elif bad < 0:
                raise ValueError("negative")
        except (TypeError, ValueError) as e:
            errors.append((type(e).__name__, *e.args))
    return x * len(errors), errors


def batched(iterable, n):
    it = iter(iterable)
    while batch := list(itertools.islice(it, n)):
        yield batch


@program(X)
def generators(x):
    def running():
        total = 0
        while True:
            value = yield total
            if value is None:
                return
            total = total + value

    gen = running()
    next(gen)
    sums = [gen.send(row.sum()) for row in x]
    gen.close()

    def nested():
        yield from (row for row in x)
        yield x.mean(0)

    return sums, [torch.stack(b) for b in batched(nested(), 2) if len(b) == 2]


@program(X)
def containers(x):
    counts = Counter("abracadabra")
    groups = defaultdict(list)
    for i, row in enumerate(x.unbind()):
        groups[i % 2].append(row)
    scope = ChainMap({"a": 1}, {"a": 2, "b": 3})
    order = OrderedDict((k, v) for k, v in sorted(counts.items(), key=lambda kv: (-kv[1], kv[0])))
    order.move_to_end("a")
    window = deque(range(5), maxlen=3)
    window.rotate(1)
    return (
        {k: torch.stack(v) for k, v in groups.items()},
        counts.most_common(2),
        scope["a"] + scope["b"],
        list(order),
        list(window),
    )


class AttrDict(dict):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__

    def copy(self):
        return AttrDict(self)


@program(lambda: (AttrDict(scale=2.0, names=["a"]), *X()))
def attribute_dict(cfg, x):
    new = cfg.copy()
    new.shift = 3
    del new.names
    cfg.used = True
    return x * new.scale + new.shift, sorted(new), cfg


class Outputs(OrderedDict):
    def __post_init__(self):
        pass

    def __getitem__(self, k):
        if isinstance(k, str):
            return super().__getitem__(k)
        return self.to_tuple()[k]

    def to_tuple(self):
        return tuple(self[k] for k in self.keys())


@program(X)
def model_output(x):
    out = Outputs(loss=x.mean(), logits=x)
    out["hidden"] = (x.sin(),)
    loss, *rest = out.to_tuple()
    return out, out[0], rest, out.get("missing")


class Settings(UserDict):
    def __missing__(self, key):
        return 7

    def __setitem__(self, key, value):
        super().__setitem__(key.lower(), value)


@program(X)
def user_dict(x):
    s = Settings({"A": 1})
    s["B"] = 2
    return x * s["b"] + s["zzz"], sorted(s.data)


class Vector:
    __slots__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __add__(self, o):
        return Vector(self.x + o.x, self.y + o.y)

    def __rmul__(self, k):
        return Vector(k * self.x, k * self.y)

    def __matmul__(self, o):
        return self.x * o.x + self.y * o.y

    def __neg__(self):
        return -1 * self

    def __abs__(self):
        return (self @ self) ** 0.5

    def __eq__(self, o):
        return isinstance(o, Vector) and self.x is o.x

    def __hash__(self):
        return 1

    def __bool__(self):
        return True

    def __len__(self):
        return 2

    def __iter__(self):
        yield self.x
        yield self.y

    def __format__(self, spec):
        return f"V{spec}"


@program(X)
def operators(x):
    v = Vector(x, x.sin())
    a, b = -(v + 2 * v)
    return abs(v), a, b, v == v, len({v, v}), f"{v:>3}", v and 1


class Pipe:
    def __init__(self, f):
        self.f = f

    def __rshift__(self, other):
        return Pipe(lambda x: other.f(self.f(x)))

    def __ror__(self, x):
        return self.f(x)


@program(X)
def pipes(x):
    return [x] | (Pipe(lambda l: l[0].sin()) >> Pipe(torch.exp) >> Pipe(operator.neg))


@program(X)
def functional_tools(x):
    compose = lambda *fs: functools.reduce(lambda f, g: lambda v: g(f(v)), fs)
    double = functools.partial(torch.mul, other=2)
    get = operator.itemgetter(0, -1)
    call = operator.methodcaller("sum", dim=0)
    first, last = get([double(x), x, x.neg()])
    shape = operator.attrgetter("shape")
    return compose(call, torch.exp)(first), last, shape(x), list(itertools.starmap(pow, [(2, 3), (3, 2)]))


@functools.singledispatch
def to_device(obj, f):
    return obj


@to_device.register
def _(obj: torch.Tensor, f):
    return f(obj)


@to_device.register(list)
@to_device.register(tuple)
def _(obj, f):
    return type(obj)(to_device(o, f) for o in obj)


@to_device.register
def _(obj: dict, f):
    return {k: to_device(v, f) for k, v in obj.items()}


@program(lambda: ({"a": [torch.randn(2), 3], "b": (torch.randn(3),)},))
def single_dispatch(batch):
    return to_device(batch, lambda t: t.double())


@program(X)
def match_statement(x):
    def run(op, x):
        match op:
            case ["scale", float(k) | int(k)]:
                return x * k
            case {"op": "shift", **rest}:
                return x + sum(rest.values())
            case (("relu" | "tanh") as name,):
                return getattr(torch, name)(x)
            case Shape(h=4, w=w) if w > 1:
                return x.view(4, w)
            case [first, *others]:
                return run(others, run([first] if isinstance(first, str) else first, x))
            case _:
                return x

    ops = [["scale", 2], {"op": "shift", "by": 1, "more": 2}, ("relu",), Shape(4, 4), [["scale", 0.5], "tanh"], None]
    return functools.reduce(lambda x, op: run(op, x), ops, x)


def with_signature(a, b=2, *args, scale: float = 1.0, **kw):
    return a * b * scale


@program(X)
def signatures(x):
    sig = inspect.signature(with_signature)
    given = {k: v for k, v in dict(b=3, scale=2.0, other=1).items() if k in sig.parameters}
    f = with_signature
    return f(x, **given), list(sig.parameters), f.__kwdefaults__, f.__defaults__


@program(X)
def closures(x):
    count = 0

    def step(scale):
        nonlocal count
        count += 1

        def inner(y, n=count):
            return y * scale + n

        return inner

    fs = [step(i) for i in range(3)]
    return functools.reduce(lambda a, f: f(a), fs, x), count, [f.__defaults__ for f in fs]


@program(X)
def strings(x):
    name = "layers.3.attn.q_proj.weight"
    parts = name.split(".")
    m = re.match(r"layers\.(\d+)\.(\w+)", name)
    key = ".".join(p for p in parts if not p.isdigit())
    text = f"{len(parts):03d}|{key!r:>30}|{x.shape}|{x.dtype}|{1 / 3:.2e}|{'%s-%d' % ('a', 2)}"
    return (
        x * int(m.group(1)),
        key.removesuffix(".weight").title(),
        text,
        string.ascii_letters[: x.ndim],
        name.partition("."),
    )


@program(X)
def unpacking(x):
    (a, (b, *c)), *d = (x[0], tuple(x)), 1, 2
    first, *_, last = x.unbind(1)
    merged = [*c, *d, *{"k": 1}, *range(2)]
    kw = {**{"dim": 0}, "keepdim": True}
    return a + b, first * last, len(merged), torch.sum(x, **kw), dict(zip("ab", x))


@program(X)
def comprehensions(x):
    pairs = [(i, j) for i in range(3) for j in range(i) if (i + j) % 2]
    lookup = {f"{i}{j}": x[i, j] for i, j in pairs}
    unique = {k[0] for k in lookup}
    any_large = any(i > 1 for i, _ in pairs) and all(j >= 0 for *_, j in pairs)
    return lookup, sorted(unique), any_large, sum(x[i, j] for i, j in pairs), [y := x[0], y * 2]


@program(X)
def loops(x):
    i = 0
    while True:
        i += 1
        if i == 2:
            continue
        for row in x:
            if i > 3:
                break
            x = x + row
        else:
            continue
        break
    return x, i


@program(lambda: (torch.randn(4, 4), Twice()))
def weak_references(x, holder):
    class_ref, ref = weakref.ref(Twice), weakref.ref(holder)
    return ref().scale(x), class_ref() is Twice


@program(X)
def bound_methods(x):
    t = Twice()
    t.scale2 = types.MethodType(lambda self, x: self.scale(x) + 1, t)
    method = t.scale
    unbound = Twice.scale
    return t.scale2(x), method.__self__ is t, method.__func__ is unbound, getattr(t, "none", None), unbound(t, x)


@program(X)
def builtins(x):
    n = divmod(7, 2), pow(2, 5, 7), round(2.567, 1), abs(-3), hash("a") == hash("a"), ord("a"), hex(255), chr(98)
    order = sorted(range(4), key=lambda i: (-(i % 2), i))
    z = list(zip(*[(1, 2), (3, 4)], strict=True))
    return (
        x[order],
        n,
        z,
        list(map(max, [1, 5], [4, 2])),
        list(filter(None, [0, 1, ""])),
        bisect.bisect_left([1, 3, 5], 3),
        math.gcd(12, 18),
    )


class Node:
    def __init__(self, value, children=()):
        self.value, self.children = value, list(children)
        self.parent = None
        for c in self.children:
            c.parent = self

    def walk(self):
        yield self
        for c in self.children:
            yield from c.walk()

    @property
    def depth(self):
        return 0 if self.parent is None else 1 + self.parent.depth

    @functools.singledispatchmethod
    def visit(self, arg):
        raise NotImplementedError

    @visit.register
    def _(self, arg: int):
        return self.value * arg


@program(X)
def trees(x):
    tree = Node(x, [Node(x.sin(), [Node(x.cos())]), Node(x.tan())])
    return sum(n.value / (1 + n.depth) for n in tree.walk()), tree.visit(3)


class Singleton:
    _instance = None

    def __new__(cls, *args):
        if cls._instance is None:
            obj = super().__new__(cls)
            obj.fresh = True
            return obj
        return cls._instance


@program(X)
def made_by_new(x):
    s = Singleton()
    return x + s.fresh, isinstance(s, Singleton), type(s).__qualname__


class Point(typing.NamedTuple("Point", [("x", object), ("y", float)])):
    __slots__ = ()

    def norm(self):
        return self.x * self.y

    def __add__(self, other):
        return Point(*(a + b for a, b in zip(self, other)))


@program(X)
def namedtuple_subclass(x):
    p = Point(x, 2.0) + Point(x.sin(), 1.0)
    return p.norm(), p, p._replace(y=0.0).y


class Params(typing.TypedDict, total=False):
    lr: float


@program(X)
def typed_dict(x):
    p: Params = Params(lr=0.1)
    return x * p["lr"], typing.cast(float, 3), typing.get_type_hints(Params) is not None


def overridable(f):
    f.overridable = True
    return f


class Hooked:
    @overridable
    def before(self, x):
        return x

    def run(self, x):
        for name, member in type(self).__dict__.items():
            if getattr(member, "overridable", False):
                x = getattr(self, name)(x)
        return x


class HookedTwice(Hooked):
    @overridable
    def before(self, x):
        return super().before(x) * 2


@program(lambda: (torch.randn(3), HookedTwice()))
def marked_methods(x, h):
    return h.run(x), vars(type(h)).keys() >= {"before"}


@program(X)
def slices_as_values(x):
    s = slice(0, None, 2)
    index = (Ellipsis, s, None)
    start, stop, step = s.indices(x.size(1))
    return (
        x[index],
        x[(..., slice(start, stop, step))],
        x[:, [0, -1]],
        x[torch.tensor([True, False, True, False])] if False else x,
    )


@program(X)
def walrus_and_chains(x):
    if 2 < (n := x.size(0)) <= 4 and (m := n * 2) > 4:
        x = x * n + m
    y = x if n > 10 else None
    return (y or 5), x, 0 if not n else (n and m), n is not None is True


@program(X)
def copies(x):
    cfg = {"a": [1, {"b": x}], "n": Twice()}
    shallow, deep = copy.copy(cfg), copy.deepcopy({"a": [1, 2]})
    shallow["a"] = 3
    deep["a"].append(4)
    return cfg["a"][1]["b"] * 2, shallow["a"], deep


@program(X)
def functions_by_name(x):
    fn = getattr(sys.modules["math"], "prod")
    act = getattr(sys.modules["torch.nn.functional"], "gelu")
    return act(x), fn([2, 3]), __name__.split(".")[-1]


@functools.lru_cache(maxsize=None)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


@program(X)
def caches_of_functions(x):
    return x * fib(10), fib(3)


class Names(set):
    def matches(self, name):
        return name in self or name.split(".")[-1] in self


FROZEN_NAMES = Names({"bias", "norm"})


@program(lambda: (nn.Linear(4, 4), *X()))
def a_set_with_a_method(layer, x):
    decayed = [n for n, _ in layer.named_parameters(prefix="fc") if not FROZEN_NAMES.matches(n)]
    return layer(x) * len(FROZEN_NAMES), decayed


@program(X)
def ints_and_bits(x):
    n = int("101", 2) ^ 0b11
    return (
        x * n,
        n.bit_length(),
        (-7) // 2,
        (-7) % 3,
        7 >> 1,
        ~n,
        float("inf") > n,
        (3.0).is_integer(),
        int.from_bytes(b"\x01\x02", "big"),
        complex(1, 2).conjugate(),
    )


@program(X)
def packed_headers(x):
    header = struct.pack("<4sIf", b"DATA", x.size(0), 0.5)
    magic, rows, scale = struct.unpack("<4sIf", header)
    return x * rows * scale, magic.decode().lower(), struct.calcsize("<4sIf") == len(header)


WEIGHT = nn.Parameter(torch.ones(2))
SETTINGS = defaultdict(dict, {WEIGHT: {"lr": 0.5}, "default": {"lr": 2.0}})


@program(X)
def keys_of_two_kinds(x):
    SETTINGS["seen"] = x.cos()
    rates = [SETTINGS[p].get("lr", SETTINGS["default"]["lr"]) for p in (WEIGHT, "other")]
    return x * rates[0] + rates[1], SETTINGS.pop("seen"), SETTINGS.pop("other"), len(SETTINGS)
