"""Finds the user's line for which a guard of stock `torch.compile` was made."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from compiler_core.records import Frame, Guard, ItemId
from compiler_core.records.capture import library_of
from compiler_core.tools.stock.source_files import SourceFiles

_LAST_STEP = re.compile(r"(\.\w+(\(\))?|\[[^\[\]]*\])$")
_KEYS = re.compile(r"(?:list\()?dict\.\w+\((.+?)\)\)?(\[\d+\])?$")
_ARGUMENT = re.compile(r"L\['\w+'\]$")


class GuardLines:
    """The lines of the guards of one compile.

    The guard tree names the innermost line, which for modules of PyTorch is a line of PyTorch's.  The observer knows
    the user's line by source; in a log, the line of what a source is a part of is taken.
    """

    def __init__(self, lines: SourceFiles, frame: Frame, observed: Mapping[str, tuple[str, int]]) -> None:
        self._lines = lines
        self._frame = frame
        self._observed = observed
        self._known: dict[str, ItemId] = {}

    def of(self, guard: Guard, logged: tuple[str, int, str] | None) -> ItemId | None:
        """Returns the item of the guard's line; `logged` is the line that the guard tree names."""
        line = self._lines.item_by_suffix(*logged) if logged else None
        if line is None and (at := self._observed.get(guard.source)):
            line = self._lines.item(*at)
        if line is None:
            line = next((self._known[part] for part in _parts(guard.source) if part in self._known), None)
        if line is None and _ARGUMENT.match(guard.source):
            line = self._lines.item(self._frame.filename, self._frame.line)
        if line is not None:
            self._known.setdefault(guard.source, line)
        return line

    def caller_of(self, guard: Guard) -> ItemId | None:
        """Returns the item of the user's line that called the function in which a guard's value was read, if it was
        observed and the function is a library's."""
        at = self._observed.get(guard.source)
        return self._lines.item(*at) if at and library_of(self._lines.file_of(guard.line)) else None


def _parts(source: str) -> Iterator[str]:
    """Yields a source, and what it is a part of: ``L['self'].a.b``, ``L['self'].a``, ``L['self']``."""
    while True:
        yield source
        if keys := _KEYS.match(source):
            source = keys[1]
            continue
        shorter = _LAST_STEP.sub("", source)
        if shorter == source or not shorter or shorter in "LG":
            return
        source = shorter
