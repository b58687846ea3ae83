# mypy: ignore-errors
# ruff: noqa
"""Changes of lists, dicts, sets, objects, cells, globals, modules and tensors: before and after a break or an
exception they are what Python would have left, with identity and aliasing kept.

PYTEST_DONT_REWRITE: the programs are users' code.
"""

from __future__ import annotations

import collections
import sys
import types

import pytest
import torch
from torch import nn

import compiler_core as cc
from compiler_core.tools.testing import same_as_eager

COUNT = 0
STATE = {"calls": 0}
HERE = sys.modules[__name__]
settings = types.ModuleType("settings")
settings.level = 1


class Box:
    kind = "box"

    def __init__(self, value=None):
        self.value = value


@cc.disable
def fail(*_):
    raise ValueError("fail")


def x4():
    return torch.arange(4.0)


# ---------------------------------------------------------------- containers


@same_as_eager(graphs=2, breaks=["print"], inputs=lambda: (x4(), []))
def test_list_before_and_after(x, items):
    items.append(x + 1)
    print(len(items))
    items.append(x + 2)
    return items[0] * items[1]


@same_as_eager(graphs=0, breaks=["print"] * 2, inputs=lambda: (x4(), [3, 1, 2]))
def test_list_methods_around_a_break(x, items):
    items.sort()
    items[1:2] = [7, 8]
    print(items)
    items.reverse()
    items.insert(0, x)
    del items[2]
    print(len(items))
    items.extend([5]), items.pop()
    return items


@same_as_eager(graphs=1, breaks=["print"], inputs=lambda: (x4(), {"a": 1, "b": [2]}))
def test_dict_around_a_break(x, d):
    d["c"] = x + 1
    d["b"].append(3)
    print(sorted(d))
    d.pop("a")
    d.setdefault("d", []).append(x)
    d.update(e=d["b"])
    return d["e"] is d["b"]


@same_as_eager(graphs=1, breaks=["print"], inputs=lambda: (x4(), {1, 2}))
def test_set_around_a_break(x, s):
    s.add(3)
    print(sorted(s))
    s.discard(1)
    s |= {9}
    return x + len(s)


@same_as_eager(
    graphs=0, breaks=["print"], inputs=lambda: (x4(), collections.OrderedDict(a=1), collections.deque([1], 3))
)
def test_ordered_dict_and_deque(x, d, q):
    d["b"] = x
    q.append(2)
    print(list(d), list(q))
    d.move_to_end("a")
    q.append(3), q.append(4)
    return d, q


def shared():
    inner = [1]
    return x4(), {"a": inner, "b": inner}, inner


@same_as_eager(graphs=1, breaks=["print"], inputs=shared)
def test_aliases_of_one_list(x, d, inner):
    d["a"].append(2)
    print(d["b"])
    inner.append(3)
    d["c"] = d["b"]
    return d["a"] is d["b"] is inner, x + len(inner)


@same_as_eager(graphs=0, breaks=["print"], inputs=lambda: (x4(), [], []))
def test_swap_across_a_break(x, a, b):
    a.append(b), b.append(x)
    print("now")
    a[0], b[0] = b[0], a[0]
    return a, b[0] is b


@same_as_eager(graphs=1, breaks=["print"])
def test_own_containers_keep_their_identity(x):
    a = [x]
    d = {"a": a, "again": a}
    t = (a, d)
    print("now")
    a.append(x + 1)
    d["again"].append(2)
    return t, t[0] is d["a"], t[1]["again"] is a


@same_as_eager(graphs=1, breaks=["print"], inputs=lambda: (x4(), []))
def test_list_that_holds_itself(x, items):
    items.append(items)
    print("now")
    items.append(x + 1)
    return items[0] is items


@same_as_eager(graphs=0, breaks=["print"])
def test_own_list_that_holds_itself(x):
    items = [x + 1]
    items.append(items)
    print("now")
    return items[1] is items, items[0] * 2


@same_as_eager(graphs=1, breaks=["asked for"], inputs=lambda: (x4(), []))
def test_list_changed_then_exception(x, items):
    items.append(x + 1)
    fail(items)


@same_as_eager(graphs=1, breaks=["asked for"], inputs=lambda: (x4(), []))
def test_list_changed_in_try_handler_and_finally(x, items):
    try:
        items.append("try")
        fail(items)
        items.append("never")
    except ValueError:
        items.append("except")
    finally:
        items.append("finally")
    return x + len(items)


@same_as_eager(graphs=1, breaks=[], inputs=lambda: (x4(), []))
def test_list_changed_and_a_captured_exception(x, items):
    try:
        items.append("try")
        {}["k"]
    except KeyError:
        items.append("except")
    else:
        items.append("never")
    finally:
        items.append(x + 1)
    return len(items)


@same_as_eager(graphs=1, breaks=["exception"], inputs=lambda: (x4(), []))
def test_list_changed_and_an_operation_that_fails(x, items):
    items.append(1)
    try:
        items.append(x @ torch.ones(7))
    except RuntimeError:
        items.append(2)
    return items


