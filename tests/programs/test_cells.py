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


_ = torch.ones(4)
