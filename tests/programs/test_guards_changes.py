# mypy: ignore-errors
# ruff: noqa
"""Changes between calls: compiled code must still do what plain Python does, and the record must have the cause.

Each program is a generator: it yields what to call, changes something, and yields again.  `hits` are the
yields for which nothing that matters has changed, and nothing may be compiled.  PYTEST_DONT_REWRITE
"""

import collections
import copy
import dataclasses
import enum
import functools
import math
import sys
import types

import pytest
import torch
import torch.nn as nn

import compiler_core as cc
from compiler_core.api.compile import record_of
from compiler_core.tools.testing import difference

PROGRAMS = []


def x_of(*shape):
    return torch.full(shape or (3,), 0.5)


def changes(hits=(), cause=""):
    """A program that yields ``(function, arguments)``; `hits` are the yields (from 1) that compile nothing, and
    `cause` stands in the reasons of the recompiles."""

    def register(program):
        PROGRAMS.append(pytest.param(program, set(hits), cause, id=program.__name__))
        return program

    return register


@pytest.mark.parametrize(("program", "hits", "cause"), PROGRAMS)
def check(program, hits, cause):
    compiled, causes = {}, []
    for i, (fn, *args) in enumerate(program()):
        if id(fn) not in compiled:
            compiled[id(fn)] = (fn, cc.compile(fn, backend="eager", strict=True, recompile_limit=50))
        ours = compiled[id(fn)][1]
        record = record_of(ours)
        before = len(record.compiles)
        want, got = fn(*copy.deepcopy(args) if _changes_arguments(fn) else args), ours(*args)
        assert difference(want, got) is None, f"call {i}: {difference(want, got)}"
        result = record.compiles[before:]
        assert not (i in hits and result), f"call {i} compiled anew: {[c.cause for c in result]}"
        causes += [f"{c.cause.guard} {c.cause.expected} {c.cause.got}" for c in result if c.cause]
    if cause:
        assert any(cause in each for each in causes), causes


def _changes_arguments(fn):
    return getattr(fn, "changes_arguments", False)


test_change = check


# ------------------------------------------------------------ tensors


@changes(hits=[1, 3], cause="3 4")
def shape():
    f = lambda x: x + x.shape[0]
    yield f, x_of(3)
    yield f, x_of(3)
    yield f, x_of(4)
    yield f, x_of(3)


@changes(cause="dtype")
def dtype():
    f = lambda x: x + 1
    for kind in (torch.float32, torch.float64, torch.int64, torch.bool):
        yield f, torch.ones(3, dtype=kind)


@changes(cause="stride")
def strides():
    f = lambda x: (x + 1, x.is_contiguous())
    yield f, torch.ones(2, 3)
    yield f, torch.ones(3, 2).t()
    yield f, torch.ones(2, 6)[:, ::2]


@changes(hits=[2], cause="requires_grad")
def requires_grad_in_place():
    x = x_of()
    f = lambda x: (x * 2).detach() if x.requires_grad else x * 3
    yield f, x
    x.requires_grad_()
    yield f, x
    yield f, x


@changes(cause="requires_grad")
def requires_grad_of_a_parameter():
    net = nn.Linear(3, 3)
    f = lambda x: torch.tensor(net(x).requires_grad)
    yield f, x_of()
    net.weight.requires_grad_(False)
    net.bias.requires_grad_(False)
    yield f, x_of()


@changes(hits=[1])
def data_of_a_parameter():
    net = nn.Linear(3, 3)
    f = lambda x: net(x).detach()
    yield f, x_of()
    with torch.no_grad():
        net.weight.add_(1)
    yield f, x_of()
    net.weight.data = torch.zeros(5, 3)
    net.bias.data = torch.zeros(5)
    yield f, x_of()


@changes()
def subclass_of_tensor():
    class UserTensor(torch.Tensor):
        pass

    f = lambda x: x + 1
    yield f, x_of()
    yield f, x_of().as_subclass(UserTensor)


