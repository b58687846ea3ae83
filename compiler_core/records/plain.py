"""Records as plain data, as in JSON: converted, read again, and checked against the types of the fields."""

from __future__ import annotations

import dataclasses
import functools
import gc
import json
import math
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

T = TypeVar("T")

MAX_SAFE_INT = 2**53 - 1
"""The greatest integer that JavaScript reads exactly."""
_MAX_REPR = 60


class RecordError(ValueError):
    """A text is not a record that this version can read; the message states where and why."""


def public_fields(cls: type) -> list[dataclasses.Field[Any]]:
    """Returns the fields of a record class that are data; those with a leading underscore are not."""
    return [f for f in dataclasses.fields(cls) if not f.name.startswith("_")]


@functools.cache
def _field_names(cls: type) -> tuple[str, ...] | None:
    """Returns the names of a record class's fields; None for any other class."""
    return tuple(f.name for f in public_fields(cls)) if dataclasses.is_dataclass(cls) else None


def without_gc(function: Callable[[], T]) -> T:
    """Calls a function that makes many objects and no cycles, with the garbage collector off.

    The number of new objects would make it traverse all objects of the process again and again, which takes longer than
    to make them.  It is not a context manager, since an interrupt inside the manager's own code could leave the
    collector off.
    """
    was_enabled = gc.isenabled()
    try:
        gc.disable()
        return function()
    finally:
        if was_enabled:
            gc.enable()


def to_plain(value: Any) -> Any:
    """Converts dataclasses to dicts, recursively."""
    if isinstance(value, (list, tuple)):
        return [to_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: to_plain(v) for k, v in value.items()}
    names = _field_names(value.__class__)
    return value if names is None else {name: to_plain(getattr(value, name)) for name in names}


def json_text(plain: Any, indent: int | None = None) -> str:
    """Returns plain data as JSON."""
    text = json.dumps(plain, indent=indent, ensure_ascii=False, allow_nan=False)
    # A lone surrogate, as in a file name that is not UTF-8, cannot be encoded; as an escape it is valid JSON.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


class _TypeMismatch(Exception):
    """A value is not of the expected type; `path` is its position inside the value that is read."""

    def __init__(self, message: str) -> None:
        self.message, self.path = message, ""

    def inside(self, step: str) -> _TypeMismatch:
        self.path = step + self.path
        return self


_Reader = Callable[[Any], Any]


def from_plain(plain: Any, want: Any, path: str) -> Any:
    """Converts plain data to a value of the type `want`.

    Args:
        plain: lists, dicts, strings, numbers, bools and None, as `json.loads` returns them.
        want: a dataclass, a list, dict, union or Literal of such types, or str, int, float or bool.
        path: the name of `plain` in error messages.

    Raises:
        RecordError: `plain` is not of that type; the message has the path to the wrong value.
    """
    try:
        return _reader(want)(plain)
    except _TypeMismatch as mismatch:
        raise RecordError(f"{path}{mismatch.path}: {mismatch.message}") from None


@functools.cache
def _reader(want: Any) -> _Reader:
    """Returns a function that converts plain data to the type `want`, or raises _TypeMismatch."""
    origin = typing.get_origin(want)
    if dataclasses.is_dataclass(want):
        return _dataclass_reader(typing.cast(type, want))
    if origin is Literal:
        return _literal_reader(typing.get_args(want))
    if origin in (types.UnionType, typing.Union):
        return _union_reader([_reader(w) for w in typing.get_args(want) if w is not type(None)], want)
    if origin is list:
        return _list_reader(_reader(typing.get_args(want)[0]))
    if origin is dict:
        return _dict_reader(_reader(typing.get_args(want)[1]))
    return _plain_reader(want)


def _dataclass_reader(cls: type) -> _Reader:
    @functools.cache
    def field_readers() -> dict[str, _Reader]:  # made at the first use, since a type may refer to itself
        return {name: _reader(type_) for name, type_ in _field_types(cls).items()}

    def read(plain: Any) -> Any:
        if not isinstance(plain, dict):
            raise _wrong_type(plain, dict)
        fields, values = field_readers(), {}
        for name, value in plain.items():
            if name not in fields:
                unknown = short_repr(min(plain.keys() - fields.keys()))
                raise _TypeMismatch(f"unknown field {unknown}; if a newer Cutaway wrote it, update this one")
            try:
                values[name] = fields[name](value)
            except _TypeMismatch as mismatch:
                raise mismatch.inside(f".{name}") from None
        try:
            return cls(**values)
        except TypeError as error:
            raise _TypeMismatch(str(error)) from None

    return read


@functools.cache
def _field_types(cls: type) -> dict[str, Any]:
    """Returns the types of a record class's fields."""
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in public_fields(cls)}


def _literal_reader(allowed: tuple[Any, ...]) -> _Reader:
    def read(plain: Any) -> Any:
        if plain not in allowed:
            raise _TypeMismatch(f"{short_repr(plain)} is not one of {allowed}")
        return plain

    return read


def _union_reader(options: Sequence[_Reader], want: Any) -> _Reader:
    takes_none = type(None) in typing.get_args(want)

    def read(plain: Any) -> Any:
        if plain is None and takes_none:
            return None
        mismatches = []
        for option in options:
            try:
                return option(plain)
            except _TypeMismatch as mismatch:
                mismatches.append(mismatch)
        raise mismatches[0]

    return read


def _list_reader(of: _Reader) -> _Reader:
    def read(plain: Any) -> Any:
        if not isinstance(plain, list):
            raise _wrong_type(plain, list)
        values = []
        for value in plain:
            try:
                values.append(of(value))
            except _TypeMismatch as mismatch:
                raise mismatch.inside(f"[{len(values)}]") from None
        return values

    return read


def _dict_reader(of: _Reader) -> _Reader:
    def read(plain: Any) -> Any:
        if not isinstance(plain, dict):
            raise _wrong_type(plain, dict)
        values = {}
        for key, value in plain.items():
            try:
                values[key] = of(value)
            except _TypeMismatch as mismatch:
                raise mismatch.inside(f"[{short_repr(key)}]") from None
        return values

    return read


def _plain_reader(want: type) -> _Reader:
    if want is int:
        return _read_int
    if want is float:
        return _read_float

    def read(plain: Any) -> Any:
        if type(plain) is not want:  # isinstance would take a bool for an int
            raise _wrong_type(plain, want)
        return plain

    return read


def _read_int(plain: Any) -> int:
    if type(plain) is float and plain.is_integer():
        plain = int(plain)  # JavaScript does not distinguish 2.0 from 2
    if type(plain) is not int:
        raise _wrong_type(plain, int)
    if abs(plain) > MAX_SAFE_INT:
        raise _TypeMismatch(f"an integer greater than {MAX_SAFE_INT}")
    return plain


def _read_float(plain: Any) -> float:
    if type(plain) not in (int, float):
        raise _wrong_type(plain, float)
    try:
        number = float(plain)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _TypeMismatch("expected a finite number")
    return number


def short_repr(value: Any) -> str:
    """Returns a short text for any value."""
    if isinstance(value, str):
        return repr(value) if len(value) <= _MAX_REPR else f"{value[:_MAX_REPR]!r}..."
    if isinstance(value, int) and abs(value) > MAX_SAFE_INT:
        return "a large integer"
    return repr(value) if isinstance(value, (int, float, type(None))) else f"a {type(value).__name__}"


def _wrong_type(plain: Any, want: type) -> _TypeMismatch:
    return _TypeMismatch(f"expected {want.__name__}, got {'null' if plain is None else type(plain).__name__}")
