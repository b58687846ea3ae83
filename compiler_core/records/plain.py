"""Dataclasses as plain data, which is what JSON holds, and back: whatever is read is checked against their types."""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, Literal

MOST_INT = 2**53 - 1
"""The greatest whole number that the browser reads exactly."""
_ECHOED = 60


class RecordError(ValueError):
    """A text is not a record that this version can read; the message says where and why."""


def public_fields(cls: type) -> list[dataclasses.Field[Any]]:
    """The fields of a record class that are data (those with a leading underscore are not)."""
    return [f for f in dataclasses.fields(cls) if not f.name.startswith("_")]


@functools.cache
def _names(cls: type) -> tuple[str, ...] | None:
    """The names of a record class's fields; None for any other class."""
    return tuple(f.name for f in public_fields(cls)) if dataclasses.is_dataclass(cls) else None


def to_plain(value: Any) -> Any:
    """Dataclasses to dicts, all the way down."""
    if isinstance(value, (list, tuple)):
        return [to_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: to_plain(v) for k, v in value.items()}
    names = _names(value.__class__)
    return value if names is None else {name: to_plain(getattr(value, name)) for name in names}


class _Misfit(Exception):
    """A value is not of the type that its place wants; `path` leads to it from where reading began."""

    def __init__(self, message: str) -> None:
        self.message, self.path = message, ""

    def below(self, step: str) -> _Misfit:
        self.path = step + self.path
        return self


_Reader = Callable[[Any], Any]


def from_plain(plain: Any, want: Any, at: str) -> Any:
    """`plain` as the type `want`, or RecordError naming the place `at` where it is not one."""
    try:
        return _reader(want)(plain)
    except _Misfit as misfit:
        raise RecordError(f"{at}{misfit.path}: {misfit.message}") from None


@functools.cache
def _reader(want: Any) -> _Reader:
    """What makes the type `want` of plain values; it raises _Misfit."""
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
    # made when it is first used: a type may speak of itself
    readers = functools.cache(lambda: {name: _reader(of) for name, of in _hints(cls).items()})

    def read(plain: Any) -> Any:
        if not isinstance(plain, dict):
            raise _unlike(plain, dict)
        fields, values = readers(), {}
        for name, value in plain.items():
            if name not in fields:
                raise _Misfit(f"unknown field {echo(min(plain.keys() - fields.keys()))}")
            try:
                values[name] = fields[name](value)
            except _Misfit as misfit:
                raise misfit.below(f".{name}") from None
        try:
            return cls(**values)
        except TypeError as error:
            raise _Misfit(str(error)) from None

    return read


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    """The types of a record class's fields."""
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in public_fields(cls)}


def _literal_reader(allowed: tuple[Any, ...]) -> _Reader:
    def read(plain: Any) -> Any:
        if plain not in allowed:
            raise _Misfit(f"{echo(plain)} is none of {allowed}")
        return plain

    return read


def _union_reader(options: Sequence[_Reader], want: Any) -> _Reader:
    takes_none = type(None) in typing.get_args(want)

    def read(plain: Any) -> Any:
        if plain is None and takes_none:
            return None
        misfits = []
        for option in options:
            try:
                return option(plain)
            except _Misfit as misfit:
                misfits.append(misfit)
        raise misfits[0]

    return read


def _list_reader(of: _Reader) -> _Reader:
    def read(plain: Any) -> Any:
        if not isinstance(plain, list):
            raise _unlike(plain, list)
        values = []
        for value in plain:
            try:
                values.append(of(value))
            except _Misfit as misfit:
                raise misfit.below(f"[{len(values)}]") from None
        return values

    return read


def _dict_reader(of: _Reader) -> _Reader:
    def read(plain: Any) -> Any:
        if not isinstance(plain, dict):
            raise _unlike(plain, dict)
        values = {}
        for key, value in plain.items():
            try:
                values[key] = of(value)
            except _Misfit as misfit:
                raise misfit.below(f"[{echo(key)}]") from None
        return values

    return read


def _plain_reader(want: type) -> _Reader:
    # bool is an int to Python, but not to a reader of the record
    readers: dict[type, _Reader] = {int: _read_int, float: _read_float}
    return readers.get(want) or (lambda plain: plain if type(plain) is want else _refuse(plain, want))


def _read_int(plain: Any) -> int:
    if type(plain) is float and plain.is_integer():
        plain = int(plain)  # to JavaScript, 2.0 is 2
    if type(plain) is not int:
        raise _unlike(plain, int)
    if abs(plain) > MOST_INT:
        raise _Misfit(f"a whole number of more than {MOST_INT}")
    return plain


def _read_float(plain: Any) -> float:
    if type(plain) not in (int, float):
        raise _unlike(plain, float)
    try:
        number = float(plain)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _Misfit("expected a finite number")
    return number


def _refuse(plain: Any, want: type) -> Any:
    raise _unlike(plain, want)


def echo(value: Any) -> str:
    """`value`, which may be anything, in few characters."""
    if isinstance(value, str):
        return repr(value) if len(value) <= _ECHOED else f"{value[:_ECHOED]!r}..."
    if isinstance(value, int) and abs(value) > MOST_INT:
        return "a great number"
    return repr(value) if isinstance(value, (int, float, type(None))) else f"a {type(value).__name__}"


def _unlike(plain: Any, want: type) -> _Misfit:
    return _Misfit(f"expected {want.__name__}, got {'null' if plain is None else type(plain).__name__}")
