# mypy: ignore-errors
# ruff: noqa
"""Programs that ask classes about themselves: their attributes and subclasses.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import functools
import gc
import weakref

import torch

import compiler_core as cc
from compiler_core.api.compile import record_of
from compiler_core.tools.testing import same_as_eager

one_graph = functools.partial(same_as_eager, graphs=1, breaks=[])


class Rates:
    low = 2
    high = 3.0

    def rate(self):
        return 4

    @staticmethod
    def fixed():
        return 5

    @property
    def shown(self):
        return 6


class Slow(Rates):
    high = 7.0


@one_graph()
def test_subclasses(x):
    for cls in Rates.__subclasses__():
        x = x * cls.high
    return x, [cls.__name__ for cls in type.__subclasses__(Rates)], Slow.__subclasses__()


def calls(fn, *changes):
    compiled, x = cc.compile(fn), torch.ones(2)
    torch.testing.assert_close(compiled(x), fn(x))
    for change in changes:
        change()
        torch.testing.assert_close(compiled(x), fn(x), rtol=0, atol=0)
    record = record_of(compiled)
    assert not [b for c in record.compiles for b in c.breaks]
    return len(record.compiles)


def test_dict_of_a_class_that_changes():
    class Made:
        __qualname__ = "Made"  # as of a class of a module
        a = 2.0

    def fn(x):
        return x * sum(v for v in Made.__dict__.values() if isinstance(v, float)) + len(Made.__dict__)

    assert calls(fn, lambda: setattr(Made, "a", 5.0), lambda: setattr(Made, "b", 3.0), lambda: delattr(Made, "a")) == 4


def test_functions_in_the_dict_of_a_class_that_changes():
    class Made:
        __qualname__ = "Made"

        def scale(self):
            return 2

    assert calls(lambda x: x * Made.__dict__["scale"](None), lambda: setattr(Made, "scale", lambda self: 7)) == 2


def test_escaped_dict_of_a_class_is_live():
    class Made:
        a = 2.0

    compiled = cc.compile(lambda x: (x + 1, Made.__dict__))
    for _ in range(2):
        found = compiled(torch.ones(1))[1]
    Made.later = 1
    assert found["later"] == 1


def test_subclasses_are_not_kept():
    class Base:
        pass

    Made = type("Made", (Base,), {})
    compiled = cc.compile(lambda x: x * len(Base.__subclasses__()))
    assert compiled(torch.ones(1)).item() == 1
    gone = weakref.ref(Made)
    del Made
    gc.collect()
    assert gone() is None
    assert compiled(torch.ones(1)).item() == 0
