"""Exceptions raised and caught while capturing."""

from __future__ import annotations

import pytest

from compiler_core.capture.values.base import Raised, raised
from compiler_core.capture.values.exceptions import ExceptionValue, make_exception


def test_raised_carries_a_value() -> None:
    error = raised(KeyError, "k")
    assert isinstance(error, Raised)
    assert isinstance(error.exception, ExceptionValue)
    assert error.matches(LookupError)
    assert not error.matches(ValueError)
    assert error.kind == "exception"


class Coded(ValueError):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@pytest.mark.parametrize("error", [ValueError("a", 1), KeyError("k"), StopIteration(3), Coded(3, "bad")])
def test_an_exception_is_rebuilt(error: BaseException) -> None:
    made = make_exception(type(error), error.args, vars(error))
    assert type(made) is type(error)
    assert (made.args, str(made), vars(made)) == (error.args, str(error), vars(error))
    assert getattr(made, "value", None) == getattr(error, "value", None)
