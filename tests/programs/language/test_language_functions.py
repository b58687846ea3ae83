# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which has no annotations and does odd things)
"""Functions: arguments, closures, decorators, partial, attributes.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import functools

import torch

from compiler_core.tools.testing import same_as_eager


def noted(log):
    def decorate(fn):
        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            log.append(fn.__name__)
            return fn(*args, **kwargs)

        return wrapper

    return decorate


@same_as_eager(graphs=1, breaks=[])
def test_decorators(x):
    log = []

    @noted(log)
    @noted(log)
    def double(v: float, *, k=2) -> float:
        """Twice."""
        return v * k

    return double(x), double(x, k=3), log, double.__name__, double.__doc__, double.__wrapped__.__name__


@same_as_eager(graphs=1, breaks=[])
def test_attributes_of_a_function(x):
    def f(a, b=1, *, c=2):
        """Doc."""

    f.note = "kept"
    f.__name__ = "renamed"
    try:
        f.nothing
    except AttributeError as e:
        message = str(e)
    return x + 1, f, f.note, f.__doc__, f.__dict__, hasattr(f, "note"), hasattr(f, "zz"), message, f.__module__


def outer_function(v, k=1):
    return v + k


outer_function.flag = 7


@same_as_eager(graphs=1, breaks=[])
def test_partial(x):
    add = functools.partial(outer_function, k=5)
    more = functools.partial(add, k=6)
    return add(x), more(x), add(x, k=1), add.func is outer_function, add.args, functools.partial(max, 3)(1, 2)


@same_as_eager(graphs=1, breaks=[])
def test_higher_order(x):
    def compose(*fs):
        return functools.reduce(lambda f, g: lambda v: g(f(v)), fs)

    return compose(torch.sin, lambda v: v * 2, torch.cos)(x), list(map(lambda a, b: a + b, [1, 2], [3, 4]))


def twice(f):
    return f, f


@same_as_eager(graphs=1, breaks=[])
def test_identity_of_functions(x):
    a, b = twice(outer_function)
    return x + 1, a is b, a == b, a is outer_function, a != twice, {outer_function: 1}[a]


@same_as_eager(graphs=1, breaks=[])
def test_bound_builtin_methods(x):
    log = []
    note = log.append
    note(1)
    "a b".split().sort()
    up = "abc".upper
    return x + 1, log, up(), note.__self__ is log, list(map(str.upper, "ab"))


@same_as_eager(graphs=1, breaks=[])
def test_generator_and_lambda_in_class_like_dict(x):
    ops = dict(add=lambda a, b: a + b, rep=lambda a, n: [a for _ in range(n)])
    return ops["add"](x, 1), ops["rep"](2, 3)


@same_as_eager(graphs=1, breaks=[])
def test_argument_names_that_hide(x):
    def f(self, args, kwargs, len=3):
        return self + args + kwargs + len

    return f(x, kwargs=1, args=2)
