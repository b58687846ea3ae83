"""Logs that PyTorch wrote under ``TORCH_TRACE``, read into records: one for each file, that is for each rank.

A file is read in pieces and what it tells is kept up to a budget (`record.limits`), so memory stays bounded however
long the log is; what was left out is counted in the record's notes.  A log is data from a stranger: nothing in it is
run, and what is not as PyTorch writes it is a `RecordError` that names the file and the line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from compiler_core.records import Record, RecordError, limits
from compiler_core.stock.memory_budget import Room
from compiler_core.stock.read.trace_event import OWN, happened
from compiler_core.stock.record_builder import Filler

PIECE = 4 * 1024 * 1024
LONGEST = limits.ENTRY
LONGEST_HEAD = limits.TEXT // 4
"""Bytes of what an entry says of itself, which is JSON."""

Progress = Callable[[int, int], Any]

_ENTRY = re.compile(rb"\n(?=[VIWEC]\d{4} )")
_HEAD = re.compile(rb"[VIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ \S+:\d+\] ")
_NOT_INDENTED = re.compile(rb"\n(?!\t)")
_RANK = re.compile(r"rank_(\d+)")
_SILENT = (b'{"describe_', b'{"link"', b'{"dump_file"')


def read_logs(path: str | Path, progress: Progress | None = None, budget: int = limits.MEMORY) -> list[Record]:
    """The records of a folder of logs, or of one file.  `progress` is called with bytes read and bytes there are.
    `budget`: the bytes that the records may take together."""
    path = Path(path)
    files = sorted(path.glob("*.log")) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise RecordError(f"{path}: there is no log")
    whole, done, records = sum(file.stat().st_size for file in files), 0, []
    for file in files:
        log = Log(file, budget // len(files))
        with file.open("rb") as opened:
            for size in log.read(opened):
                done += size
                if progress is not None:
                    progress(done, whole)
        records.append(log.close())
    return records


class Log:
    """One file on its way into a record."""

    def __init__(self, file: Path, budget: int) -> None:
        rank = _RANK.search(file.name)
        self.record = Record(engine="torch", title=f"rank {rank[1]}" if rank else file.name)
        self._filler = Filler(self.record, None, files=False, budget=budget - budget // 8)
        self._file = file
        self._line = 1
        self._texts: dict[str, str] = {}
        self._room = Room(budget // 8)

    def read(self, opened: BinaryIO) -> Iterator[int]:
        """Read all of it; gives the bytes of each piece."""
        rest = b""
        while piece := opened.read(PIECE):
            *entries, rest = _ENTRY.split(rest + piece)
            for entry in entries:
                self._entry(entry)
            if len(rest) > LONGEST:
                raise self._error(f"an entry of more than {LONGEST:,} bytes")
            self._filler.read()
            yield len(piece)
        if rest:
            self._entry(rest.removesuffix(b"\n"))
        self._filler.read()

    def close(self) -> Record:
        self._filler.close()
        return self.record

    def _entry(self, entry: bytes) -> None:
        head = _HEAD.match(entry)
        if head is None:
            raise self._error(f"{entry[:40]!r} does not begin as PyTorch's entries do")
        if not entry.startswith(_SILENT, head.end()):
            end = entry.find(b"\n")
            self._hear(entry[head.end() : end if end >= 0 else len(entry)], entry[end:] if end >= 0 else None)
        self._line += entry.count(b"\n") + 1

    def _hear(self, head: bytes, payload: bytes | None) -> None:
        if len(head) > LONGEST_HEAD:
            self._filler.room.left_out["long entries"] += 1
            return
        metadata = self._metadata(head)
        text = self._text(limits.cut(str(metadata.get("has_payload", ""))), payload) if payload is not None else None
        told = happened(metadata, text, 0)
        told.size = len(head)
        if not told.name.startswith(OWN):  # what only we tell, in process, is no text
            self._filler.hear(told)

    def _metadata(self, text: bytes) -> dict[str, Any]:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self._error(f"not JSON: {error}") from None
        if not isinstance(found, dict):
            raise self._error(f"expected an object, got {type(found).__name__}")
        return found

    def _text(self, digest: str, payload: bytes) -> str:
        """The payload, whose lines are indented by a tab; a text that was there before is kept once."""
        if payload.count(b"\n") != payload.count(b"\n\t"):
            bad = _NOT_INDENTED.search(payload)
            at = payload.count(b"\n", 0, bad.start() + 1) if bad else 0
            raise self._error("a line that belongs to no entry", at)
        end = limits.TEXT - limits.CUT if len(payload) > limits.TEXT else len(payload)
        text = payload[2:end].replace(b"\n\t", b"\n").decode("utf-8", "replace")
        if end < len(payload):
            self._filler.room.left_out["ends of long texts"] += 1
            text += f"… ({len(payload) - end:,} bytes left out)"
        known = self._texts.get(digest)
        if known == text:
            return known
        if digest and len(text) >= 1000 and self._room.fits(text.__sizeof__()):
            self._texts[digest] = text
        return text

    def _error(self, what: str, below: int = 0) -> RecordError:
        return RecordError(f"{self._file}:{self._line + below}: {what}")
