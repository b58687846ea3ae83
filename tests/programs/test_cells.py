# mypy: ignore-errors
# ruff: noqa
"""What notebooks do with classes and functions that they define themselves, compared with eager.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

from __future__ import annotations

import functools

import torch

from compiler_core.tools.testing import same_as_eager


def logged(fn):
    @functools.wraps(fn)
    def inner(*args, **kwargs):
        LOG.append(fn.__name__)
        return fn(*args, **kwargs) + 1

    return inner


LOG = []


@logged
def doubled(x):
    return x * 2


@logged
@logged
def wrapped_twice(x):
    return doubled(x) * 3


@same_as_eager(graphs=1, breaks=[])
def test_names_of_wrapped_functions(x):
    LOG.clear()
    y = wrapped_twice(x)
    return y, list(LOG), doubled.__name__, wrapped_twice.__qualname__


class Scaled:
    by = 3.0

    def __call__(self, x):
        return x * self.by


SCALED = Scaled()


@same_as_eager(graphs=1, breaks=[])
def test_deleted_attribute_uncovers_the_class_s(x):
    SCALED.by = 5.0
    y = SCALED(x)
    del SCALED.by
    return y, SCALED(x)


@same_as_eager(breaks=[], graphs=1)
def test_class_attribute_set_in_the_frame(x):
    Scaled.by = 4.0
    y = SCALED(x)
    return y


class Meta(type):
    def __call__(cls, *args):
        return super().__call__(*args)


class MadeByMeta(metaclass=Meta):
    def __init__(self, x):
        self.x = x


@same_as_eager(graphs=1, breaks=[])
def test_class_with_a_metaclass_that_calls(x):
    return MadeByMeta(x + 1).x * 2


_ = torch.ones(4)
_2 = torch.ones(4) * 2


@same_as_eager(graphs=1, breaks=[])
def test_inputs_whose_names_are_no_identifiers(x):
    return x + _2 * _
