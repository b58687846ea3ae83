# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which does odd things)
"""What Python checks of the results of special methods: a ``__bool__`` that returns no bool, a negative length ..."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import compiler_core
from tests.sampling import sample


def user(*names: str) -> type:
    """Returns a class whose special methods return what an instance was made with."""
    body: dict[str, Any] = {name: lambda self, *_: self.result for name in names}
    body["__init__"] = lambda self, result: setattr(self, "result", result)
    return type("User", (), body)


def branch(obj: Any) -> int:
    return 1 if obj else 2


def loop(obj: Any) -> int:
    count = 0
    while obj:
        count += 1
        if count == 2:
            break
    return count


def check(obj: Any) -> int:
    assert obj
    return 1


def unpack(obj: Any) -> Any:
    first, second = obj
    return first


TRUTH: tuple[Callable[[Any], Any], ...] = (
    *(bool, branch, loop, check, operator.truth, operator.not_),
    lambda obj: not obj,
    lambda obj: (obj and 3) == 3,
    lambda obj: all([obj]),
    lambda obj: any([obj]),
    lambda obj: len(list(filter(None, [obj]))),
)
INDEX: tuple[Callable[[Any], Any], ...] = (
    *(operator.index, hex, int, chr, float, complex),
    lambda obj: len(range(obj)),
    lambda obj: list(range(obj))[:3],
    lambda obj: [1, 2, 3][obj],
    lambda obj: [1, 2, 3][:obj],
    lambda obj: [1] * obj if obj.result != 2**70 else 0,
    lambda obj: round(1.234, obj),
)
TEXT: tuple[Callable[[Any], Any], ...] = (str, format, lambda obj: f"{obj}", lambda obj: "%s" % obj, "{}".format)
ITERATION: tuple[Callable[[Any], Any], ...] = (
    *(list, tuple, sum, unpack),
    lambda obj: list(iter(obj)),
    lambda obj: [each for each in obj],
    lambda obj: [*obj],
    lambda obj: list(zip(obj)),
)
METHODS: dict[str, tuple[Callable[[Any], Any], ...]] = {
    "__bool__": TRUTH,
    "__len__": (*TRUTH, len),
    "__index__": INDEX,
    "__int__": (int,),
    "__float__": (float, complex),
    "__complex__": (complex,),
    "__str__": TEXT,
    "__repr__": (repr, *TEXT, lambda obj: f"{obj!r}"),
    "__format__": (format, lambda obj: f"{obj}", "{}".format),
    "__bytes__": (bytes,),
    "__hash__": (hash, lambda obj: len({obj}), lambda obj: len({obj: 1})),
    "__iter__": ITERATION,
    "__contains__": (lambda obj: 3 in obj, lambda obj: 3 not in obj),
    "__length_hint__": (operator.length_hint,),
}
RESULTS = (2, "x", None, -1, 1.5, True, 2**70, [])


def outcome(run: Callable[[torch.Tensor], Any]) -> tuple[str, str]:
    try:
        return "returned", repr(run(torch.ones(2)))
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", sample(METHODS, 2))
def test_the_results_of_special_methods_are_checked_as_by_python(name: str) -> None:
    for number, use in enumerate(METHODS[name]):
        cls = user(name)
        for result in RESULTS[number % 2 :: 2]:  # each use has half of them

            def program(x: torch.Tensor) -> Any:
                x.sin()
                used = use(cls(result))
                return used if not isinstance(used, cls) else "itself"

            with compiler_core.record() as record:
                got = outcome(compiler_core.compile(program, backend="eager"))
            assert got == outcome(program), f"operation {number} of {name}, which returns {result!r}"
            assert not [failure.message for c in record.compiles for failure in c.failures]
