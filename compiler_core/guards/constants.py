"""Comparing Python constants as guards do: by type and value, NaN equal to NaN, 0.0 different from -0.0."""

from __future__ import annotations

import math
import sys
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

NUMPY_NUMBERS: tuple[Any, ...] = ()
if (_numpy := sys.modules.get("numpy")) is not None:  # PyTorch imports it where it is installed
    NUMPY_NUMBERS = (_numpy.number, _numpy.bool_)


def keys_of(obj: dict[Any, Any]) -> Iterable[Any]:
    """The keys of a dict, whatever the methods of its class."""
    return (OrderedDict if isinstance(obj, OrderedDict) else dict).keys(obj)


def same_keys(found: Iterable[Any], wanted: Sequence[Any]) -> bool:
    """The same keys in the same order, 1 told from True and 1.0."""
    keys = list(found)
    return len(keys) == len(wanted) and all(a is b or same_constant(a, b) for a, b in zip(keys, wanted, strict=True))


def may_be_two(a: Any, b: Any) -> bool:
    """Whether these constants are equal, and may still be two objects."""
    if (type(a) in (str, bytes) and len(a) < 2) or (type(a) is int and -5 <= a <= 256):  # Python keeps one of each
        return False
    return type(a) in (str, bytes, int, float, complex) and same_constant(a, b)


def same_constant(a: Any, b: Any) -> bool:
    """Equal for a guard: same type, and NaN equals NaN, and 0.0 differs from -0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        return same_keys(a, b)
    if isinstance(a, NUMPY_NUMBERS):
        return bool(a.tobytes() == b.tobytes())
    if isinstance(a, float):
        return (a != a and b != b) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return bool(a == b)
