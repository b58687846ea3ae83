"""Reads the logs that PyTorch writes under ``TORCH_TRACE`` into records: one for each file, that is for each rank.

A file is read in chunks, and events are kept up to a budget (`compiler_core.records.limits`), so memory stays bounded
for logs of any length; the record's notes count what was left out.  Logs are untrusted input: nothing in them is run,
and text that PyTorch would not write raises a `RecordError` with the file and the line, or is left out with a note.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import sys
import typing
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from compiler_core.records import Record, RecordError, limits
from compiler_core.tools.stock.build.memory_budget import MemoryBudget
from compiler_core.tools.stock.build.record_builder import RecordBuilder
from compiler_core.tools.stock.read.trace_event import OBSERVER_PREFIX, parse_event

CHUNK_BYTES = 4 * 1024 * 1024
MAX_ENTRY_BYTES = limits.ENTRY
MAX_METADATA_BYTES = limits.TEXT // 4
"""Bytes of an entry's first line, the metadata as JSON."""

Progress = Callable[[int, int], Any]
"""Called with the bytes read so far and the bytes of all files."""

_ENTRY = re.compile(rb"\n(?=[VIWEC]\d{4} )")
_HEAD = re.compile(rb"[VIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ \S+:\d+\] ")
_NOT_INDENTED = re.compile(rb"\n(?!\t)")
_RANK = re.compile(r"rank_(\d+)")
_SKIPPED_EVENTS = (b'{"describe_', b'{"link"', b'{"dump_file"')


MAX_DAMAGE_NOTED = 5
"""Damaged entries that a note names."""