@changes()
def parameter_and_tensor():
    f = lambda x: (x + isinstance(x, nn.Parameter)).detach()
    yield f, x_of()
    yield f, nn.Parameter(x_of())
    yield f, x_of().requires_grad_()


@changes(hits=[2])
def the_same_tensor_twice():
    x, y = x_of(), x_of()
    f = lambda a, b: a + (b if a is b else b * 2)
    yield f, x, y
    yield f, x, x
    yield f, y, y


# ------------------------------------------------------------ constants


@changes(hits=[4], cause="L['n']")
def numbers():
    f = lambda x, n: (x * n, n)
    for n in (1, 1.0, True, 2, 1):
        yield f, x_of(), n


@changes()
def zeros_and_nan():
    f = lambda x, n: (x * n, math.copysign(1, n))
    for n in (0.0, -0.0, math.nan, math.inf, -math.inf):
        yield f, x_of(), n


@changes(cause="'b'")
def strings():
    f = lambda x, mode: x + 1 if mode == "a" else x - 1
    for mode in ("a", "b", None, b"a"):
        yield f, x_of(), mode


@changes()
def members_of_an_enum():
    class Mode(enum.Enum):
        UP, DOWN = 1, 2

    f = lambda x, mode: x + 1 if mode is Mode.UP else x - 1
    for mode in (Mode.UP, Mode.DOWN, 1, Mode.UP):
        yield f, x_of(), mode


@changes()
def dtypes_and_devices_as_values():
    f = lambda x, kind: x.to(kind)
    for kind in (torch.float32, torch.float64, torch.int32, torch.device("cpu")):
        yield f, x_of(), kind


@changes(hits=[1, 2])
def passed_on_only():
    f = lambda x, n: (x + 1, [n])
    for n in (1, "a", None):
        yield f, x_of(), n


# ------------------------------------------------------------ containers


@changes(cause="len(L['xs'])")
def length_of_a_list():
    xs = [x_of(), x_of()]
    f = lambda xs: sum(xs)
    yield f, xs
    xs.append(x_of())
    yield f, xs
    xs[0] = 7
    yield f, xs
    yield f, tuple(xs)


@changes(cause="list(L['d'])")
def keys_and_their_order():
    f = lambda d: torch.stack([v * i for i, v in enumerate(d.values())])
    a, b = x_of(), x_of() + 1
    yield f, {"a": a, "b": b}
    yield f, {"b": b, "a": a}
    yield f, {"a": a, "c": b}
    yield f, {"a": a}


@changes(hits=[1])
def a_key_not_looked_at():
    f = lambda d: d["a"] + 1
    yield f, {"a": x_of()}
    yield f, {"a": x_of(), "z": 4}


@changes()
def a_key_that_comes():
    d = {"a": x_of()}
    f = lambda d: d["a"] + d.get("k", 0) + ("q" in d)
    yield f, d
    d["k"] = 5
    yield f, d
    d["q"] = None
    yield f, d
    del d["k"]
    yield f, d


@changes()
def keys_that_equal_one_another():
    f = lambda d: ([*d], d[1] + 1)
    yield f, {1: x_of()}
    yield f, {True: x_of()}
    yield f, {1.0: x_of()}


@changes()
def sets():
    f = lambda x, s: x + (3 in s) + len(s)
    yield f, x_of(), {1, 2}
    yield f, x_of(), {1, 3}
    yield f, x_of(), frozenset({1, 3})


@changes()
def nested_containers():
    state = {"a": [1, {"b": (2, 3)}]}
    f = lambda x: x * state["a"][1]["b"][1] + state["a"][0]
    yield f, x_of()
    state["a"][1]["b"] = (2, 4)
    yield f, x_of()
    state["a"][0] = 9
    yield f, x_of()
    state["a"] = [0, {"b": [0, 0]}]
    yield f, x_of()


