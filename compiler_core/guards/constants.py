"""Comparison of Python constants for guards: by type and value, with NaN equal to NaN and 0.0 different from -0.0."""

from __future__ import annotations

import datetime
import decimal
import fractions
import math
import pathlib
import re
import sys
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

NUMPY_NUMBERS: tuple[Any, ...] = ()
if (_numpy := sys.modules.get("numpy")) is not None:  # PyTorch imports numpy if it is installed
    NUMPY_NUMBERS = (_numpy.number, _numpy.bool_)


LIBRARY_CONSTANTS: tuple[Any, ...] = (
    decimal.Decimal, fractions.Fraction, datetime.timedelta, datetime.date, datetime.time, datetime.datetime, uuid.UUID,
    re.Pattern, pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath, pathlib.WindowsPath,
)  # fmt: skip
"""Types of immutable objects of the standard library, which are constants, too."""


def dict_keys(obj: dict[Any, Any]) -> Iterable[Any]:
    """Returns the keys of a dict without calling methods that its class overrides."""
    return (OrderedDict if isinstance(obj, OrderedDict) else dict).keys(obj)


def same_keys(found: Iterable[Any], wanted: Sequence[Any]) -> bool:
    """Whether the keys are the same, in the same order.  1, True and 1.0 are different keys."""
    keys = list(found)
    return len(keys) == len(wanted) and all(a is b or same_constant(a, b) for a, b in zip(keys, wanted, strict=True))


def may_be_distinct_objects(a: Any, b: Any) -> bool:
    """Whether two constants that are equal may be two objects.  CPython interns short strings and small ints."""
    if (type(a) in (str, bytes) and len(a) < 2) or (type(a) is int and -5 <= a <= 256):
        return False
    kinds = (str, bytes, int, float, complex)
    return (type(a) in kinds or type(a) in LIBRARY_CONSTANTS) and same_constant(a, b)


def same_constant(a: Any, b: Any) -> bool:
    """Whether two constants are equal for a guard: of the same type, with NaN equal to NaN and 0.0 unlike -0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        return same_keys(a, b)
    if isinstance(a, NUMPY_NUMBERS):
        return bool(a.tobytes() == b.tobytes())
    if isinstance(a, float):
        return (a != a and b != b) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if type(a) in LIBRARY_CONSTANTS and type(a) is not re.Pattern:  # 1.0 and 1.00 are equal decimals
        return repr(a) == repr(b)
    return bool(a == b)
