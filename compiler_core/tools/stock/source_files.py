"""The user's lines to which stock's logs and graphs refer, and their texts in the record."""

from __future__ import annotations

import linecache
from dataclasses import dataclass

from compiler_core.records import ItemId, Record
from compiler_core.records.capture import StackLine, package_of

WHOLE_FILE_LINES = 400
"""Files of at most this many lines are recorded whole."""


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A line of the user's code, and the function it is in."""

    filename: str
    lineno: int
    function: str
    text: str


class SourceFiles:
    """Collects source lines and writes them to the record in one go.

    `read_files`: whether files may be read on this machine.  For a log from another machine they may not: the record
    then has only the text that the log contains.
    """

    def __init__(self, record: Record, read_files: bool) -> None:
        self._record = record
        self._read_files = read_files
        self._artifact_ids: dict[str, str] = {}
        self._by_base_name: dict[str, list[str]] = {}
        """Known files by the last part of their paths."""
        self._by_suffix: dict[str, tuple[str | None, int]] = {}
        """For each path suffix that was looked up: the file found, and how many candidates had been searched."""
        self._unwritten: dict[str, dict[int, str]] = {}

    def item(self, filename: str, lineno: int, text: str = "") -> ItemId | None:
        """Returns the item of a line and collects its text; None for a line of a frozen module or number 0."""
        if lineno < 1 or filename.startswith("<frozen"):
            return None
        if filename not in self._artifact_ids:
            self._add_file(filename)
        unwritten = self._unwritten[filename]
        if not unwritten.get(lineno):
            unwritten[lineno] = text or self._line_of_file(filename, lineno)
        return f"{self._artifact_ids[filename]}#{lineno}"

    def item_at(self, location: SourceLocation) -> ItemId | None:
        """Returns the item of the line at `location`."""
        return self.item(location.filename, location.lineno, self._logged_text(location.text))

    def link_stack_line(self, line: StackLine) -> StackLine:
        """Sets the item of a stack line, and its text where the trace has none."""
        line.line = self.item(line.filename, line.lineno, self._logged_text(line.text))
        line.text = line.text or self._unwritten.get(line.filename, {}).get(line.lineno, "").strip()
        return line

    def item_by_suffix(self, suffix: str, lineno: int, text: str) -> ItemId | None:
        """Returns the item of a line in the known file whose path ends with `suffix`; None if there is no such file."""
        filename = self._file_with_suffix(suffix)
        return None if filename is None else self.item(filename, lineno, self._logged_text(text))

    def lines_of_file(self, filename: str) -> list[str]:
        """Returns the lines of a file, each with its end; none if it may not be read, or cannot be."""
        return linecache.getlines(filename) if self._read_files else []

    def file_of(self, item: ItemId | None) -> str:
        """Returns the name of the file of a line's item; empty without one."""
        id_ = (item or "").partition("#")[0]
        return next((name for name, known in self._artifact_ids.items() if known == id_), "")

    def flush(self) -> None:
        """Writes the collected lines to the record's sources."""
        for filename, lines in self._unwritten.items():
            if lines:
                self._record.source_lines(filename, lines)
                lines.clear()

    def _logged_text(self, text: str) -> str:
        # A file that can be read gives the line with its indentation, which the trace does not.
        return "" if self._read_files else text

    def _line_of_file(self, filename: str, lineno: int) -> str:
        return linecache.getline(filename, lineno).rstrip("\n") if self._read_files else ""

    def _file_with_suffix(self, suffix: str) -> str | None:
        candidates = self._by_base_name.get(suffix.rpartition("/")[2], [])
        known, searched = self._by_suffix.get(suffix, (None, 0))
        if known is None and searched < len(candidates):
            known = next((name for name in candidates[searched:] if name.endswith(suffix)), None)
            self._by_suffix[suffix] = known, len(candidates)
        return known

    def _add_file(self, filename: str) -> None:
        self._artifact_ids[filename] = self._record.source_lines(filename, {}).id
        self._by_base_name.setdefault(filename.rpartition("/")[2], []).append(filename)
        lines = linecache.getlines(filename) if self._read_files and not package_of(filename) else []
        if len(lines) > WHOLE_FILE_LINES:
            lines = []
        self._unwritten[filename] = {number: line.rstrip("\n") for number, line in enumerate(lines, 1)}
