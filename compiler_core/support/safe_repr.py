"""Objects of the user's as text, in guards and records."""

from __future__ import annotations

import enum
import types
from typing import Any


def shown(obj: Any) -> str:
    """``repr(obj)`` where that runs no Python code, which may be the user's; else what kind of thing it is."""
    if isinstance(obj, enum.Enum):
        return f"{type(obj).__qualname__}.{getattr(obj, '_name_', None)}"
    brackets = _BRACKETS.get(type(obj))
    if brackets is not None:
        items = ", ".join(map(shown, obj))
        return f"{brackets[0]}{items}{',' if type(obj) is tuple and len(obj) == 1 else ''}{brackets[1]}"
    if isinstance(getattr(type(obj), "__repr__", None), types.FunctionType):
        return f"<{type(obj).__qualname__}>"
    return repr(obj)


_BRACKETS: dict[type, tuple[str, str]] = {list: ("[", "]"), tuple: ("(", ")"), frozenset: ("frozenset([", "])")}
