# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which has no annotations and does odd things)
"""The modules copy and inspect.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import copy
import inspect

import torch

from compiler_core.tools.testing import same_as_eager


class Config:
    def __init__(self, **kwargs):
        self.sizes = [1, 2]
        self.names = {"a": (1, 2)}
        self.scale = 2.0
        self.__dict__.update(kwargs)


class Counted:
    made = 0

    def __init__(self, n):
        self.n = n

    def __deepcopy__(self, memo):
        return Counted(self.n + 1)


def config():
    return Config(inner=Config(name="inner"), kind=None)


class Asked:
    """Has a ``__getattr__`` that tells when it is called, and fails as many do for names that copying asks for."""

    def __init__(self, fails):
        self.fails = fails
        self.log = []

    def __getattr__(self, name):
        print(name)
        raise self.__dict__["fails"](name)


@same_as_eager(inputs=[lambda e=e: (Asked(e), torch.ones(2)) for e in (AttributeError, KeyError)])
def test_copy_asks_for_methods(asked, x):
    found = []
    for function in (copy.copy, copy.deepcopy):
        try:
            found.append(function(asked))
        except KeyError as error:
            found.append(str(error))
    return x * len(asked.log), found


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_copy_containers(x):
    a = [x, [1]]
    b = copy.copy(a)
    d = {"a": a}
    t = (1, x)
    s = {1, 2}
    return b, b is a, b[1] is a[1], copy.copy(d), copy.copy(t) is t, copy.copy(s), copy.copy("s"), x + 1


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_deepcopy_containers(x):
    a = [1, {"k": [2.5, (3, "s")]}, None]
    a.append(a[1])
    b = copy.deepcopy(a)
    b[1]["k"].append(4)
    t = (1, "a")
    u = ([1], 2)
    return a, b, b[3] is b[1], copy.deepcopy(t) is t, copy.deepcopy(u) is u, x + 1


@same_as_eager(graphs=1, breaks=["unsupported call"], grad=True)
def test_deepcopy_of_a_leaf(x):
    return copy.deepcopy([x]), x * 2


@same_as_eager(graphs=2, breaks=["unsupported call"])
def test_deepcopy_of_two_tensors_that_share_memory(x):
    y = x.view(-1)
    a, b = copy.deepcopy([x, y])
    a.add_(1)
    return b


@same_as_eager(graphs=1, breaks=[], inputs=lambda: (torch.ones(2), config()))
def test_copy_config(x, c):
    d = copy.copy(c)
    d.scale = 3.0
    d.names["b"] = 1
    return x * d.scale, c.names, d.inner is c.inner


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_deepcopy_hook(x):
    return x + copy.deepcopy([Counted(1)])[0].n


class Restored:
    def __init__(self):
        self.n, self.items = 1, [1]

    def __setstate__(self, state):
        self.__dict__.update(state, n=state["n"] + 1)


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_copies_are_restored(x):
    a = Restored()
    b = copy.deepcopy([a, a, x.detach()])
    c = copy.copy(b[0])
    return x + c.n, b[0] is b[1], b[0].items is a.items, c.items is b[0].items, b[2]


def lists(shared):
    one = [1]
    return [one, one if shared else [1]], torch.ones(2)


@same_as_eager(inputs=[lambda: lists(False), lambda: lists(True), lambda: lists(False)])
def test_deepcopy_of_lists_that_are_one_in_a_later_call(pair, x):
    first, second = copy.deepcopy(pair)
    first.append(2)
    return x * 2, second


def takes(a, b=2, *args, c, **kwargs):
    return a


@same_as_eager(graphs=1, breaks=[], compiles=1)
def test_signature(x):
    parameters = inspect.signature(takes).parameters
    names = [p.name for p in parameters.values() if p.default is inspect.Parameter.empty]
    kinds = [p.kind == inspect.Parameter.VAR_POSITIONAL for p in parameters.values()]
    return x + len(parameters), names, kinds, "c" in parameters, "d" in parameters, list(parameters)