# ---------------------------------------------------------------- objects and modules


@same_as_eager(graphs=1, breaks=["print"], inputs=lambda: (x4(), Box()))
def test_object_around_a_break(x, box):
    box.value = x + 1
    box.first = [x]
    print(hasattr(box, "first"), hasattr(box, "second"))
    box.first.append(box.value)
    del box.value
    return box.first[1], hasattr(box, "value")


@same_as_eager(graphs=1, breaks=["print"])
def test_own_object_around_a_break(x):
    box = Box([x])
    other = Box(box)
    print("now")
    box.value.append(x + 1)
    other.value.extra = other
    return other, box.extra is other


@same_as_eager(graphs=1, breaks=["asked for", "exception"], inputs=lambda: (x4(), Box(1)))
def test_object_changed_then_exception(x, box):
    box.value = x * 2
    try:
        box.second = 2
        fail(box)
    finally:
        box.third = 3


@same_as_eager(graphs=1, breaks=["print"])
def test_class_attribute_shadowed(x):
    box = Box()
    box.kind = "mine"
    print(box.kind, Box.kind)
    del box.kind
    return box.kind, x + 1


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        self.seen += x
        print(self.calls)
        self.calls += 1
        self.last = self.seen * 2
        return self.last + x


@same_as_eager(graphs=2, breaks=["print"], inputs=lambda: (Counter(), x4()))
def test_module_state_around_a_break(model, x):
    y = model(x)
    return y, model.calls, model.seen


@same_as_eager(graphs=1, breaks=["print"], inputs=lambda: (nn.Linear(4, 4), x4()))
def test_module_attribute_around_a_break(model, x):
    model.scale = 2
    print("now")
    model.scale += 1
    return model(x) * model.scale


# ---------------------------------------------------------------- globals, cells, modules


@same_as_eager(graphs=1, breaks=["print"], changes=("COUNT",))
def test_global_around_a_break(x):
    global COUNT
    COUNT = COUNT + 1
    print(COUNT)
    COUNT += 1
    return x + COUNT


@same_as_eager(graphs=0, breaks=["asked for", "exception"], changes=("COUNT",))
def test_global_then_exception(x):
    global COUNT
    COUNT = 5
    try:
        fail()
    finally:
        COUNT += 1


@same_as_eager(graphs=1, breaks=["print"], changes=("STATE",))
def test_global_dict_around_a_break(x):
    STATE["calls"] += 1
    print(STATE)
    STATE["last"] = x + 1
    return STATE["last"] * STATE["calls"]


@same_as_eager(graphs=1, breaks=[], changes=("COUNT",))
def test_global_through_its_module(x):
    global COUNT
    COUNT = 7
    y = x + HERE.COUNT
    HERE.COUNT = 8
    return y * COUNT


@same_as_eager(graphs=1, breaks=["print"])
def test_module_attribute(x):
    before = settings.level
    settings.level = before + 1
    y = x + settings.level
    print(settings.level)
    settings.level = before
    return y


@same_as_eager(graphs=1, breaks=["print", "exception"])
def test_new_global_and_its_end(x):
    global BRAND_NEW
    BRAND_NEW = x + 1
    y = BRAND_NEW * 2
    print("now")
    del BRAND_NEW
    try:
        return BRAND_NEW
    except NameError as error:
        return y, str(error)


@same_as_eager(graphs=1, breaks=["print"] * 2)
def test_cells_of_two_functions(x):
    n, log = 0, []

    def bump():
        nonlocal n
        n += 1
        log.append(n)
        print("bump", n)
        return n

    def read():
        return n, list(log)

    bump()
    a = read()
    bump()
    n = 10
    return a, read(), x + n


@same_as_eager(graphs=1, breaks=["asked for"])
def test_cell_then_exception(x):
    n = 0

    def bump():
        nonlocal n
        n += 1
        fail()
        n += 100

    try:
        bump()
    except ValueError:
        n += 10
    return n, x + n


def counters():
    n = 0

    def bump(x):
        nonlocal n
        n += 1
        return x + n

    def read():
        return n

    return x4(), bump, read


@same_as_eager(graphs=2, breaks=["print"], inputs=counters)
def test_outside_cell_around_a_break(x, bump, read):
    y = bump(x)
    print(read())
    return bump(y), read()


# ---------------------------------------------------------------- tensors


@same_as_eager(graphs=2, breaks=["print"])
def test_tensor_in_place_around_a_break(x):
    y = x.clone()
    y.add_(1)
    print(y.shape)
    y.mul_(2)
    return y, x


@same_as_eager(graphs=2, breaks=["print"])
def test_input_in_place_around_a_break(x):
    x.add_(1)
    print(x.shape)
    x.mul_(2)
    return x