@changes()
def named_and_ordered():
    Pair = collections.namedtuple("Pair", "a b")
    f = lambda x, p: x * p[0] + p[1]
    yield f, x_of(), Pair(1, 2)
    yield f, x_of(), Pair(1, 3)
    yield f, x_of(), (1, 3)
    yield f, x_of(), [1, 3]


@changes()
def lists_that_become_one():
    def program(x, a, b):
        a.append(1)
        return x + len(b)

    program.changes_arguments = True
    one = []
    yield program, x_of(), [], []
    yield program, x_of(), one, one


@changes()
def slices_and_ranges():
    f = lambda x, r: x + sum(r)
    yield f, x_of(), range(3)
    yield f, x_of(), range(4)
    yield f, x_of(), [0, 1]


# ------------------------------------------------------------ globals and closures

SCALE = 2
CONFIG = {"rate": 1}


def helper(x):
    return x + 1


def uses_globals(x):
    return helper(x) * SCALE + CONFIG["rate"]


@changes(hits=[1], cause="SCALE")
def globals_of_the_module():
    space = globals()
    kept = {k: space[k] for k in ("SCALE", "helper")}
    try:
        yield uses_globals, x_of()
        yield uses_globals, x_of()
        space["SCALE"] = 3
        yield uses_globals, x_of()
        space["helper"] = lambda x: x - 1
        yield uses_globals, x_of()
        CONFIG["rate"] = 7
        yield uses_globals, x_of()
    finally:
        space.update(kept)
        CONFIG["rate"] = 1


@changes()
def a_builtin_is_shadowed():
    space = globals()
    f = types.FunctionType((lambda x: x + round(2.6)).__code__, space)
    try:
        yield f, x_of()
        space["round"] = lambda n: 100
        yield f, x_of()
        del space["round"]
        yield f, x_of()
    finally:
        space.pop("round", None)


@changes(cause="L['k']")
def a_free_variable():
    k = 1
    f = lambda x: x + k
    yield f, x_of()
    k = 2
    yield f, x_of()


@changes(hits=[1])
def closures_made_anew():
    def make(k):
        return lambda x: x * k

    f = lambda x, g: g(x)
    yield f, x_of(), make(2)
    yield f, x_of(), make(2)
    yield f, x_of(), make(3)


@changes()
def code_of_a_function():
    def inner(x):
        return x + 1

    f = lambda x: inner(x)
    yield f, x_of()
    inner.__code__ = (lambda x: x - 1).__code__
    yield f, x_of()


@changes()
def defaults_of_a_function():
    def inner(x, k=2, *, j=3):
        return x * k + j

    f = lambda x: inner(x)
    yield f, x_of()
    inner.__defaults__ = (5,)
    yield f, x_of()
    inner.__kwdefaults__ = {"j": 9}
    yield f, x_of()


@changes()
def the_function_itself():
    offset = 1

    def plain(x, k=2):
        return x + k

    def with_a_cell(x, k=2, *, j=3):
        return x * k + j + offset

    for f in (plain, with_a_cell):
        yield f, x_of()
        f.__defaults__ = (5,)
        yield f, x_of()
    with_a_cell.__kwdefaults__ = {"j": 9}
    yield with_a_cell, x_of()
    plain.__code__ = (lambda x, k, j=4: x * k - j).__code__
    plain.__defaults__ = (7, 8)
    yield plain, x_of()
    yield plain, x_of(), 2, 3
    with_a_cell.__code__ = (lambda x: x - offset).__code__
    yield with_a_cell, x_of()


@changes()
def a_mutable_default():
    def inner(x, seen=[1]):
        return x + len(seen)

    f = lambda x: inner(x)
    yield f, x_of()
    inner.__defaults__[0].append(2)
    yield f, x_of()


@changes()
def an_attribute_of_a_function():
    def inner(x):
        return x + inner.k

    inner.k = 1
    f = lambda x: inner(x)
    yield f, x_of()
    inner.k = 5
    yield f, x_of()


