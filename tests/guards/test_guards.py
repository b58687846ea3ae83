# mypy: ignore-errors
# (the programs are written like users' code, without annotations)
"""Which calls reuse compiled code, which recompile, and the recorded cause of a recompile."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import compiler_core as cc
from compiler_core.api.compile import record_of
from compiler_core.guards import KINDS, GuardTree, all_hold, failures
from compiler_core.guards.value_guards import has_keys
from compiler_core.tools.testing import difference

SCALE = 2


def helper(x):
    return x + 1


class Model:
    rate = 1

    def __init__(self):
        self.k = 3

    def go(self, x):
        return x * self.k + self.rate

    @property
    def half(self):
        return 0.5

    @classmethod
    def make(cls, x):
        return x + 10


class Watch:
    """A program and its compiled form.

    A call runs both and compares the results; `new` is the number of compiles that the call must cause.
    """

    def __init__(self, program, **options):
        self.program = program
        self.compiled = cc.compile(program, backend="eager", strict=True, **options)

    def __call__(self, *args, new=None, **kwargs):
        before = len(self.record.compiles)
        expected, actual = self.program(*args, **kwargs), self.compiled(*args, **kwargs)
        different = difference(expected, actual)
        assert different is None, different
        if new is not None:
            assert len(self.record.compiles) - before == new, [c.cause for c in self.record.compiles]
        return self

    @property
    def record(self):
        return record_of(self.compiled)

    @property
    def cause(self):
        found = self.record.compiles[-1].cause
        assert found is not None
        return f"{found.guard} | {found.expected} | {found.got}"


def test_shape_dtype_and_stride():
    watch = Watch(lambda x: x.sin() + 1)
    watch(torch.ones(3), new=1)(torch.randn(3), new=0)(torch.ones(4), new=1)
    assert "L['x']" in watch.cause
    assert watch.cause.endswith(" | 3 | 4")
    watch(torch.ones(4, dtype=torch.float64), new=1)
    assert "float64" in watch.cause
    watch(torch.ones(2, 3), new=1)(torch.ones(3, 2).t(), new=1)
    watch(torch.ones(3, requires_grad=True), new=1)
    assert "requires_grad" in watch.cause
    watch(torch.nn.Parameter(torch.ones(3)), new=1)


def test_constants_of_different_types_are_different():
    watch = Watch(lambda x, n: (x + n, n))
    watch(torch.ones(2), 1, new=1)(torch.ones(2), 1, new=0)(torch.ones(2), True, new=1)(torch.ones(2), 1.0, new=1)
    assert "L['n']" in watch.cause


def test_numbers_that_equality_confuses():
    watch = Watch(lambda x, n: (x * n, math.copysign(1, n)), recompile_limit=20)
    for n in (0.0, -0.0, math.nan, math.inf, -math.inf):
        watch(torch.ones(2), n, new=1)(torch.ones(2), n, new=0)


def test_a_constant_that_is_only_passed_on_costs_no_guard():
    watch = Watch(lambda x, n: (x + 1, [n]))
    watch(torch.ones(2), 1, new=1)(torch.ones(2), 2, new=0)(torch.ones(2), "s", new=0)


def test_string_none_and_tensor_in_turn():
    watch = Watch(lambda x, mode=None: x + 1 if mode is None else x - 1)
    watch(torch.ones(2), new=1)(torch.ones(2), "a", new=1)(torch.ones(2), torch.ones(1), new=1)


def test_lists_and_dicts():
    watch = Watch(lambda xs: sum(xs), recompile_limit=20)
    x = torch.ones(2)
    watch([x, x], new=1)([x, x * 2], new=1)([x], new=1)((x,), new=1)
    watch = Watch(lambda d: [v + 1 for v in d.values()], recompile_limit=20)
    watch({"a": x}, new=1)({"b": x}, new=1)
    assert "'a'" in watch.cause
    assert "'b'" in watch.cause
    watch({"a": x, "b": x + 1}, new=1)({"b": x, "a": x + 1}, new=1)
    watch = Watch(lambda d: ([*d], d[1] + 1))
    watch({1: x}, new=1)({True: x}, new=1)({1: x}, new=0)


def test_one_key_guards_no_more_than_that():
    watch = Watch(lambda d: d["a"] + 1)
    x = torch.ones(2)
    watch({"a": x}, new=1)({"z": 1, "a": x}, new=0)
    watch = Watch(lambda d: d.get("k", 0) + d["a"])
    watch({"a": x}, new=1)({"a": x, "k": 5}, new=1)


def test_which_arguments_are_one_object():
    watch = Watch(lambda x, y: (x is y, x + y))
    a, b = torch.ones(2), torch.zeros(2)
    watch(a, b, new=1)(a, a, new=1)(b, a, new=0)(b, b, new=0)


def test_lists_that_alias_only_later():
    def program(x, a, b):
        a.append(1)
        b.append(2)
        return x + len(a), len(b)

    watch = Watch(program)
    watch.compiled(torch.ones(1), [], [])
    one = []
    plain, same = program(torch.ones(1), one, one), []
    got = watch.compiled(torch.ones(1), same, same)
    assert torch.equal(plain[0], got[0])
    assert plain[1] == got[1]
    assert same == one == [1, 2]
    assert "one object" in watch.cause


def test_objects_that_alias_only_later():
    def program(x, a, b):
        a.n = 5
        return x + b.n

    watch = Watch(program)
    a, b, one = Model(), Model(), Model()
    b.n = one.n = 2
    watch(torch.ones(1), a, b, new=1)
    watch(torch.ones(1), one, one, new=1)


def test_globals(monkeypatch):
    watch = Watch(lambda x: helper(x) * SCALE)
    watch(torch.ones(2), new=1)
    monkeypatch.setitem(globals(), "SCALE", 3)
    watch(torch.ones(2), new=1)
    assert "SCALE" in watch.cause
    monkeypatch.setitem(globals(), "helper", lambda x: x - 1)
    watch(torch.ones(2), new=1)
    assert "helper" in watch.cause
    watch = Watch(lambda x: x + round(2.6))
    watch(torch.ones(2), new=1)
    monkeypatch.setitem(globals(), "round", lambda x: 7)
    watch(torch.ones(2), new=1)
    monkeypatch.delitem(globals(), "round")
    watch(torch.ones(2), new=0)


def test_attributes_of_objects_and_classes(monkeypatch):
    model = Model()
    watch = Watch(lambda x: model.go(x) + model.half, recompile_limit=20)
    watch(torch.ones(2), new=1)(torch.ones(2), new=0)
    model.k = 4
    watch(torch.ones(2), new=1)
    assert ".k" in watch.cause
    monkeypatch.setattr(Model, "rate", 2)
    watch(torch.ones(2), new=1)
    model.rate = 9
    watch(torch.ones(2), new=1)
    del model.rate
    watch(torch.ones(2), new=0)
    monkeypatch.setattr(Model, "go", lambda self, x: x - 5)
    watch(torch.ones(2), new=1)
    assert "go" in watch.cause
    model.go = lambda x: x
    watch(torch.ones(2), new=1)
    monkeypatch.setattr(Model, "half", 3)
    watch(torch.ones(2), new=1)


def test_class_methods_and_static_calls(monkeypatch):
    watch = Watch(lambda x: Model.make(x))
    watch(torch.ones(2), new=1)(torch.ones(2), new=0)
    monkeypatch.setattr(Model, "make", classmethod(lambda cls, x: x - 1))
    watch(torch.ones(2), new=1)


def test_instances_of_other_classes():
    class Other(Model):
        def go(self, x):
            return x - 1

    watch = Watch(lambda x, m: m.go(x))
    watch(torch.ones(2), Model(), new=1)(torch.ones(2), Model(), new=0)(torch.ones(2), Other(), new=1)
    assert "Other" in watch.cause


def test_closures_with_different_contents_are_different():
    def make(k):
        def inner(x):
            return x * k

        return inner

    watch = Watch(lambda x, f: f(x))
    watch(torch.ones(2), make(2), new=1)(torch.ones(2), make(2), new=0)(torch.ones(2), make(3), new=1)


def test_default_arguments(monkeypatch):
    def inner(x, k=2):
        return x * k

    watch = Watch(lambda x: inner(x))
    watch(torch.ones(2), new=1)
    inner.__defaults__ = (3,)
    watch(torch.ones(2), new=1)


def test_grad_mode_and_default_dtype():
    watch = Watch(lambda x: x * 2 + torch.zeros(2))
    x = torch.ones(2, requires_grad=True)
    watch(x, new=1)
    with torch.no_grad():
        watch(x, new=1)
    watch(x, new=0)
    torch.set_default_dtype(torch.float64)
    try:
        watch(x, new=1)
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        watch(x, new=1)


def test_recompile_limit():
    watch = Watch(lambda x, n: x + n, recompile_limit=3, dynamic=False)
    for n in range(6):
        watch(torch.ones(2), n)
    assert len(watch.record.compiles) == 3
    (note,) = watch.record.notes
    assert "limit" in note
    watch(torch.ones(2), 1, new=0)


@pytest.mark.parametrize("change", ["none", "shape", "constant", "key", "length", "type", "alias", "parameters"])
def test_python_and_c_agree(change, monkeypatch):
    """The checks of guards in Python and in the C++ tree give the same result for a changed scope, and facts differ
    where guards fail."""
    built = []
    build = GuardTree.build

    def spy(tree, guards, **options):
        scope, manager = tree.scope, build(tree, guards, **options)
        if not options:  # with options, the cost of a single guard is measured
            built.append((scope, list(guards), manager))
        return manager

    monkeypatch.setattr(GuardTree, "build", spy)

    def program(x, n, d, items, other, model):
        items.append(n + 1)
        return x + d["a"], len(items), len(other), sum(p.sum() for p in model.parameters())

    x, model = torch.ones(2), torch.nn.Linear(2, 2)
    cc.compile(program, backend="eager", strict=True)(x, 1, {"a": 2}, [1], [2], model)
    ((scope, guards, manager),) = built
    f_locals = dict(scope.f_locals, x=x, n=1, d={"a": 2}, items=[1], other=[2], model=model)
    one = [1]
    f_locals |= {
        "none": {}, "shape": {"x": torch.ones(3)}, "constant": {"n": True}, "key": {"d": {"b": 2}},
        "length": {"items": []}, "type": {"d": 3}, "alias": {"items": one, "other": one},
        "parameters": {"model": torch.nn.Linear(2, 2, bias=False)},
    }[change]  # fmt: skip
    changed = type(scope)(f_locals, scope.f_globals, scope.closure)
    holds = all_hold(guards, changed)
    assert manager.root.check(f_locals) == holds == (change == "none")
    assert bool(failures(guards, changed)) == (change != "none")


def test_every_guard_prints_as_python():
    watch = Watch(lambda x, d, m: (m.go(x) + d["a"] + SCALE, x is d, getattr(m, "zz", 1), len(d)))
    watch(torch.ones(2), {"a": 1.5}, Model())
    (compiled,) = watch.record.compiles
    text = compiled.artifact_named("guards").text if hasattr(compiled, "artifact_named") else None
    text = text or next(a.text for a in compiled.artifacts if a.pane == "guards")
    import ast

    ast.parse(text)
    assert {g.kind for g in compiled.guards} <= set(KINDS)
    assert all(g.line for g in compiled.guards if g.kind == "TENSOR_MATCH")


def test_a_metaclass_runs_no_code_at_capture():
    class Meta(type):
        calls = 0

        @property
        def magic(cls):
            Meta.calls += 1
            return Meta.calls

    class Thing(metaclass=Meta):
        pass

    compiled = cc.compile(lambda x: x + Thing.magic, backend="eager", strict=True)
    assert [compiled(torch.zeros(1)).item() for _ in range(3)] == [1, 2, 3]


KIND_PROGRAMS = {
    "TENSOR_MATCH": (lambda x, y: x + y, [(torch.ones(2), torch.ones(2)), (torch.ones(2), torch.ones(1))], "(1,)"),
    "EQUALS_MATCH": (lambda x, n: x + n, [(torch.ones(2), 1), (torch.ones(2), 2)], "1 | 1 | 2"),
    "ID_MATCH": (lambda x, f: f(x), [(torch.ones(2), torch.sin), (torch.ones(2), torch.cos)], "torch.cos"),
    "TYPE_MATCH": (lambda x, m: m.go(x), [(torch.ones(2), Model()), (torch.ones(2), torch.ones(2))], "Model | Tensor"),
    "LENGTH": (lambda x, v: x + len(v), [(torch.ones(2), [1]), (torch.ones(2), [1, 2])], "1 | 2"),
    "DICT_KEYS": (lambda x, d: x + len([*d]), [(torch.ones(2), {"a": 1}), (torch.ones(2), {"b": 1})], "['b']"),
    "DICT_CONTAINS": (
        lambda x, d: x + d.get("k", 0),
        [(torch.ones(2), {}), (torch.ones(2), {"k": 1})],
        "absent | present",
    ),
    "SET_EQUALS": (lambda x, s: x + (1 in s), [(torch.ones(2), {1}), (torch.ones(2), {2})], "{1} | {2}"),
    "SAME_OBJECT": (
        lambda x, a, b: x + (a is b),
        [(torch.ones(2), *[[1]] * 2), (torch.ones(2), [1], [1])],
        "one object | two objects",
    ),
    "NOT_SAME_OBJECT": (
        lambda x, a, b: x + (a is b),
        [(torch.ones(2), [1], [1]), (torch.ones(2), *[[1]] * 2)],
        "two objects | one object",
    ),
}


@pytest.mark.parametrize("kind", KIND_PROGRAMS)
def test_the_reason_of_a_recompile(kind):
    """The cause of a recompile has the failed guard's text, the expected value and the present one."""
    program, (first, second), text = KIND_PROGRAMS[kind]
    compiled = cc.compile(program, backend="eager")
    compiled(*first)
    kinds = {g.kind for g in record_of(compiled).compiles[0].guards}
    assert kind in kinds
    try:
        compiled(*second)
    except AttributeError:
        assert kind == "TYPE_MATCH"
    cause = record_of(compiled).compiles[-1].cause
    assert text in f"{cause.guard} | {cause.expected} | {cause.got}", cause
    assert cause.of == "0/0"
    assert cause.line or kind == "SAME_OBJECT"


