"""The two side tables of a code object: source positions, and exception handlers.  The error for invalid bytecode.

The formats are documented in CPython's ``Objects/locations.md`` and ``Objects/exception_handling_notes.txt``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dis import Positions
from typing import NamedTuple

from compiler_core.bytecode import opset
from compiler_core.errors import CompilerBug


class InvalidBytecode(CompilerBug):
    """Bytecode that must not run; `offset` is the place in ``co_code``."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


_MAX_ENTRY_UNITS = 8
_ONE_LINE, _NO_COLUMNS, _LONG, _NOWHERE = 10, 13, 14, 15


class HandlerRegion(NamedTuple):
    """The bytes ``start .. end`` are covered by the handler at `target`."""

    start: int
    end: int
    target: int
    depth: int
    lasti: bool


def read_exception_table(table: bytes) -> list[HandlerRegion]:
    """Parses ``co_exceptiontable``; raises InvalidBytecode if it ends within an entry.  CPython's
    ``Objects/exception_handling_notes.txt`` describes the format."""
    units, regions = iter(table), []
    for first in units:
        start = _read_varint(first, units)
        length, target, depth_lasti = (_read_varint(None, units) for _ in range(3))
        regions.append(
            HandlerRegion(2 * start, 2 * (start + length), 2 * target, depth_lasti >> 1, bool(depth_lasti & 1))
        )
    return regions


def _read_varint(first: int | None, units: Iterator[int]) -> int:
    """Reads six bits per byte, the highest first.  Bit 6 says that more bytes follow, bit 7 that an entry starts."""
    try:
        unit = next(units) if first is None else first
        value = unit & 63
        while unit & 64:
            unit = next(units)
            value = value << 6 | unit & 63
    except StopIteration:
        raise InvalidBytecode("the exception table ends in the middle of an entry", 0) from None
    return value


def write_exception_table(regions: Iterable[HandlerRegion]) -> bytes:
    """Returns ``co_exceptiontable``, the inverse of `read_exception_table`."""
    table = bytearray()
    for start, end, target, depth, lasti in regions:
        entry = [start // 2, (end - start) // 2, target // 2, depth << 1 | lasti]
        written = bytearray().join(map(_big_endian, entry))
        written[0] |= 128
        table += written
    return bytes(table)


def _big_endian(value: int) -> bytearray:
    written = bytearray([value & 63])
    while value := value >> 6:
        written.insert(0, 64 | value & 63)
    return written


def write_line_table(entries: Iterable[tuple[int, Positions | None]], first_line: int) -> bytes:
    """Returns ``co_linetable``.  `entries` has the number of code units and the positions of each instruction in
    order."""
    table, line = bytearray(), first_line
    for units, positions in _merge_entries(entries):
        while units > 0:
            length = min(units, _MAX_ENTRY_UNITS)
            table += _location_entry(length, positions, line)
            line = line if positions.lineno is None else positions.lineno
            units -= length
    return bytes(table)


def _merge_entries(entries: Iterable[tuple[int, Positions | None]]) -> Iterator[tuple[int, Positions]]:
    """Merges adjacent entries with the same positions, as CPython does since 3.12."""
    total, place = 0, Positions()
    for units, positions in entries:
        positions = positions or Positions()
        if total and (positions != place or opset.VERSION < (3, 12)):
            yield total, place
            total = 0
        total, place = total + units, positions
    if total:
        yield total, place


def _location_entry(units: int, positions: Positions, line: int) -> bytes:
    lineno, end_lineno, column, end_column = positions
    if lineno is None:
        return _entry_header(_NOWHERE, units)
    delta = lineno - line
    if end_lineno is None or column is None or end_column is None:
        return _entry_header(_NO_COLUMNS, units) + _signed(delta)
    if lineno == end_lineno:
        if delta == 0 and column < 80 and 0 <= end_column - column < 16:
            return _entry_header(column >> 3, units) + bytes([(column & 7) << 4 | end_column - column])
        if 0 <= delta < 3 and column < 128 and end_column < 128:
            return _entry_header(_ONE_LINE + delta, units) + bytes([column, end_column])
    written = [_signed(delta), _little_endian(end_lineno - lineno), _little_endian(column + 1)]
    return _entry_header(_LONG, units) + b"".join(written) + _little_endian(end_column + 1)


def _entry_header(form: int, units: int) -> bytes:
    return bytes([128 | form << 3 | units - 1])


def _little_endian(value: int) -> bytes:
    written = bytearray()
    while value >= 64:
        written.append(64 | value & 63)
        value >>= 6
    return bytes([*written, value])


def _signed(value: int) -> bytes:
    return _little_endian(-value << 1 | 1 if value < 0 else value << 1)
