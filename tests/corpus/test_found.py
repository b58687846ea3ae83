# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which has no annotations and does odd things)
"""What random programs, CPython's own tests and people found to differ from eager, made small.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import collections
import enum
import functools

import torch
import torch.nn.functional as F

from compiler_core.testing import same_as_eager

COUNT = 0
LOG = []


@same_as_eager(graphs=0, breaks=["tensor value read"], inputs=lambda: (torch.arange(3),))
def test_list_display_around_a_break(x):
    return [*x.tolist(), 0]


@same_as_eager(graphs=1, breaks=[], changes=["LOG"], inputs=lambda: (torch.randn(3), torch.tensor([5])))
def test_graph_fails_after_a_side_effect(x, i):
    LOG.append(1)
    return x[i]


@same_as_eager(graphs=1, breaks=[], changes=["LOG"], inputs=lambda: (torch.randn(3), torch.tensor([5])))
def test_graph_fails_inside_try(x, i):
    try:
        with torch.no_grad():
            return x[i] + 1
    except IndexError as error:
        LOG.append(str(error))
    return x.cos(), torch.is_grad_enabled()


@same_as_eager(graphs=1, breaks=[], inputs=lambda: (torch.randn(3), torch.tensor([5])))
def test_graph_fails_inside_no_grad(x, i):
    with torch.no_grad():
        return x[i] + 1


@same_as_eager(graphs=1, breaks=[], inputs=lambda: (torch.randn(3), torch.tensor([5])))
def test_graph_fails_after_drawing(x, i):
    y = torch.rand(3)
    try:
        return (x + y)[i]
    except IndexError:
        return y, torch.rand(3)


@same_as_eager(graphs=1, breaks=[], inputs=lambda: (torch.randn(3), torch.tensor([5]), [1], {"k": 2}))
def test_graph_fails_with_every_kind_of_argument(x, i, l, d):
    def inner(a, /, b, *rest, c=1, **more):
        l.append(a)
        try:
            return (x * d["k"])[b]
        except IndexError:
            return a, b, rest, c, more, l

    return inner(1, i, 2, 3, c=4, e=5)


@same_as_eager(graphs=1, breaks=[], inputs=lambda: (torch.randn(4), torch.randn(4, 4, dtype=torch.float64), [1]))
def test_sizes_agree_and_types_do_not(x, w, l):
    l.append(2)
    return F.linear(x, w)


@same_as_eager(graphs=1, breaks=[])
def test_merged_ordered_dicts(x):
    a, b = collections.OrderedDict(a=x), {"a": x + 1, "b": 2}
    return a | b, b | a, b | b, a | a


@same_as_eager(breaks=[], inputs=lambda: (torch.randn(3), 2.5))
def test_range_of_a_float(x, n):
    y = x + 1
    try:
        return range(n), y
    except TypeError as error:
        return str(error), y


class Plain:
    def __init__(self, n=1):
        self.n = n

    def add(self, x):
        return x + self.n


@same_as_eager(
    breaks=[],
    inputs=[lambda: (torch.ones(2), Plain().add), lambda: (torch.ones(2), Plain(2)), lambda: (torch.ones(2), 3)],
)
def test_method_or_something_else(x, m):
    return x + 1, m, [m, m]


def equal_functions():
    """Two functions with equal code and different globals, as two copies of a module have."""
    text = "def raises(x):\n    y = x + 1\n    print('here')\n    raise Wrong(str(y.sum().item()))\n"
    spaces = [{"Wrong": type("Wrong", (ValueError,), {})} for _ in range(2)]
    for space in spaces:
        exec(compile(text, "equal_functions.py", "exec"), space)
    return spaces


@same_as_eager(inputs=lambda: (torch.ones(2), equal_functions()))
def test_equal_code_with_other_globals(x, spaces):
    caught = []
    for space in spaces:
        try:
            space["raises"](x)
        except space["Wrong"] as error:
            caught.append(str(error))
    return caught


def shared_twice():
    i = 5

    def inner(x):
        c = [(lambda: i) for i in range(2)]
        return x + 1, i, [f() for f in c]

    return inner


def shared_once():
    i = 5

    def inner(x):
        c = [i * 2 for i in range(2)]
        return x + 1, i, c

    return inner


test_name_free_and_shared_by_a_comprehension = same_as_eager(breaks=[])(shared_twice())
test_name_free_and_of_a_comprehension = same_as_eager(graphs=1, breaks=[])(shared_once())


@same_as_eager(graphs=1, breaks=[])
def test_shared_name_of_a_comprehension(x):
    def g():
        return i

    i = "kept"
    c = [lambda: i for i in range(2)]
    i += "x"
    return x + 1, i, [f() for f in c], g()


@same_as_eager(inputs=[lambda: (torch.ones(1), {"a": [1]}), lambda: (torch.ones(1), {})])
def test_setdefault_of_a_key_that_was_there(x, d):
    return d.setdefault("a"), x + 1


@same_as_eager(inputs=[lambda: (torch.ones(1), {"a": 1}), lambda: (torch.ones(1), {})])
def test_key_that_was_there_inside_try(x, d):
    try:
        return d["a"], x + 1
    except KeyError:
        return "none", x


@same_as_eager(inputs=lambda: (torch.ones(1), Plain()))
def test_attribute_deleted_and_set_again(x, p):
    p.m = 1
    del p.n
    p.n = x + 1
    return p


@same_as_eager(inputs=lambda: (lambda p: (torch.ones(1), vars(p), p))(Plain()))
def test_object_beside_its_dict(x, d, p):
    p.n += 1
    d["a"] = 5
    p.n += 1
    return d["n"], p, x + 1


@same_as_eager(graphs=1, breaks=["unsupported call"])
def test_break_in_a_generator(x):
    def made():
        class Local:
            pass

        yield Local.__name__

    return next(made()), x + 1


class Shy(enum.IntFlag):
    A = 1

    def __repr__(self):
        LOG.append("repr")
        return "shy"


@same_as_eager(graphs=1, breaks=[], changes=["LOG"], inputs=lambda: (torch.ones(1), Shy.A, {Shy.A: 2}))
def test_guarded_value_with_a_repr_of_its_own(x, flag, d):
    return x + d[flag] if flag == Shy.A else x


class Meta(type):
    @functools.cached_property
    def prop(cls):
        LOG.append("prop")
        return 1


class Made(metaclass=Meta):
    pass


@same_as_eager(changes=["LOG"], breaks=["unsupported attribute"])
def test_descriptor_of_a_metaclass_is_left_to_python(x):
    try:
        return Made.prop, x + 1
    except TypeError as error:
        return str(error), x


@same_as_eager(graphs=1, breaks=[])
def test_class_lacks_an_attribute(x):
    return hasattr(Made, "nothing"), getattr(Made, "nothing", 1), x + 1
