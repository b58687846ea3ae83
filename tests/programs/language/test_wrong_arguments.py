# mypy: ignore-errors
# ruff: noqa
"""What Python and PyTorch raise for wrong arguments, by class and text, caught in the program and not.

PYTEST_DONT_REWRITE: programs are made of the expressions, one line each.
"""

import collections
import functools
import itertools
import linecache
import math
import operator

import pytest
import torch

from compiler_core.tools.testing import Expected, check

EXPRESSIONS = """
r = len(obj=[1])
r = {}.get(key=2)
r = {}.pop(key=1)
r = collections.deque([1]).append(item=2)
r = collections.deque(iterable=[1], maxlen=2)
r = getattr(x, name="shape")
r = isinstance(obj=x, classes=int)
r = set(obj=[1])
r = bool(obj=1)
r = next(iterator=iter([1]))
r = functools.reduce(function=operator.add, iterable=[1])
r = operator.add(left=1, right=2)
r = list(itertools.repeat(object=1, times=2))
r = ",".join(3)
r = "".join(iterable=["a"])
print(*3)
r = dict(**3)
r = [*3]
r = {**3}
a, b = 3
a, *b = None
r = reversed(3)
r = reversed({1})
r = iter(3, 4)
r = iter(x, 1)
r = isinstance(1, 3)
r = isinstance(1, [int])
r = isinstance(1, list[int])
r = issubclass(1, int)
r = getattr(1, 2)
r = hasattr(x, 1)
setattr(x, 1, 2)
r = functools.reduce(operator.add, 3)
r = itertools.count("a")
r = itertools.count([1])
r = itertools.repeat(1, "a")
r = itertools.islice([1], 1, 2, 0)
r = itertools.combinations([1], -1)
r = itertools.product([1], repeat="a")
r = itertools.tee([1], -1)
r = map(abs)
r = min()
r = enumerate([1], "a")
r = [1, 2][::0]
del [1, 2][::0]
[1].__setitem__(slice(0, 1), 3)
r = collections.deque([1], maxlen=-1)
r = collections.deque([1], maxlen="a")
r = collections.deque([1])["a"]
r = collections.OrderedDict([1])
r = collections.defaultdict(3)
r = dict(1, 2)
r = torch.Size(["a"])
r = x.size(5)
r = x.stride("a")
r = x.is_contiguous(memory_format=1)
r = x.shape.nope
r = x.dtype.nope
r = collections.deque().nope
""".split("\n")[1:-1]


def program_of(line, is_caught):
    """Returns a program with this line, which returns what it raises if that is caught."""
    lines = ["def program(x):", "    y = x + 1", f"    {line}", "    return y"]
    if is_caught:
        caught = ["    except Exception as error:", "        return y, type(error).__name__, str(error)"]
        lines = [*lines[:2], "    try:", f"        {line}", *caught, "    return y"]
    filename = f"<wrong arguments {EXPRESSIONS.index(line)}{' caught' * is_caught}>"
    text = "\n".join(lines) + "\n"
    linecache.cache[filename] = len(text), None, text.splitlines(True), filename
    scope = dict(globals())
    exec(compile(text, filename, "exec"), scope)
    return scope["program"]


@pytest.mark.parametrize("line", EXPRESSIONS)
def test_the_program_gets_pythons_error(line):
    for is_caught in (True, False):
        check(program_of(line, is_caught), lambda: [torch.ones(2, 2)])


def test_text_of_a_tensor_is_not_that_of_the_fake_one():
    check(lambda x: (x + 1, "%s" % x, "%r" % x, "%s %d" % (x, 1), f"{x}"), lambda: [torch.ones(2)])
    check(lambda x: (x + 1, torch.typename(x)), lambda: [torch.ones(2)])


def test_reversed_tensor_is_a_tensor():
    check(lambda x: (reversed(x) * 2, [r + 1 for r in reversed(x)], reversed(x[0][0])), None, Expected(1, []))
