"""Facts about classes: which are plain Python, and guards on their attributes, which may change between calls."""

from __future__ import annotations

import functools
import os
import threading
import types
import typing
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.values.base import ObservedException, observed_exception
from compiler_core.errors import Unsupported
from compiler_core.guards.lifetimes import WeakBox, is_library, is_python_class, module_of, weak_cache
from compiler_core.guards.sources import AttrSource, class_entry

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


ABSENT: Any = object()


def lookup_in_mro(cls: type, name: str) -> Any:
    """Returns the entry `name` of `cls` or of the first of its bases that has it, or ABSENT, not of a metaclass."""
    return class_entry(cls, name, ABSENT)


def missing_attribute(cls: type, name: str) -> ObservedException:
    """Returns what to raise where an instance of `cls` has no attribute of this name; classes of C are named with their
    module."""
    is_of_module = not is_python_class(cls) and cls.__module__ != "builtins"
    shown = f"{cls.__module__}.{cls.__name__}" if is_of_module else cls.__name__
    return observed_exception(AttributeError, f"{shown!r} object has no attribute {name!r}")


def is_data_descriptor(obj: Any) -> bool:
    """Returns whether `obj`, found in a class, comes before the entry of an instance's ``__dict__``."""
    return hasattr(type(obj), "__set__") or hasattr(type(obj), "__delete__")


def is_descriptor(obj: Any) -> bool:
    """Returns whether reading an attribute calls the ``__get__`` of `obj`, which was found in a class."""
    return hasattr(type(obj), "__get__")


def is_of_pytorch(function: types.FunctionType) -> bool:
    """Whether the code is PyTorch's.  ``__module__`` does not show it: functools.wraps copies it."""
    return function.__code__.co_filename.startswith(_TORCH)


_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep


_CODE_OF_CLASSES = (
    types.FunctionType,
    property,
    staticmethod,
    classmethod,
    functools._lru_cache_wrapper,
    functools.cached_property,
)


@weak_cache
def is_plain_class(cls: Any) -> bool:
    """Whether `cls` and all its bases except object and Generic were made by class statements."""
    return cls is not object and all(is_python_class(c) or c in (object, typing.Generic) for c in cls.__mro__)


def guard_class_attribute(tx: Interpreter, cls: type, name: str, found: Any) -> None:
    """Guards a function, property or the like that was found as an attribute of a class; it may be replaced.

    Constants are guarded on their value instead.
    """
    if is_library(module_of(cls)):
        tx.capture.guards.add_class_names(cls, name)
    elif isinstance(found, _CODE_OF_CLASSES):
        held = tx.capture.guards.held(cls, cls.__qualname__)
        if isinstance(found, classmethod):
            if not isinstance(found.__func__, types.FunctionType):
                raise Unsupported(
                    "unsupported attribute", f"{name}, a classmethod of a {type(found.__func__).__name__}"
                )
            tx.capture.guards.add("ID_MATCH", AttrSource(AttrSource(held, name), "__func__"), found.__func__)
        elif type(found) is property and isinstance(held.box, WeakBox):
            # there are no weak references to properties, and the property's functions may refer to the class
            tx.capture.guards.add("TYPE_MATCH", AttrSource(held, name), found)
            for accessor in ("fget", "fset", "fdel"):
                tx.capture.guards.add(
                    "ID_MATCH", AttrSource(AttrSource(held, name), accessor), getattr(found, accessor)
                )
        else:
            tx.capture.guards.add("ID_MATCH", AttrSource(held, name), getattr(cls, name))


_GENERIC_SETATTR = (object.__setattr__, BaseException.__setattr__, threading.local.__setattr__)


@weak_cache
def has_custom_setattr(cls: type) -> bool:
    """Whether `cls` overrides ``__setattr__`` of object, or of a builtin class where it does the same."""
    return class_entry(cls, "__setattr__") not in _GENERIC_SETATTR
