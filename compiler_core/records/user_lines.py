"""The user's lines: those from which the items of a record were made, and those to which graphs of others refer."""

from __future__ import annotations

import linecache
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from compiler_core.records.artifacts import ItemId
from compiler_core.records.capture import StackLine, package_of
from compiler_core.records.kernels import Kernel
from compiler_core.records.record import Compile, Record

LineRef = tuple[str, int]
"""A file name and a line number."""
UNKNOWN_LINE = ("", 0)


class ItemLines:
    """Finds the user's line of any item, by the links of the compiles.

    Args:
        source: a record, or a compile alone.
    """

    def __init__(self, source: Record | Compile) -> None:
        self.source = source
        self.record = source if isinstance(source, Record) else source._record
        self.compiles = source.compiles if isinstance(source, Record) else [source]
        sources = self.record.sources if self.record else []
        self._files = {artifact.id: artifact.name for artifact in sources}
        self._texts = {
            (a.name, _line_number(span.key)): line
            for a in sources
            for span, line in zip(a.spans, a.text.split("\n"), strict=False)
        }
        self._frames = {frame.id: (frame.filename, frame.line) for frame in (self.record.frames if self.record else ())}
        self._sources_of: dict[ItemId, list[ItemId]] = {}
        for compile_ in self.compiles:
            for edge in compile_.edges:
                self._sources_of.setdefault(edge.made, []).extend(edge.sources)
        self._distances = self._links_to_lines()
        self._lines: dict[ItemId, LineRef] = {}

    def file_lines(self) -> dict[str, dict[int, str]]:
        """Returns the recorded lines of each file, by number."""
        files: dict[str, dict[int, str]] = {}
        for (file, number), text in self._texts.items():
            files.setdefault(file, {})[number] = text
        return files

    def text(self, line: LineRef) -> str:
        """Returns the text of a line; empty if it is not recorded."""
        return self._texts.get(line, "")

    def line_of(self, item: ItemId | None) -> LineRef:
        """Returns the user's line from which an item was made by the fewest links, the first of several."""
        if item is None:
            return UNKNOWN_LINE
        path = [item]
        while path[-1] not in self._lines and self._distances.get(path[-1]):
            nearer = self._distances[path[-1]] - 1
            path.append(next(each for each in self._sources_of[path[-1]] if self._distances.get(each) == nearer))
        line = self._lines.get(path[-1]) or self._line_itself(path[-1]) or UNKNOWN_LINE
        self._lines.update(dict.fromkeys(path, line))
        return line

    def _line_itself(self, item: ItemId) -> LineRef | None:
        """Returns the line if the item is a line of source."""
        artifact, _, key = item.partition("#")
        return (self._files[artifact], _line_number(key)) if artifact in self._files else None

    def _links_to_lines(self) -> dict[ItemId, int]:
        """Returns, for each item that was made from lines of source, the fewest links to one."""
        made_from: dict[ItemId, list[ItemId]] = {}
        for made, sources in self._sources_of.items():
            for source in sources:
                made_from.setdefault(source, []).append(made)
        distances = dict.fromkeys((item for item in made_from if self._line_itself(item)), 0)
        work = deque(distances)
        while work:
            reached = work.popleft()
            for made in made_from.get(reached, ()):
                if made not in distances:
                    distances[made] = distances[reached] + 1
                    work.append(made)
        return distances

    def first_line(self, compile_: Compile) -> LineRef:
        """Returns the first line of the function that was compiled."""
        return self._frames.get(compile_.frame, UNKNOWN_LINE)

    def kernel_lines(self) -> Iterator[tuple[Kernel, list[LineRef]]]:
        """Yields each kernel with the lines of all operations that it computes."""
        for compile_ in self.compiles:
            nodes = {fusion.kernel: fusion.nodes for fusion in compile_.fusions}
            for kernel in compile_.kernels:
                lines = {self.line_of(node) for node in nodes.get(kernel.key) or nodes.get(kernel.name) or ()}
                known = sorted(line for line in lines if line[1])
                yield kernel, known or [self.line_of(kernel.item)]


def _line_number(key: str) -> int:
    """Returns the number of a line of source; 0 for a key that is none."""
    return int(key) if key.isascii() and key.isdigit() and len(key) < 10 else 0


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
