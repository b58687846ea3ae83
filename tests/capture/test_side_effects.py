# mypy: ignore-errors
# (the programs stand for users' code, which has no annotations)
"""Changes of outside objects are the same as in Python, in captured code and across breaks."""

from __future__ import annotations

import types

import pytest
import torch

import compiler_core as cc
from compiler_core.tools.testing import same_as_eager

COUNT = 0
LOG: list[object] = []
TABLE = {"a": 1}


class Box:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def bump(self):
        self.n += 1
        return self.n


def x4():
    return torch.randn(4)


@same_as_eager(breaks=[], inputs=lambda: (x4(), [1, 2]))
def test_argument_list(x, items):
    items.append(x + 1)
    items[0] = 5
    items += [7]
    del items[1]
    return items, len(items)


@same_as_eager(breaks=[], inputs=lambda: (x4(), []))
def test_a_tensor_that_was_just_appended_is_an_argument(x, items):
    items.append(x.sin())
    return torch.cat(items), torch.stack(items).sum()


@same_as_eager(breaks=[], inputs=lambda: (x4(), {"a": 1, "b": 2}))
def test_argument_dict(x, d):
    d["c"] = x * 2
    d["a"] += 1
    del d["b"]
    d.setdefault("e", []).append(3)
    return list(d), d


@same_as_eager(breaks=[], inputs=lambda: (x4(), Box(n=1, items=[1])))
def test_object_attributes(x, box):
    box.n += 1
    box.new = x * box.n
    box.items.append(box.n)
    del box.n
    return box.new + 1, hasattr(box, "n"), box


@same_as_eager(breaks=[], inputs=lambda: (x4(), Box(n=1)))
def test_object_method_changes_it(x, box):
    return x + box.bump() + box.bump(), box.n


@same_as_eager(breaks=[], changes=["COUNT", "LOG"])
def test_globals(x):
    global COUNT
    COUNT += 1
    LOG.append(COUNT)
    y = x + COUNT
    COUNT = COUNT * 2
    return y, COUNT


def add_to_count(n):
    global COUNT
    COUNT = COUNT + n
    return COUNT


@same_as_eager(breaks=[], changes=["COUNT"])
def test_globals_of_a_callee(x):
    a = add_to_count(2)
    return x + a + COUNT, add_to_count(3)


@same_as_eager(breaks=["print"], changes=["COUNT", "TABLE"])
def test_globals_seen_by_a_callee_at_a_break(x):
    global COUNT
    COUNT = 5
    TABLE["b"] = x + 1
    print(COUNT, add_to_count(1))
    return x + COUNT, TABLE["b"]


@same_as_eager(changes=["COUNT"])
def test_global_deleted(x):
    global COUNT
    y = x + COUNT
    del COUNT
    print("COUNT" in globals())
    COUNT = 3
    return y


def counter():
    n = 0

    def step():
        nonlocal n
        n += 1
        return n

    return step


@same_as_eager(breaks=[], inputs=lambda: (x4(), counter()))
def test_closure_from_outside(x, step):
    return x + step() + step()


def test_free_variables_of_the_frame():
    def make():
        n, log = 0, []

        def program(x):
            nonlocal n
            n += 1
            log.append(n)
            return x + n

        return program, lambda: (n, log)

    import compiler_core as cc

    (plain, look), (other, look_too) = make(), make()
    compiled = cc.compile(other, backend="eager", strict=True)
    for _ in range(3):
        x = torch.randn(3)
        assert torch.equal(plain(x), compiled(x))
    assert look() == look_too() == (3, [1, 2, 3])


@same_as_eager(breaks=[], inputs=lambda: (x4(), [1], [2]))
def test_swap(x, a, b):
    a[0], b[0] = b[0], a[0]
    return x + a[0], a, b


@same_as_eager(breaks=[], inputs=lambda: (x4(), Box(left=[1], right=[2])))
def test_swap_attributes(x, box):
    box.left, box.right = box.right, box.left
    return x + 1, box.left, box


def aliased():
    items = [1]
    return x4(), items, items


@same_as_eager(breaks=[], inputs=aliased)
def test_two_names_of_one_list(x, a, b):
    a.append(2)
    return x + len(b), a is b


@same_as_eager(breaks=[], inputs=lambda: (x4(), [[1], [2]]))
def test_nested_lists(x, rows):
    for row in rows:
        row.append(len(rows))
    rows.append(rows[0])
    rows[0][0] = x + 1
    return rows


@same_as_eager(breaks=[], inputs=lambda: (x4(), []))
def test_inner_object_put_outside(x, items):
    inner = {"x": x + 1}
    items.append(inner)
    items.append(inner)
    inner["y"] = items
    return inner["x"]


@same_as_eager(breaks=["print"], inputs=lambda: (x4(), [1], {"k": [0]}, Box(n=1)))
def test_before_and_after_a_break(x, items, d, box):
    items.append(x + 1)
    d["k"].append(2)
    box.n = items
    print(len(items), d["k"], box.n is items)
    items.pop()
    d["k"][0] = len(items)
    box.m = d
    return x * 2


@same_as_eager(breaks=["print"], inputs=lambda: (x4(), [1]))
def test_read_before_and_stored_after(x, items):
    first = items[0]
    items[0] = 7
    items.insert(0, first)
    print(first)
    return first, items, x + 1


@same_as_eager(breaks=[], inputs=lambda: (x4(), Box(a=1, b=[3])))
def test_old_values_are_returned(x, box):
    a, b = box.a, box.b
    box.a, box.b = 2, None
    return a, b, x + 1


def note(items, x):
    items.append(1)
    print("noted")
    items.append(2)
    return x + len(items)


@same_as_eager(breaks=["print"], inputs=lambda: (x4(), []))
def test_a_callee_changes_things_before_it_breaks(x, items):
    return note(items, x) * 2


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_input_and_output_changed(x, y):
    z = x.add_(1)
    y.copy_(x)
    w = x + 1
    w.mul_(2)
    return z, w, y, x


@same_as_eager(breaks=["print"])
def test_tensor_changed_across_a_break(x):
    y = x.clone()
    v = y[0]
    y.add_(1)
    print("between")
    y.mul_(2)
    return v, y


@same_as_eager(breaks=[], inputs=lambda: (x4(), types.SimpleNamespace(n=1)))
def test_simple_namespace(x, space):
    return x + 1, space


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


@same_as_eager(breaks=[], changes=["LOG"])
def test_global_list_replaced(x):
    global LOG
    LOG.append(1)
    LOG = [*LOG, 2]
    LOG.append(3)
    return x + len(LOG)


def test_default_arguments_are_remembered():
    def program(x):
        return append_default(x)

    compiled = cc.compile(program, backend="eager", strict=True)
    append_default.__defaults__[0].clear()
    got = [compiled(torch.zeros(1)).item() for _ in range(3)]
    assert got == [1, 2, 3]
    assert append_default.__defaults__[0] == [0, 1, 2]


@same_as_eager(inputs=lambda: (x4(), {1, 2}))
def test_outside_set(x, s):
    s.add(3)
    return x + len(s), 3 in s


@same_as_eager(breaks=[], inputs=lambda: (x4(), [3, 1, 2]))
def test_sort_outside(x, items):
    items.sort(reverse=True)
    items.reverse()
    return x + items[0]


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
