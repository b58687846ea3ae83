"""Shows the user's objects as text in guards and records without running the user's code."""

from __future__ import annotations

import enum
import types
from typing import Any


def safe_repr(obj: Any) -> str:
    """Returns ``repr(obj)`` if that runs no Python code, which may be the user's; else the object's type in angle
    brackets."""
    if isinstance(obj, enum.Enum):
        return f"{type(obj).__qualname__}.{getattr(obj, '_name_', None)}"
    brackets = _BRACKETS.get(type(obj))
    if brackets is not None:
        opening, closing = brackets
        items = ", ".join(map(safe_repr, obj))
        comma = "," if type(obj) is tuple and len(obj) == 1 else ""
        return f"{opening}{items}{comma}{closing}"
    if isinstance(getattr(type(obj), "__repr__", None), types.FunctionType):
        return f"<{type(obj).__qualname__}>"
    return repr(obj)


_BRACKETS: dict[type, tuple[str, str]] = {list: ("[", "]"), tuple: ("(", ")"), frozenset: ("frozenset([", "])")}
