"""The user's lines that a stock compile names, as items of the record."""

from __future__ import annotations

import linecache

from compiler_core.records import ItemId, Record, StackLine
from compiler_core.stock.read.graph_text import Place

WHOLE = 400
"""Files up to so many lines are kept whole."""


class Lines:
    """Collects lines and writes them to the record once.  `files`: whether the files may be read here; those of
    a log from elsewhere may not, so that only what the log says is shown."""

    def __init__(self, record: Record, files: bool) -> None:
        self._record = record
        self._files = files
        self._ids: dict[str, str] = {}
        self._by_last: dict[str, list[str]] = {}
        """The files by the last part of their names."""
        self._ending: dict[str, tuple[str | None, int]] = {}
        """The file whose name ends so, and among how many it was looked for."""
        self._new: dict[str, dict[int, str]] = {}

    def item(self, filename: str, lineno: int, text: str = "") -> ItemId | None:
        if lineno < 1 or filename.startswith("<frozen"):
            return None
        if filename not in self._ids:
            self._open(filename)
        new = self._new[filename]
        if not new.get(lineno):
            new[lineno] = text or (linecache.getline(filename, lineno).rstrip("\n") if self._files else "")
        return f"{self._ids[filename]}#{lineno}"

    def of(self, place: Place) -> ItemId | None:
        # a file that can be read says it with its indentation
        return self.item(place.filename, place.lineno, "" if self._files else place.text)

    def stack_line(self, line: StackLine) -> StackLine:
        line.line = self.item(line.filename, line.lineno, "" if self._files else line.text)
        line.text = line.text or self._new.get(line.filename, {}).get(line.lineno, "").strip()
        return line

    def ending(self, tail: str, lineno: int, text: str) -> ItemId | None:
        """A line of the file whose name ends so, among those that are known already."""
        filename = self._file_ending(tail)
        return self.item(filename, lineno, "" if self._files else text) if filename is not None else None

    def _file_ending(self, tail: str) -> str | None:
        same = self._by_last.get(tail.rpartition("/")[2], [])
        known, seen = self._ending.get(tail, (None, 0))
        if known is None and seen < len(same):
            known = next((name for name in same[seen:] if name.endswith(tail)), None)
            self._ending[tail] = known, len(same)
        return known

    def flush(self) -> None:
        """Write what was collected into the record's sources."""
        for filename, lines in self._new.items():
            if lines:
                self._record.source_lines(filename, lines)
                lines.clear()

    def _open(self, filename: str) -> None:
        self._ids[filename] = self._record.source_lines(filename, {}).id
        self._by_last.setdefault(filename.rpartition("/")[2], []).append(filename)
        whole = linecache.getlines(filename) if self._files and "site-packages" not in filename else []
        kept = whole if len(whole) <= WHOLE else []
        self._new[filename] = {number: line.rstrip("\n") for number, line in enumerate(kept, 1)}
