"""What is known of classes, and of modules: which may change between calls, which are Python."""

from __future__ import annotations

import functools
import os
import types
import typing
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.errors import Unsupported
from compiler_core.guards.lifetimes import Mortal, is_library, is_python_class, module_of, weak_cache
from compiler_core.guards.sources import Attribute, class_entry

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


def is_of_pytorch(function: types.FunctionType) -> bool:
    """Whether its code is PyTorch's, whatever functools.wraps gave it for a module."""
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
    """Whether `cls` and all its bases but object are Python's class statements."""
    return cls is not object and all(is_python_class(c) or c in (object, typing.Generic) for c in cls.__mro__)


def guard_class(tx: Interpreter, cls: type, name: str, found: Any) -> None:
    """A function or property of a class may be replaced between calls (constants have a guard of their own)."""
    if is_library(module_of(cls)):
        tx.capture.looked_up_in_class(cls, name)
    elif isinstance(found, _CODE_OF_CLASSES):
        held = tx.capture.held(cls, cls.__qualname__)
        if isinstance(found, classmethod):
            if not isinstance(found.__func__, types.FunctionType):
                raise Unsupported(
                    "unsupported attribute", f"{name}, a classmethod of a {type(found.__func__).__name__}"
                )
            tx.capture.guard("ID_MATCH", Attribute(Attribute(held, name), "__func__"), found.__func__)
        elif type(found) is property and isinstance(held.held, Mortal):
            # a property can't be held weakly, and its functions may lead to the class
            tx.capture.guard("TYPE_MATCH", Attribute(held, name), found)
            for accessor in ("fget", "fset", "fdel"):
                tx.capture.guard("ID_MATCH", Attribute(Attribute(held, name), accessor), getattr(found, accessor))
        else:
            tx.capture.guard("ID_MATCH", Attribute(held, name), getattr(cls, name))


@weak_cache
def stores_its_own_way(cls: type) -> bool:
    """Whether `cls` stores attributes in a way of its own rather than object's."""
    return class_entry(cls, "__setattr__") not in (object.__setattr__, BaseException.__setattr__)