def read_logs(
    path: str | Path, progress: Progress | None = None, budget: int = limits.MEMORY, *, strict: bool = True
) -> list[Record]:
    """Reads the logs that PyTorch wrote under ``TORCH_TRACE``.

    Args:
        path: a folder, of which all files ``*.log`` and ``*.log.gz`` are read, or one file.
        progress: called after each chunk with the bytes read so far and the bytes of all files.
        budget: the bytes of memory that all records together may take; each file gets an equal share.
        strict: a damaged entry is an error; with False it is left out, and a note of the record says so.

    Returns:
        A record for each file, in the order of the file names; its title is ``rank N`` if the file name has one.

    Raises:
        RecordError: there is no log at `path`, or a file is not a log of PyTorch's.

    Example::

        for record in compiler_core.read_logs("/tmp/traces"):
            print(record.title, len(record.compiles))
    """
    path = Path(path)
    files = sorted([*path.glob("*.log"), *path.glob("*.log.gz")]) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise RecordError(f"{path}: there is no log")
    total = sum(file.stat().st_size for file in files)
    done, records = 0, []
    for file in files:

        def report(read: int, before: int = done) -> None:
            if progress is not None:
                progress(before + read, total)

        records.append(read_log(file, budget // len(files), strict=strict, progress=report))
        done += file.stat().st_size
    return records


def read_log(
    file: Path, budget: int = limits.MEMORY, *, strict: bool = True, progress: Callable[[int], Any] = lambda read: None
) -> Record:
    """Reads one log, as `read_logs` does; `progress` is called with the bytes of the file that are read."""
    reader = LogReader(file, budget, strict)
    with file.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        if file.suffix != ".gz":
            for _ in reader.read(stream, size):
                progress(stream.tell())
            return reader.close()
        with gzip.open(stream) as unpacked:
            try:
                for _ in reader.read(typing.cast(BinaryIO, unpacked)):
                    progress(min(stream.tell(), size))
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                reader.cannot_unpack(error)
    return reader.close()


class LogReader:
    """Reads one file into a record."""

    def __init__(self, file: Path, budget: int, strict: bool = True) -> None:
        rank = _RANK.search(file.name)
        self.record = Record(engine="torch", title=f"rank {rank[1]}" if rank else file.name)
        self._builder = RecordBuilder(self.record, None, read_files=False, budget=budget - budget // 8)
        self._file, self._strict = file, strict
        self._damaged: list[str] = []
        self._damaged_count = self._read_count = 0
        self._line = 1
        self._texts: dict[str, str] = {}
        """Payloads by PyTorch's digest, so that equal texts are held once."""
        self._texts_budget = MemoryBudget(budget // 8)

    def read(self, stream: BinaryIO, size: int = sys.maxsize) -> Iterator[int]:
        """Reads a stream, at most `size` bytes of it; yields the number of bytes after each chunk."""
        rest = b""
        while chunk := stream.read(min(CHUNK_BYTES, size)):
            size -= len(chunk)
            *entries, rest = _ENTRY.split(rest + chunk)
            for entry in entries:
                self._read_or_skip(entry)
            if len(rest) > MAX_ENTRY_BYTES:
                raise self._error(f"an entry of more than {MAX_ENTRY_BYTES:,} bytes")
            self._builder.process_pending()
            yield len(chunk)
        if not size and stream.read(1):  # the last entry may be incomplete
            self.record.notes.append("The log grew while it was read; what was added is left out.")
        elif rest:
            self._read_or_skip(rest.removesuffix(b"\n"))
        self._builder.process_pending()

    def close(self) -> Record:
        """Finishes and returns the record; raises RecordError if all entries of the log are damaged."""
        if self._damaged_count and not self._read_count:
            raise RecordError(self._damaged[0])
        self._builder.close()
        if self._damaged_count:
            more = self._damaged_count - len(self._damaged)
            named = "; ".join(self._damaged) + (f"; and {more:,} more" if more else "")
            self.record.notes.append(f"Damaged entries are left out, {self._damaged_count:,}: {named}.")
        return self.record

    def cannot_unpack(self, error: Exception) -> None:
        """Notes that the rest of a compressed file cannot be read; raises RecordError if the reader is strict."""
        if self._strict:
            raise RecordError(f"{self._file}: the compressed file is damaged: {error}") from None
        self.record.notes.append(f"The compressed file is damaged or ends early, its rest is left out: {error}.")

    def _read_or_skip(self, entry: bytes) -> None:
        """Reads an entry; a damaged one is left out, unless the reader is strict."""
        line = self._line
        try:
            self._read_entry(entry)
            self._read_count += 1
        except RecordError as error:
            if self._strict:
                raise
            self._damaged_count += 1
            if len(self._damaged) < MAX_DAMAGE_NOTED:
                self._damaged.append(limits.truncate(str(error), 300))
        self._line = line + entry.count(b"\n") + 1

    def _read_entry(self, entry: bytes) -> None:
        head = _HEAD.match(entry)
        if head is None:
            start = entry[:40].decode("utf-8", "replace").partition("\n")[0]
            raise self._error(f"{start!r} does not begin as the entries of PyTorch's logs do")
        if not entry.startswith(_SKIPPED_EVENTS, head.end()):
            end = entry.find(b"\n")
            metadata = entry[head.end() : end if end >= 0 else len(entry)]
            self._add_event(metadata, entry[end:] if end >= 0 else None)

    def _add_event(self, metadata: bytes, payload: bytes | None) -> None:
        if len(metadata) > MAX_METADATA_BYTES:
            self._builder.budget.left_out["long entries"] += 1
            return
        parsed = self._parse_metadata(metadata)
        text = None
        if payload is not None:
            text = self._payload_text(limits.truncate(str(parsed.get("has_payload", ""))), payload)
        event = parse_event(parsed, text, 0)
        event.metadata_size = len(metadata)
        if not event.name.startswith(OBSERVER_PREFIX):  # such data are Python objects, which a log cannot have
            self._builder.add(event)

    def _parse_metadata(self, text: bytes) -> dict[str, Any]:
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self._error(f"not JSON: {error}") from None
        if not isinstance(parsed, dict):
            raise self._error(f"expected an object, got {type(parsed).__name__}")
        return parsed

    def _payload_text(self, digest: str, payload: bytes) -> str:
        """Returns the payload without the tab that PyTorch puts before each line, cut to `limits.TEXT`."""
        if payload.count(b"\n") != payload.count(b"\n\t"):
            unindented = _NOT_INDENTED.search(payload)
            offset = payload.count(b"\n", 0, unindented.start() + 1) if unindented else 0
            raise self._error("a line that belongs to no entry", offset)
        end = limits.TEXT - limits.TRUNCATION_NOTE if len(payload) > limits.TEXT else len(payload)
        text = payload[2:end].replace(b"\n\t", b"\n").decode("utf-8", "replace")
        if end < len(payload):
            self._builder.budget.left_out["ends of long texts"] += 1
            text += f"… ({len(payload) - end:,} bytes left out)"
        known = self._texts.get(digest)
        if known == text:
            return known
        if digest and len(text) >= 1000 and self._texts_budget.reserve(text.__sizeof__()):
            self._texts[digest] = text
        return text

    def _error(self, message: str, line_offset: int = 0) -> RecordError:
        return RecordError(f"{self._file}:{self._line + line_offset}: {message}")
