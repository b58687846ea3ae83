"""Conversion of values to keys of dicts and elements of sets.

The key of a constant is its Python object.  The key of an object that is hashed by identity is the Python object if it
is from outside, and the value if the frame made it.  The key of an object whose class defines ``__hash__`` and
``__eq__`` in Python is an `ObjectKey`, which calls them.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.values.base import Value, observed_exception
from compiler_core.capture.values.builtin.constant import is_atom
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter

_BY_IDENTITY = (object.__hash__, torch.Tensor.__hash__)


_C_FUNCTIONS = (types.BuiltinFunctionType, types.MethodWrapperType)
"""They are compared by the identity of what they are bound to."""


class ObjectKey:
    """A key that uses the ``__hash__`` and ``__eq__`` of the value's class."""

    def __init__(self, tx: Interpreter, value: Value, hashed: int) -> None:
        self.tx = tx
        self.value = value
        self.hashed = hashed

    def __hash__(self) -> int:
        return self.hashed

    def __eq__(self, other: object) -> bool:
        return self.tx.is_same_or_equal(self.value, self.tx.capture.outside.key_value(other))


def to_key(tx: Interpreter, value: Value) -> Any:
    """Returns `value` as a dict key or set element."""
    return value.as_key(tx)


def object_key(tx: Interpreter, value: Any) -> Any:
    """Returns an object whose class may define ``__hash__`` as a dict key or set element."""
    cls = value.python_type()
    if cls.__hash__ is None:
        raise observed_exception(TypeError, f"unhashable type: {cls.__name__!r}")
    if cls.__hash__ not in _BY_IDENTITY:
        method = value.special_method(tx, "__hash__")
        if method is None:
            raise Unsupported("unsupported operation", f"a {cls.__name__} as a key")
        return ObjectKey(tx, value, _as_hash(method.call(tx, [], {}).constant(tx)))
    if value.source is None:
        return value
    value.install_guards(tx)
    tx.capture.outside.identity_keys[id(value.real)] = (value.real, value.source)
    return value.real


class _HashResult:
    """Has Python convert the result of a ``__hash__`` method to a hash."""

    def __init__(self, result: int) -> None:
        self.result = result

    def __hash__(self) -> int:
        return self.result


def _as_hash(result: Any) -> int:
    try:
        return hash(_HashResult(result))
    except TypeError as error:
        raise observed_exception(TypeError, str(error)) from None


def is_plain_key(key: Any) -> bool:
    """Whether hashing and comparing `key` runs no code of the program's."""
    if isinstance(key, tuple):
        return type(key) is tuple and all(map(is_plain_key, key))
    cls: Any = type(key)
    by_identity = cls.__hash__ is object.__hash__ and cls.__eq__ is object.__eq__
    return is_atom(key) or by_identity or cls.__hash__ is type.__hash__ or cls in _C_FUNCTIONS


def has_fixed_order(key: Any) -> bool:
    """Whether the hash, and so the place in a set, is the same in each run: not if it is a hash of an address."""
    if isinstance(key, tuple):
        return all(map(has_fixed_order, key))
    return is_atom(key) or isinstance(key, type)
