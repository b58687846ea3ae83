"""Keys of dicts and elements of sets: what a value is to Python's hashing, and back.

A constant is its own key.  An object that is hashed by identity is one too: its Python object if it
lives outside, its value if the frame made it.  Of an object with a ``__hash__`` and ``__eq__`` in
Python, an `ObjectKey` calls them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.values.base import Value, raised
from compiler_core.capture.values.constant import is_atom
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter

_BY_IDENTITY = (object.__hash__, torch.Tensor.__hash__)


class ObjectKey:
    """A key with the ``__hash__`` and ``__eq__`` of its class."""

    def __init__(self, tx: Interpreter, value: Value, hashed: int) -> None:
        self.tx = tx
        self.value = value
        self.hashed = hashed

    def __hash__(self) -> int:
        return self.hashed

    def __eq__(self, other: object) -> bool:
        return self.tx.is_item(self.value, self.tx.capture.key_value(other))


def hashable(tx: Interpreter, value: Value) -> Any:
    """`value` as a dict key or set element."""
    from compiler_core.capture.values.builtin.sequences import TupleValue
    from compiler_core.capture.values.static import StaticValue
    from compiler_core.capture.values.tensor import TensorValue
    from compiler_core.capture.values.user.functions import FunctionValue
    from compiler_core.capture.values.user.objects import ObjectValue

    if isinstance(value, StaticValue):
        value.look(tx)
        return value.obj
    if isinstance(value, TupleValue) and value.cls is tuple:
        key = tuple(hashable(tx, v) for v in value.items(tx))
        tx.capture.tuple_keys[id(key)] = key, value
        return key
    if isinstance(value, (ObjectValue, TensorValue)):
        return _object_key(tx, value)
    if isinstance(value, FunctionValue) and value.fn is None:
        return value
    raw = value.constant(tx)
    try:
        hash(raw)
    except TypeError as error:
        raise raised(TypeError, str(error)) from None
    return raw


def _object_key(tx: Interpreter, value: Any) -> Any:
    cls = value.python_type()
    if cls.__hash__ is None:
        raise raised(TypeError, f"unhashable type: {cls.__name__!r}")
    if cls.__hash__ not in _BY_IDENTITY:
        method = value.special(tx, "__hash__")
        if method is None:
            raise Unsupported("unsupported operation", f"a {cls.__name__} as a key")
        return ObjectKey(tx, value, _as_hash(method.call(tx, [], {}).constant(tx)))
    if value.source is None:
        return value
    value.look(tx)
    tx.capture.hashed[id(value.real)] = (value.real, value.source)
    return value.real


class _Hashed:
    """To have Python make a hash of what a ``__hash__`` returned."""

    def __init__(self, result: int) -> None:
        self.result = result

    def __hash__(self) -> int:
        return self.result


def _as_hash(result: Any) -> int:
    try:
        return hash(_Hashed(result))
    except TypeError as error:
        raise raised(TypeError, str(error)) from None


def is_plain_key(key: Any) -> bool:
    """Whether Python's hashing of `key` runs no code of the program's."""
    if isinstance(key, tuple):
        return type(key) is tuple and all(map(is_plain_key, key))
    cls: Any = type(key)
    by_identity = cls.__hash__ is object.__hash__ and cls.__eq__ is object.__eq__
    return is_atom(key) or by_identity or cls.__hash__ is type.__hash__


def has_fixed_order(key: Any) -> bool:
    """Whether it lies at the same place in a set each time: not what is hashed by its address."""
    if isinstance(key, tuple):
        return all(map(has_fixed_order, key))
    return is_atom(key) or isinstance(key, type)
