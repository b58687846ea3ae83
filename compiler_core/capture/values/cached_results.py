"""Looks a result up in the cache of a function (``functools.lru_cache``), which is not counted as a call.

A cache shows what it has only to the garbage collector: its dict, its mark before keyword arguments, and, if it has a
limit, the key and the result of each call, from the one that is evicted next.  Keys are those of
``functools._make_key`` but for the class of tuples.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from compiler_core.capture.values.builtin.constant import is_atom

_MEMBERS_OF_CALL = 3
"""How many objects a cache with a limit refers to for each result: the key, the result, and the class of both."""


def find_result(fn: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any] | None:
    """Returns what the cache has for a call, alone in a tuple.

    Returns None if it has no result, or if a look might run code of the program.
    """
    contents = _contents(fn)
    if contents is None:
        return None
    results, mark, calls = contents
    parts = _parts(fn, mark, args, kwargs)
    if not all(_is_constant(part) or _is_compared_by_identity(part) for part in parts):
        return None
    key = _key(parts)
    if key not in results:
        return None
    if fn.cache_parameters()["maxsize"] is None:
        return (results[key],)
    found = (i for i in range(0, len(calls), _MEMBERS_OF_CALL) if _are_same(calls[i], key))
    return next(((calls[i + 1],) for i in found), None)


def finder(fn: Any, args: Sequence[Any], kwargs: dict[str, Any], calls_before: int) -> Callable[[], bool]:
    """Returns a function that looks whether the cache of `fn` has the result of a call, and so many calls before it
    cannot evict it.

    It keeps no argument alive that the program may drop.
    """
    contents = _contents(fn)
    if contents is None:
        return lambda: False
    results, mark, _ = contents
    references = [_reference(part) for part in _parts(fn, mark, args, kwargs)]
    size = fn.cache_parameters()["maxsize"]

    def has_result() -> bool:
        parts = [refer() for refer in references if refer is not None]
        if len(parts) < len(references):
            return False
        return _key(parts) in results and (size is None or len(results) + calls_before <= size)

    return has_result


def _contents(fn: Any) -> tuple[dict[Any, Any], object, list[Any]] | None:
    """Returns the dict of a cache, its mark, and what it refers to for each call.  None if it is built otherwise."""
    cls, *calls = gc.get_referents(fn)
    calls, others = calls[:-6], calls[-6:]
    if cls is not type(fn) or [type(other) for other in (*others[:1], *others[2:3])] != [dict, object]:
        return None
    results, _, mark = others[:3]
    has_limit = fn.cache_parameters()["maxsize"] is not None
    return (results, mark, calls) if len(calls) == len(results) * _MEMBERS_OF_CALL * has_limit else None


def _parts(fn: Any, mark: object, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """Returns the parts of the key of a call."""
    named = [part for item in kwargs.items() for part in item]
    types = map(type, [*args, *kwargs.values()]) if fn.cache_parameters()["typed"] else ()
    return [*args, *([mark, *named] if kwargs else ()), *types]


def _key(parts: Sequence[Any]) -> Any:
    return parts[0] if len(parts) == 1 and type(parts[0]) in (str, int) else tuple(parts)


def _reference(part: Any) -> Callable[[], Any] | None:
    """Returns a function that returns a part of a key, which it does not keep alive if the program may drop it.

    Returns None for a part whose comparison might run code of the program."""
    if _is_constant(part) or type(part) is object:
        return lambda: part
    return weakref.ref(part) if _is_compared_by_identity(part) and type(part).__weakrefoffset__ else None


def _is_compared_by_identity(part: Any) -> bool:
    cls = type(part)
    return [cls.__hash__, cls.__eq__] == [object.__hash__, object.__eq__]


def _is_constant(part: Any) -> bool:
    return all(map(_is_constant, part)) if type(part) is tuple else is_atom(part)


def _are_same(part: Any, other: Any) -> bool:
    """Whether two keys, or parts of them, are equal; runs no code of the program."""
    if type(part) is tuple and type(other) is tuple:
        return len(part) == len(other) and all(map(_are_same, part, other))
    return part is other or (is_atom(part) and is_atom(other) and bool(part == other))
