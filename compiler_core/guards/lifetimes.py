"""Weak references to objects that may be freed before the code that was compiled for them.

Guards and generated code refer to classes and functions by identity, and guards to instances and tensors.  A class or
function that the program makes while it runs, such as a class statement in a function, must be freed when the program
drops it, with everything that it closes over; so must an object whose ``id()`` a program asked for.  Its address may
then be reused, so compiled code that refers to it is dropped when it dies (`on_death`).
"""

from __future__ import annotations

import functools
import sys
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from compiler_core.guards.sources import Box
from compiler_core.support.interrupts import weak_callback

T = TypeVar("T")
DEAD: Any = object()
"""Stands for an object that was freed.  It is identical to no other object."""


def module_of(cls: type) -> str:
    """Returns ``cls.__module__`` without running code of a metaclass."""
    found = vars(type)["__module__"].__get__(cls)
    return found if isinstance(found, str) else ""


@functools.cache
def is_library(module: str) -> bool:
    """Whether a module belongs to the standard library or to PyTorch."""
    top = module.partition(".")[0]
    return top == "torch" or (top in sys.stdlib_module_names and top != "__main__")


def is_python_class(cls: type) -> bool:
    """Whether `cls` was made by a class statement, so that its attributes can be changed."""
    return bool(cls.__flags__ & _HEAP_TYPE) and not cls.__flags__ & _IMMUTABLE_TYPE


_HEAP_TYPE, _IMMUTABLE_TYPE = 1 << 9, 1 << 8  # CPython's Py_TPFLAGS_HEAPTYPE and Py_TPFLAGS_IMMUTABLETYPE


class WeakBox(Box):
    """A `Box` that refers to its object weakly."""

    def __init__(self, obj: Any, name: str = "") -> None:
        self.__dict__.update(ref=weakref.ref(obj), _address=id(obj), _name=name or obj.__qualname__)

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


def make_box(obj: Any) -> Box:
    """Puts `obj` into a box, which refers to it weakly if the program may drop it."""
    return WeakBox(obj) if _may_be_freed(obj) else Box(obj)


def identity_box(obj: Any) -> Box:
    """Puts an object whose identity a guard checks into a box: a guard keeps no instance and no tensor alive."""
    if is_python_class(type(obj)) and type(obj).__weakrefoffset__ and not isinstance(obj, type):
        return WeakBox(obj, type(obj).__name__)
    return make_box(obj)


def _may_be_freed(obj: Any) -> bool:
    if isinstance(obj, type):
        return bool(obj.__flags__ & _HEAP_TYPE) and not _is_found_by_name(obj)
    if isinstance(obj, (types.FunctionType, functools._lru_cache_wrapper)):
        return _is_made_in_a_call(obj, obj.__module__, obj.__qualname__)
    return False


def _is_made_in_a_call(obj: Any, module: str | None, name: str) -> bool:
    """Whether a function of the program was defined inside another function.  (Ours are kept by what uses them.)

    Its attributes alone do not tell, since ``functools.wraps`` copies the module and the name of another function.
    """
    function = obj.__wrapped__ if isinstance(obj, functools._lru_cache_wrapper) else obj
    if isinstance(function, types.FunctionType):
        name += function.__code__.co_qualname
        home = str(function.__globals__.get("__name__"))
        module = module if is_library(home) else home
    return "<locals>" in name and not (is_library(str(module)) or str(module).startswith("compiler_core."))


def _is_found_by_name(cls: type) -> bool:
    """Whether the class can be reached by its module and qualified name, so that the module keeps it alive."""
    module = module_of(cls)
    return is_library(module) or is_named(cls, module, cls.__qualname__)


def is_named(obj: Any, module: str | None, qualified_name: str) -> bool:
    """Whether this name in this module stands for `obj`."""
    found: Any = sys.modules.get(module or "")
    for name in qualified_name.split("."):
        found = getattr(found, "__dict__", {}).get(name)
    return found is obj


def on_death(boxes: Iterable[WeakBox], callback: Callable[[weakref.ref[Any]], None]) -> tuple[weakref.ref[Any], ...]:
    """Calls `callback` when one of the boxed objects dies, as long as the returned references are kept."""
    by_address = {box.address: box for box in boxes}
    return tuple(weakref.ref(box.value, weak_callback(callback)) for box in by_address.values())


def weak_cache(function: Callable[[Any], T]) -> Callable[[Any], T]:
    """Like `functools.cache`, for a function of one object, which the cache does not keep alive.

    The result must not refer to the object."""
    known: dict[int, tuple[weakref.ref[Any], T]] = {}

    @functools.wraps(function)
    def cached(obj: Any) -> T:
        found = known.get(id(obj))
        if found is None or found[0]() is not obj:
            # a method of C, in which no signal's handler can run: what it raised would be dropped
            key = weakref.ref(obj, functools.partial(known.pop, id(obj)))
            found = known[id(obj)] = key, function(obj)
        return found[1]

    return cached
