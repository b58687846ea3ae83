"""The user's lines from which the items of a record were made."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from compiler_core.records.artifacts import ItemId
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