def test_global_and_state_reasons(monkeypatch):
    watch = Watch(lambda x: x + round(2.6))
    watch(torch.ones(2), new=1)
    monkeypatch.setitem(globals(), "round", lambda x: 7)
    watch(torch.ones(2), new=1)
    assert "the builtin round | a global round" in watch.cause
    watch = Watch(lambda x: x + 1)
    watch(torch.ones(2), new=1)
    with torch.no_grad():
        watch(torch.ones(2), new=1)
    assert watch.cause.endswith("| on | off")


def test_compiled_code_is_still_used_after_the_recompile_limit():
    compiled = cc.compile(lambda x, n: x + n, backend="eager", recompile_limit=2, dynamic=False)
    x = torch.ones(1)
    assert [compiled(x, n).item() for n in (1, 2, 3, 4, 1, 2)] == [2, 3, 4, 5, 2, 3]
    record = record_of(compiled)
    assert len(record.compiles) == 2
    (note,) = record.notes
    assert "compiled 2 times, which is the limit" in note
    assert "plain Python" in note


def test_costs_are_measured():
    compiled = cc.compile(lambda x, d: x + d["a"], backend="eager")
    compiled(torch.ones(2), {"a": 1})
    (compile_,) = record_of(compiled).compiles
    assert compile_.guards_ns > 0
    assert all(g.cost_ns is not None and g.cost_ns >= 0 for g in compile_.guards)
    assert "us a call" in str(cc.explain(lambda x: x + 1, torch.ones(2)))


def test_keys_that_are_other_objects() -> None:
    class Reversed(dict[Any, Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter([*self.keys()][::-1])

    name = "".join(["na", "me"])
    check = has_keys((name, 1))
    same = {"name": 0, 1: 0}, {name: 0, 1: 0}, OrderedDict({name: 0, 1: 0}), Reversed({name: 0, 1: 0})
    assert all(map(check, same))
    others = {name: 0, True: 0}, {1: 0, name: 0}, {name: 0}, {name: 0, 1: 0, 2: 0}, Reversed({1: 0, name: 0})
    assert not any(map(check, others))
