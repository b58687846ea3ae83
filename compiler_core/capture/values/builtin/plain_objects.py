"""Immutable objects of the standard library that are constants for capture: dates, fractions, paths, patterns.

What they compute is known at capture, except for what also depends on the file system, the clock, the time zone or the
context of decimal arithmetic: those attributes and operations break the graph.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import operator
import pathlib
from collections.abc import Sequence
from typing import Any

from compiler_core.errors import Unsupported
from compiler_core.guards.constants import LIBRARY_CONSTANTS

_CLOCKED = frozenset("today now utcnow fromtimestamp utcfromtimestamp timestamp astimezone strftime".split())
"""Methods of dates that depend on the clock, the time zone or the locale."""
_EXACT = frozenset({
    "as_tuple", "as_integer_ratio", "is_finite", "is_infinite", "is_nan", "is_signed", "is_zero", "real", "imag",
    "__class__", "__float__", "__int__", "__hash__", "__bool__",
})  # fmt: skip
"""Attributes of decimals that do not depend on the context of decimal arithmetic."""
_EXACT_FUNCTIONS = frozenset(
    {operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, float, int, bool, hash}
)

CONSTRUCTORS: tuple[Any, ...] = (
    fractions.Fraction, datetime.timedelta, datetime.date, datetime.time, datetime.datetime,
    pathlib.PurePath, pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.Path,
)  # fmt: skip
"""Classes whose calls depend only on their arguments."""


def is_plain_object(obj: Any) -> bool:
    """Whether `obj` is of such a type; a time with a time zone, whose rules may change, is not."""
    return type(obj) in LIBRARY_CONSTANTS and getattr(obj, "tzinfo", None) is None


def check_attribute(obj: Any, name: str) -> None:
    """Raises Unsupported if an attribute of a plain object depends on more than the object."""
    impure = name in _CLOCKED if isinstance(obj, (datetime.date, datetime.time)) else False
    if isinstance(obj, pathlib.PurePath):
        impure = name not in dir(pathlib.PurePath)
    if isinstance(obj, decimal.Decimal):
        impure = name not in _EXACT
    if impure:
        raise Unsupported(
            "unsupported attribute", f"{type(obj).__name__}.{name}, which depends on more than the object"
        )


def check_arguments(function: Any, arguments: Sequence[Any]) -> None:
    """Raises Unsupported for calls that depend on the context of decimal arithmetic, or on the locale."""
    types = {type(each) for each in arguments}
    if decimal.Decimal in types and (float in types or function not in _EXACT_FUNCTIONS):
        raise Unsupported("unsupported operation", "decimal arithmetic, which depends on its context")
    if function is format and isinstance(arguments[0], (datetime.date, datetime.time)) and any(arguments[1:]):
        raise Unsupported("unsupported operation", "the format of a date, which depends on the locale")
