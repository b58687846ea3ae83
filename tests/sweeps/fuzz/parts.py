# mypy: ignore-errors
# (this stands for users' code)
"""Classes, modules, decorators and generators that random programs use."""

from __future__ import annotations

import collections
import contextlib
import contextvars
import copy
import enum
import functools
import itertools
import math
import operator
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import compiler_core


class Counted:
    """A data descriptor that stores its value in the instance."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = f"_{name}"

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else instance.__dict__.get(self.name, 0) + 1

    def __set__(self, instance: Any, value: int) -> None:
        instance.__dict__[self.name] = value


class Box:
    """A plain object with most of what a class can have."""

    made = 0
    scale = 2

    def __init__(self, t: torch.Tensor, n: int = 1) -> None:
        self.t = t
        self.n = n
        self.items = [n, n + 1]

    @property
    def double(self) -> torch.Tensor:
        return self.t * self.scale

    @double.setter
    def double(self, value: torch.Tensor) -> None:
        self.t = value / self.scale

    @functools.cached_property
    def scaled(self) -> torch.Tensor:
        return self.t * 3

    counted = Counted()

    @classmethod
    def of(cls, t: torch.Tensor) -> Box:
        return cls(t, cls.scale)

    @staticmethod
    def shifted(t: torch.Tensor, n: int) -> torch.Tensor:
        return t + n

    def add(self, n: int = 1, *, times: int = 1) -> Box:
        self.n += n * times
        return self

    def apply(self, fn: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        return fn(self.t)

    def __call__(self, t: torch.Tensor) -> torch.Tensor:
        return self.t + t

    def __len__(self) -> int:
        return len(self.items)

    def __bool__(self) -> bool:
        return self.n > 1

    def __getitem__(self, i: int) -> int:
        return self.items[i]

    def __setitem__(self, i: int, value: int) -> None:
        self.items[i] = value

    def __contains__(self, n: object) -> bool:
        return n in self.items

    def __iter__(self) -> Iterator[int]:
        return iter(self.items)

    def __add__(self, other: Any) -> Box:
        return Box(self.t + (other.t if isinstance(other, Box) else other), self.n)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Box) and self.n == other.n

    def __hash__(self) -> int:
        return hash(self.n)

    def __enter__(self) -> Box:
        self.n += 1
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        self.n -= 1
        return kind is KeyError


class Deep(Box):
    """A subclass that calls `super()` and has `__getattr__`."""

    def __init__(self, t: torch.Tensor, n: int = 3) -> None:
        super().__init__(t, n)
        self.more = {"a": t}

    @property
    def double(self) -> torch.Tensor:
        return super().double + 1

    def add(self, n: int = 1, **named: int) -> Box:
        return super().add(n + 1, **named)

    def __getattr__(self, name: str) -> int:
        if name.startswith("_"):
            raise AttributeError(name)
        return len(name)


class Made(Box):
    """A class with ``__new__``."""

    def __new__(cls, t: torch.Tensor, n: int = 1) -> Made:
        instance = super().__new__(cls)
        instance.before = n
        return instance


class Slotted:
    """An object without a ``__dict__``."""

    __slots__ = ("n", "t")

    def __init__(self, t: torch.Tensor, n: int = 5) -> None:
        self.t, self.n = t, n


@dataclass(frozen=True)
class Frozen:
    """A dataclass that sets attributes with ``object.__setattr__``."""

    t: torch.Tensor
    n: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", self.n + 1)


class Colour(enum.Enum):
    """An enumeration."""

    RED = 1
    BLUE = 2


class Problem(ValueError):
    """An exception with attributes."""

    def __init__(self, text: str, n: int) -> None:
        super().__init__(text)
        self.n = n


class Countdown:
    """An iterator written as a class."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Countdown:
        return self

    def __next__(self) -> int:
        if self.n <= 0:
            raise StopIteration
        self.n -= 1
        return self.n

    def close(self) -> None:
        self.n = 0


class Stack(list[Any]):
    """A subclass of list with methods."""

    def last(self, default: Any) -> Any:
        return self[-1] if self else default

    def doubled(self) -> list[Any]:
        return [*self, *self]