@same_as_eager(graphs=2, breaks=["print"])
def test_views_across_a_break(x):
    y = x.clone()
    row, column = y[0], y[:, 1]
    row.add_(1)
    print("now")
    column.mul_(2)
    return y, row, column


@same_as_eager(graphs=2, breaks=["asked for"])
def test_tensor_in_place_then_exception(x):
    y = x.clone()
    try:
        y.add_(1)
        fail(y)
        y.add_(100)
    except ValueError:
        y.mul_(2)
    return y


@same_as_eager(graphs=2, breaks=["print"])
def test_setitem_around_a_break(x):
    y = x.clone()
    y[0] = 1
    print("now")
    y[1] = y[0] + 1
    return y


@same_as_eager(graphs=2, breaks=["print"], inputs=lambda: (torch.randn(3, 3),) * 2)
def test_one_tensor_as_two_arguments(x, y):
    x.add_(1)
    print(x is y)
    y.mul_(2)
    return x, y


@same_as_eager(graphs=2, breaks=["print"])
def test_random_numbers_around_a_break(x):
    a = torch.rand(3) + torch.randn(3)
    print("now")
    b = torch.nn.functional.dropout(x, 0.5)
    return a, b, torch.rand(2)


@same_as_eager(graphs=2, breaks=["print"], grad=True)
def test_saved_tensor_and_gradient(x):
    kept = []
    y = x.sin()
    kept.append(y)
    print("now")
    z = kept[0] * x
    kept.append(z)
    return kept, z.sum()


@same_as_eager(graphs=2, breaks=["backward"], inputs=lambda: (torch.ones(3, requires_grad=True), []))
def test_gradient_accumulates_over_a_break(x, grads):
    y = (x * 2).sum()
    y.backward()
    grads.append(x.grad)
    return x.grad is grads[0], x.grad + 1


# ---------------------------------------------------------------- without breaks


@same_as_eager(breaks=[], inputs=lambda: (x4(), [[1], [2]]))
def test_nested_lists(x, rows):
    for row in rows:
        row.append(len(rows))
    rows.append(rows[0])
    rows[0][0] = x + 1
    return rows


@same_as_eager(breaks=[], inputs=lambda: (x4(), []))
def test_a_tensor_that_was_just_appended_is_an_argument(x, items):
    items.append(x.sin())
    return torch.cat(items), torch.stack(items).sum()


def test_free_variables_of_the_frame():
    def make():
        n, log = 0, []

        def program(x):
            nonlocal n
            n += 1
            log.append(n)
            return x + n

        return program, lambda: (n, log)

    (plain, look), (other, look_too) = make(), make()
    compiled = cc.compile(other, backend="eager", strict=True)
    for _ in range(3):
        x = torch.randn(3)
        assert torch.equal(plain(x), compiled(x))
    assert look() == look_too() == (3, [1, 2, 3])


class Checked:
    def __setattr__(self, name, value):
        object.__setattr__(self, name, value + 1)


class Doubled(Checked):
    def __setattr__(self, name, value):
        super().__setattr__(name, value * 2)


@same_as_eager(inputs=lambda: (x4(), Checked(), Doubled()))
def test_classes_with_a_setattr_of_their_own(x, a, b):
    a.n = 3
    b.n = x
    return a.n, b.n, a, b


def append_default(x, seen=[]):
    seen.append(len(seen))
    return x + len(seen)


def test_default_arguments_are_remembered():
    def program(x):
        return append_default(x)

    compiled = cc.compile(program, backend="eager", strict=True)
    append_default.__defaults__[0].clear()
    got = [compiled(torch.zeros(1)).item() for _ in range(3)]
    assert got == [1, 2, 3]
    assert append_default.__defaults__[0] == [0, 1, 2]


@same_as_eager(changes=["COUNT"])
def test_global_deleted(x):
    global COUNT
    y = x + COUNT
    del COUNT
    print("COUNT" in globals())
    COUNT = 3
    return y


def read_after_write(d, x):
    d["factor"] = 5.0
    return x * factor


def write_of_a_called_function(d, x):
    d.update(factor=5.0)
    return read_factor(x)


def write_of_the_global(d, x):
    global factor
    factor = 7.0
    return x * d["factor"]


@pytest.mark.parametrize("program", [read_after_write, write_of_a_called_function, write_of_the_global])
@pytest.mark.parametrize("first_its_own", [False, True])
def test_argument_that_is_the_globals(program, first_its_own):
    space = {"__builtins__": __builtins__, "__name__": "space", "factor": 2.0}
    exec("def read_factor(x):\n    return x * factor", space)
    plain, x = types.FunctionType(program.__code__, space), x4()
    compiled = cc.compile(plain, backend="eager", strict=True)
    compiled(space if first_its_own else {"factor": 1.0}, x)
    results = []
    for function in (plain, compiled):
        space["factor"] = 2.0
        results.append((function(space, x), space["factor"]))
    assert torch.equal(results[0][0], results[1][0])
    assert results[0][1] == results[1][1] != 2.0
