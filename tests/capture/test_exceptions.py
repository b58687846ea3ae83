"""Symbolic exceptions: raised and rebuilt."""

from __future__ import annotations

import pytest

from compiler_core.capture.values.base import ObservedException, observed_exception
from compiler_core.capture.values.user.exceptions import ExceptionValue, exception_value, make_exception


def test_observed_exception_has_a_value() -> None:
    error = observed_exception(KeyError, "k")
    assert isinstance(error, ObservedException)
    result = exception_value(error)
    assert isinstance(result, ExceptionValue)
    assert error.exception is result is exception_value(error)
    assert str(error) == f"exception: {result}"
    assert error.matches(LookupError)
    assert not error.matches(ValueError)
    assert error.kind == "exception"


class Coded(ValueError):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@pytest.mark.parametrize("error", [ValueError("a", 1), KeyError("k"), StopIteration(3), Coded(3, "bad")])
def test_an_exception_is_reconstructed(error: BaseException) -> None:
    result = make_exception(type(error), error.args, vars(error))
    assert type(result) is type(error)
    assert (result.args, str(result), vars(result)) == (error.args, str(error), vars(error))
    assert getattr(result, "value", None) == getattr(error, "value", None)
