"""Classes and functions that may die before the code compiled for them, and are therefore held weakly.

Guards and generated code refer to classes and functions by identity.  One that a program makes while it runs, such as
a class statement in a function, is to be freed when the program drops it, with all that its methods close over.  Its
address may then be reused, so compiled code that refers to it is dropped when it dies (`on_death`).
"""

from __future__ import annotations

import functools
import sys
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from compiler_core.guards.sources import Constant

T = TypeVar("T")
DEAD: Any = object()
"""Stands for an object that is gone: no other object is it."""


def module_of(cls: type) -> str:
    """``cls.__module__``, whatever a metaclass makes of it."""
    found = vars(type)["__module__"].__get__(cls)
    return found if isinstance(found, str) else ""


@functools.cache
def is_library(module: str) -> bool:
    """Whether a module is the standard library's or PyTorch's: taken not to be patched."""
    top = module.partition(".")[0]
    return top == "torch" or (top in sys.stdlib_module_names and top != "__main__")


def is_python_class(cls: type) -> bool:
    """Whether `cls` was made by a class statement: C's own types cannot be changed."""
    heap_type, immutable = 1 << 9, 1 << 8
    return bool(cls.__flags__ & heap_type) and not cls.__flags__ & immutable


class Mortal(Constant):
    """A box like `Constant` that holds its object weakly."""

    def __init__(self, obj: Any) -> None:
        self.__dict__.update(ref=weakref.ref(obj), _address=id(obj), _name=obj.__qualname__)

    ref: weakref.ref[Any]
    _address: int
    _name: str

    @property
    def value(self) -> Any:
        found = self.ref()
        return DEAD if found is None else found

    @property
    def address(self) -> int:
        return self._address

    @property
    def name(self) -> str:
        return self._name


def boxed(obj: Any) -> Constant:
    """`obj` in a box, which holds it weakly if the program may drop it."""
    return Mortal(obj) if _is_mortal(obj) else Constant(obj)


def _is_mortal(obj: Any) -> bool:
    if isinstance(obj, type):
        return bool(obj.__flags__ & _HEAP_TYPE) and not _is_found_by_name(obj)
    if isinstance(obj, (types.FunctionType, functools._lru_cache_wrapper)):
        return "<locals>" in obj.__qualname__ and not is_library(str(obj.__module__))
    return False


_HEAP_TYPE = 1 << 9


def _is_found_by_name(cls: type) -> bool:
    """Whether a module keeps the class, under its own name."""
    module = module_of(cls)
    if is_library(module):
        return True
    found: Any = sys.modules.get(module)
    for name in cls.__qualname__.split("."):
        found = getattr(found, "__dict__", {}).get(name)
    return found is cls


def on_death(boxes: Iterable[Mortal], callback: Callable[[weakref.ref[Any]], None]) -> tuple[weakref.ref[Any], ...]:
    """Call `callback` when one of the boxed objects dies, as long as the references that this returns are kept."""
    by_address = {box.address: box for box in boxes}
    return tuple(weakref.ref(box.value, callback) for box in by_address.values())


class _Key(weakref.ref[Any]):
    """A weak reference that knows its object's address when that is gone."""

    __slots__ = ("address",)
    address: int


def weak_cache(function: Callable[[Any], T]) -> Callable[[Any], T]:
    """As `functools.cache`, for a function of one object that the cache does not keep alive; the result must not
    refer to the object either."""
    known: dict[int, tuple[_Key, T]] = {}

    def forget(key: Any) -> None:
        known.pop(key.address, None)

    @functools.wraps(function)
    def cached(obj: Any) -> T:
        found = known.get(id(obj))
        if found is None or found[0]() is not obj:
            key = _Key(obj, forget)
            key.address = id(obj)
            found = known[id(obj)] = key, function(obj)
        return found[1]

    return cached