@changes()
def an_imported_module_is_patched():
    module = types.ModuleType("patched")
    module.k, module.go = 1, lambda x: x + 1
    f = lambda x: module.go(x) * module.k
    yield f, x_of()
    module.k = 2
    yield f, x_of()
    module.go = lambda x: x - 1
    yield f, x_of()


@changes()
def a_partial():
    base = lambda x, k, j=1: x * k + j
    f = lambda x, g: g(x)
    yield f, x_of(), functools.partial(base, k=2)
    yield f, x_of(), functools.partial(base, k=3)
    yield f, x_of(), functools.partial(base, k=3, j=2)


# ------------------------------------------------------------ objects and classes


class Model:
    rate = 1

    def __init__(self, k=3):
        self.k = k

    def go(self, x):
        return x * self.k + self.rate

    @property
    def half(self):
        return 0.5

    @classmethod
    def make(cls, x):
        return x + cls.rate

    @staticmethod
    def plain(x):
        return x + 10


def fresh_class():
    return type("Model", (Model,), {k: v for k, v in vars(Model).items() if k not in ("__dict__", "__weakref__")})


@changes(hits=[1, 3], cause=".k")
def an_attribute():
    model = Model()
    f = lambda x: model.go(x)
    yield f, x_of()
    model.unrelated = 9
    yield f, x_of()
    model.k = 4
    yield f, x_of()
    model.k = 3
    yield f, x_of()


@changes()
def an_attribute_hides_that_of_the_class():
    model = Model()
    f = lambda x: model.go(x)
    yield f, x_of()
    model.rate = 8
    yield f, x_of()
    del model.rate
    yield f, x_of()
    model.go = lambda x: x
    yield f, x_of()


@changes()
def attributes_of_the_class():
    cls = fresh_class()
    model = cls()
    f = lambda x: model.go(x) + model.half + cls.make(x) + cls.plain(x)
    yield f, x_of()
    cls.rate = 2
    yield f, x_of()
    cls.go = lambda self, x: x - 5
    yield f, x_of()
    cls.half = property(lambda self: 7)
    yield f, x_of()
    cls.make = classmethod(lambda cls, x: x - 2)
    yield f, x_of()
    cls.plain = staticmethod(lambda x: x - 3)
    yield f, x_of()


@changes()
def the_base_of_a_class():
    base = fresh_class()
    cls = type("Sub", (base,), {})
    model = cls()
    f = lambda x: model.go(x)
    yield f, x_of()
    base.go = lambda self, x: x + 100
    yield f, x_of()
    cls.go = lambda self, x: x + 200
    yield f, x_of()


@changes()
def the_class_of_an_object():
    class Other(Model):
        def go(self, x):
            return x - 1

    model = Model()
    f = lambda x: model.go(x)
    yield f, x_of()
    model.__class__ = Other
    yield f, x_of()


@changes()
def the_dict_of_an_object():
    model = Model()
    f = lambda x: model.go(x)
    yield f, x_of()
    model.__dict__ = {"k": 11}
    yield f, x_of()
    model.__dict__["k"] = 12
    yield f, x_of()


@changes(hits=[1], cause="Other")
def instances():
    class Other(Model):
        pass

    f = lambda x, m: m.go(x)
    yield f, x_of(), Model()
    yield f, x_of(), Model()
    yield f, x_of(), Model(5)
    yield f, x_of(), Other()


@changes()
def slots():
    class Slotted:
        __slots__ = ("k",)

    thing = Slotted()
    thing.k = 1
    f = lambda x: x + thing.k
    yield f, x_of()
    thing.k = 2
    yield f, x_of()


@changes()
def a_dataclass():
    @dataclasses.dataclass
    class Config:
        k: int = 1
        names: list = dataclasses.field(default_factory=list)

    config = Config()
    f = lambda x: x * config.k + len(config.names)
    yield f, x_of()
    config.k = 2
    yield f, x_of()
    config.names.append("a")
    yield f, x_of()