class Table(dict[Any, Any]):
    """A dict with `__missing__`."""

    def __missing__(self, key: Any) -> int:
        return len(key)


@dataclass
class Point:
    """A dataclass."""

    t: torch.Tensor
    n: int = 0
    seen: list[int] = field(default_factory=list)


Pair = namedtuple("Pair", ["first", "second"])


class Net(nn.Module):
    """A module with parameters, a buffer, a counter and children."""

    def __init__(self, width: int = 4, parts: int = 2) -> None:
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(width, width) for _ in range(parts)])
        self.norm = nn.LayerNorm(width)
        self.drop = nn.Dropout(0.5)
        self.gain = nn.Parameter(torch.ones(width))
        self.register_buffer("total", torch.zeros(width))
        self.calls = 0
        self.act: Callable[[torch.Tensor], torch.Tensor] = F.relu

    def forward(self, t: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        self.calls += 1
        for part in self.parts:
            t = self.act(part(t))
        if self.training:
            self.total += t.detach().sum(0)
        return self.norm(self.drop(t)) * self.gain * scale


def twice(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator."""

    @functools.wraps(fn)
    def again(*args: Any, **kwargs: Any) -> Any:
        return fn(fn(*args, **kwargs), *args[1:], **kwargs)

    return again


@contextlib.contextmanager
def grown(box: Box, n: int) -> Iterator[Box]:
    """A context manager written as a generator."""
    box.n += n
    try:
        yield box
    finally:
        box.n -= n


def halves(n: int) -> Iterator[int]:
    """A generator that returns a value."""
    while n > 0:
        yield n
        n //= 2
    return 7


def running() -> Iterator[int]:
    """A generator that receives numbers and handles an exception."""
    total = 0
    while True:
        try:
            total += yield total
        except ValueError:
            total = -1


def echoes(items: list[int]) -> list[int]:
    """A generator with `yield from`."""

    def inner() -> Iterator[int]:
        yield from items
        last = yield from halves(4)
        yield last

    return list(inner())


@functools.lru_cache(maxsize=8)
def cached(n: int) -> int:
    """A function with a cache."""
    return n * 2


@functools.singledispatch
def kind_of(value: Any) -> int:
    """A function that is many."""
    return 1


@kind_of.register
def _(value: str) -> int:
    return 2


SCALE: contextvars.ContextVar[int] = contextvars.ContextVar("SCALE", default=2)


@contextlib.contextmanager
def shifted_scale(n: int) -> Iterator[int]:
    """Sets a context variable for a while."""
    token = SCALE.set(n)
    try:
        yield n
    finally:
        SCALE.reset(token)


def looks(t: torch.Tensor) -> torch.Tensor:
    """Breaks the graph on a tensor's value."""
    if t.sum() > 0:
        return t * 2
    return t - 1


def prints(t: torch.Tensor, text: str = "seen") -> torch.Tensor:
    """Breaks the graph in the middle."""
    t = t + 1
    print(text, tuple(t.shape))
    return t.cos()


def checked(n: int) -> int:
    """Raises for some numbers."""
    if n % 3 == 2:
        raise ValueError(f"bad {n}")
    return n + 1


class Square(torch.autograd.Function):
    """An autograd function with a custom gradient."""

    @staticmethod
    def forward(ctx: Any, t: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(t)
        return t * t

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        (t,) = ctx.saved_tensors
        return grad * t * 3


__all__ = [
    "SCALE", "Any", "Box", "Colour", "Countdown", "Deep", "F", "Frozen", "Made", "Net", "OrderedDict", "Pair", "Point",
    "Problem", "Slotted", "Square", "Stack", "Table", "cached", "checked", "collections", "compiler_core", "contextlib",
    "copy", "defaultdict", "echoes", "functools", "grown", "halves", "itertools", "kind_of", "looks", "math", "nn",
    "operator", "prints", "replace", "running", "shifted_scale", "torch", "twice",
]  # fmt: skip
