"""Calls of functions that `functools.singledispatch` has made: which implementation the class of an argument has.

Python asks a cache with weak keys first, which a graph cannot hold.  The choice follows from the classes that are
registered, which are guarded; the cache is left as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.classes import lookup_in_mro
from compiler_core.capture.values.user.functions import FunctionValue

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter

_PLAIN_CHECK = vars(type)["__subclasscheck__"]
_DISPATCH = functools.singledispatch(lambda _: None).dispatch.__code__


def dispatched(tx: Interpreter, function: FunctionValue, args: list[Value]) -> Value | None:
    """Returns the implementation that ``dispatch`` of such a function chooses for a class; None if `function` is
    another, or if a class may be a virtual subclass of one that is registered."""
    if function.code is not _DISPATCH or len(args) != 1:
        return None
    cells = dict(zip(function.code.co_freevars, function.closure, strict=True))
    registry, cls = cells["registry"].get(tx), args[0].constant(tx)
    is_virtual = not tx.is_none(cells["cache_token"].get(tx))
    if is_virtual or not isinstance(cls, type) or not isinstance(registry, DictValue):
        return None
    implementations = registry.mapping(tx)
    if any(lookup_in_mro(type(each), "__subclasscheck__") is not _PLAIN_CHECK for each in implementations):
        return None
    try:
        return implementations[_chosen(cls, implementations)]
    except RuntimeError:  # two classes are as near
        return None


def _chosen(cls: type, classes: Iterable[type]) -> type:
    """Returns the one of these classes that is chosen for `cls`."""
    chooser: Any = functools.singledispatch(lambda _: None)
    made = {chooser.register(each, functools.partial(lambda _: None)): each for each in classes}
    return made[chooser.dispatch(cls)]