@changes()
def an_attribute_comes_and_goes():
    model = Model()
    f = lambda x: x + (model.extra if hasattr(model, "extra") else 0) + getattr(model, "other", 5)
    yield f, x_of()
    model.extra = 3
    yield f, x_of()
    model.other = 4
    yield f, x_of()
    del model.extra
    yield f, x_of()


@changes()
def special_methods():
    cls = type(
        "Special", (), {"__call__": lambda self, x: x + 1, "__len__": lambda self: 2, "__bool__": lambda s: True}
    )
    thing = cls()
    f = lambda x: thing(x) * len(thing) if thing else x
    yield f, x_of()
    cls.__call__ = lambda self, x: x + 2
    yield f, x_of()
    cls.__len__ = lambda self: 5
    yield f, x_of()
    cls.__bool__ = lambda self: False
    yield f, x_of()


# ------------------------------------------------------------ the state of PyTorch


@changes(hits=[2], cause="check_global_state() on off")
def grad_mode():
    f = lambda x: (x * 2, torch.is_grad_enabled())[1] + x.detach()
    x = x_of().requires_grad_()
    yield f, x
    with torch.no_grad():
        yield f, x
    yield f, x
    with torch.inference_mode():
        yield f, x


@changes()
def default_dtype():
    f = lambda x: x + torch.ones(3)
    yield f, x_of()
    torch.set_default_dtype(torch.float64)
    try:
        yield f, x_of()
    finally:
        torch.set_default_dtype(torch.float32)


@changes()
def autocast():
    f = lambda x: x @ x
    yield f, x_of(3, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        yield f, x_of(3, 3)
    with torch.autocast("cpu", dtype=torch.float16):
        yield f, x_of(3, 3)
    yield f, x_of(3, 3)


@changes()
def deterministic_algorithms():
    f = lambda x: x + torch.are_deterministic_algorithms_enabled()
    yield f, x_of()
    torch.use_deterministic_algorithms(True)
    try:
        yield f, x_of()
    finally:
        torch.use_deterministic_algorithms(False)


@changes(hits=(2, 5))
def class_of_a_tensor_before_a_break():
    def program(x, y):
        cls = x.__class__
        print(end="")
        return y * 2, cls.__name__

    for x in (x_of(), [1], [2], 3, nn.Parameter(x_of()), nn.Parameter(x_of())):
        yield program, x, x_of()


@changes()
def tensor_compared_with_none_before_a_break():
    def program(x, y):
        is_none = x == None
        print(end="")
        return y * 2, is_none

    for x in (x_of(), None, x_of()):
        yield program, x, x_of()


@changes(hits=(1, 3))
def implementations_are_registered():
    @functools.singledispatch
    def scaled(x):
        return x[0] * 2

    @scaled.register
    def _(x: torch.Tensor):
        return x * 3

    def program(x):
        return scaled(x) + 1

    yield program, x_of()
    yield program, x_of()
    yield program, [x_of()]
    yield program, [x_of()]
    scaled.register(list, lambda x: x[0] * 4)
    yield program, [x_of()]
    scaled.register(list, lambda x: x[0] * 5)
    yield program, [x_of()]
    scaled.register(collections.abc.Mapping, lambda x: x["a"] * 6)
    yield program, {"a": x_of()}
    yield program, [x_of()]


def test_slices_from_outside_change():
    def program(x, s):
        return x[s] * 2, s

    compiled, x = cc.compile(program, backend="eager", strict=True), torch.randn(6)
    for s in (slice(0, 2), slice(0, 3), slice(0, 2), slice(None), slice(-2, None), slice(0, 5, 2), slice(0, 3)):
        got, same = compiled(x, s)
        assert torch.equal(got, x[s] * 2), s
        assert same is s
