"""The user's source lines in the record, and stack traces made of them."""

from __future__ import annotations

import linecache
import types
from collections.abc import Iterable, Iterator, Sequence

from compiler_core.hook.skip_rules import is_library_file
from compiler_core.records import Compile, ItemId, Record, StackLine

MAX_WHOLE_FILE = 400
"""Files of up to this many lines are recorded whole."""


class SourceLines:
    """Puts the source of captured functions into the record, and finds the items of their lines."""

    def __init__(self, record: Record, compile_: Compile) -> None:
        self.record = record
        self.compile = compile_
        self._items: dict[tuple[str, int], ItemId | None] = {}
        self._added: set[types.CodeType] = set()

    def add(self, code: types.CodeType) -> None:
        """Adds the source of a function to the record, unless it is library code."""
        if code in self._added:
            return
        self._added.add(code)
        if not is_library_file(code.co_filename):
            add_source(self.record, code)
            self._items.clear()

    def item(self, filename: str, lineno: int) -> ItemId | None:
        """Returns the item of a source line, or None if the record does not have the line."""
        key = (filename, lineno)
        if key not in self._items:
            self._items[key] = self.record.line(filename, lineno)
        return self._items[key]


def add_source(record: Record, code: types.CodeType) -> None:
    """Adds the source of `code` to the record: a short file or a cell as a whole, otherwise the function's lines."""
    numbers = [n for _, _, n in code.co_lines() if n]
    add_lines(record, code.co_filename, range(min(numbers, default=1), max(numbers, default=1) + 1))


def add_lines(record: Record, filename: str, numbers: Iterable[int]) -> None:
    """Adds lines of a file to the record; of a short file or a cell, all."""
    lines = linecache.getlines(filename)
    if len(lines) <= MAX_WHOLE_FILE:
        numbers = range(1, len(lines) + 1)
    record.source_lines(filename, {n: lines[n - 1].rstrip("\n") for n in numbers if n <= len(lines)})


def format_stack(stack: Sequence[StackLine]) -> Iterator[str]:
    """Yields the lines of a stack in the format of Python's tracebacks."""
    for line in stack:
        yield f'  File "{line.filename}", line {line.lineno}, in {line.function}'
        if line.text:
            yield f"    {line.text}"
