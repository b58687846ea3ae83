"""What checks a task of the learner: an answer, on cases that the learner does not see, and its misconceptions.

A case is the arguments of a call.  A misconception is known by what an answer with it gives for some of the cases.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

MAX_SHOWN = 200
"""The number of characters of a value that are shown."""


@dataclass(frozen=True)
class Misconception:
    """A known wrong idea: how it shows, and what to say of it."""

    thought: str
    """What the learner probably thought, and what is true instead."""
    signs: Mapping[str, Any]
    """What an answer with this idea gives for some cases: a value, or a function that says whether a value is such."""


@dataclass(frozen=True)
class Raised:
    """The result of an answer that raised an exception."""

    text: str

    def __repr__(self) -> str:
        return f"raised {self.text}"


def check(
    answer: Callable[..., Any],
    cases: Mapping[str, tuple[Any, ...]],
    right: Callable[..., Any] | Mapping[str, Any],
    misconceptions: Sequence[Misconception] = (),
) -> None:
    """Raises an AssertionError that says what is wrong, unless the answer gives the right value for all cases.

    `cases` has the arguments of each call by a text that describes it, the smallest case first.  `right` has the right
    value of each case, or computes it.  The message is that of the first misconception all of whose signs the answer
    shows, each in a case that it gets wrong; it ends with the first such case.  An answer that shows none gets the
    smallest case that is wrong.
    """
    expected = right if isinstance(right, Mapping) else {name: right(*arguments) for name, arguments in cases.items()}
    got = {name: _result(answer, arguments) for name, arguments in cases.items()}
    wrong = [name for name in cases if not are_equal(got[name], expected[name])]
    if not wrong:
        return
    count = f"{len(cases) - len(wrong)} of {len(cases)} cases are right."
    for each in misconceptions:
        if all(name in wrong and _shows(got[name], sign) for name, sign in each.signs.items()):
            shown = next(iter(each.signs))
            raise AssertionError(f"{count}\n{each.thought}\n{_difference(shown, got[shown], expected[shown])}")
    first = wrong[0]
    raise AssertionError(f"{count} The smallest that is not:\n{_difference(first, got[first], expected[first])}")


def on_its_own(answer: Callable[..., Any], package: str = "compiler_core") -> Callable[..., Any]:
    """Returns a function that calls `answer`, and raises an error if code of the package ran in the call."""

    def call(*arguments: Any) -> Any:
        asked: list[str] = []

        def note(frame: FrameType, event: str, _: object) -> None:
            if event == "call" and str(frame.f_globals.get("__name__")).partition(".")[0] == package:
                asked.append(frame.f_code.co_name)

        before = sys.getprofile()
        sys.setprofile(note)
        try:
            result = answer(*arguments)
        finally:
            sys.setprofile(before)
        if asked:
            raise RuntimeError(f"it asks {package}")
        return result

    return call


def are_equal(one: Any, other: Any) -> bool:
    """Returns whether two values are equal; elements of tensors may differ as `torch.allclose` allows."""
    import torch

    if isinstance(other, torch.Tensor):
        if not isinstance(one, torch.Tensor) or one.shape != other.shape or one.dtype != other.dtype:
            return False
        return torch.allclose(one, other, equal_nan=True, rtol=1e-4, atol=1e-5)
    if isinstance(other, list | tuple):
        return isinstance(one, list | tuple) and len(one) == len(other) and all(map(are_equal, one, other))
    if isinstance(other, Mapping):
        return isinstance(one, Mapping) and one.keys() == other.keys() and all(are_equal(one[k], other[k]) for k in one)
    return type(one) is type(other) and bool(one == other)


def _result(answer: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return answer(*arguments)
    except Exception as error:
        return Raised(f"{type(error).__name__}: {error}")


def _shows(value: Any, sign: Any) -> bool:
    if not callable(sign):
        return are_equal(value, sign)
    with contextlib.suppress(Exception):  # the value of an answer may be anything
        return bool(sign(value))
    return False


def _difference(case: str, yours: Any, right: Any) -> str:
    if isinstance(yours, Mapping) and isinstance(right, Mapping):
        names = [name for name in right if name not in yours or not are_equal(yours[name], right[name])]
        yours, right = ({name: values.get(name) for name in names} for values in (yours, right))
    return f"{case}:\n  yours {_short(yours)}\n  right {_short(right)}"


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."
