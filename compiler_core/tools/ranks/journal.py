"""A journal: a file to which a record is appended while it grows, so that it can be read if the process is killed.

Each line is a JSON object: the head of the record, a source, a compile with its frame, or collectives.  A later
line about the same source or compile replaces an earlier one.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compiler_core.records import Compile, Event, Record, RecordError, limits, to_plain
from compiler_core.records.plain import public_fields, without_gc
from compiler_core.tools.growing_file import GrowingFile

FORMAT = "cutaway journal"
WAIT_S = 0.5
"""Seconds between two looks at what is new."""
RUNNING_S = 2.0
"""Seconds after which a compile that still runs is written again."""
_HEAD_FIELDS = ("schema_version", "engine", "title", "created", "versions", "options", "labels", "notes")


class Journal:
    """Appends a record to a file until `close`; the file is made when there is something to write.

    Args:
        record: the record, which is open.
        path: the file.
    """

    def __init__(self, record: Record, path: str | Path) -> None:
        self._record = record
        self._grown = GrowingFile(path, lambda: _json(self._head()) + "\n")
        self._process = os.getpid()
        self._lock, self._calls_lock = threading.RLock(), threading.RLock()
        self._new: dict[str, Compile] = {}
        self._written: dict[str, tuple[float, int]] = {}
        self._sources: dict[str, int] = {}
        self._collectives = 0
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._stop_listening = record.listen(self._on_event)

    def close(self) -> None:
        """Writes the rest and ends the journal."""
        if self._closed.is_set() or os.getpid() != self._process:
            return
        self._closed.set()
        self._stop_listening()
        for compile_ in self._record.compiles:
            self._new[compile_.id] = compile_
        self._write_new(is_last=True)
        if not self._grown.is_new:
            self._write_line(self._head())  # with all notes
        self._grown.close()

    def _on_event(self, compile_: Compile, event: Event) -> None:
        if os.getpid() != self._process:  # a fork of the process has no thread, and must not write to the file
            return
        self._new[compile_.id] = compile_
        if self._thread is None and not self._closed.is_set():
            self._thread = threading.Thread(target=self._write_for_ever, name="cutaway journal", daemon=True)
            self._thread.start()

    def write_collectives(self) -> None:
        """Writes the collectives that are new in the record."""
        with self._calls_lock:
            new = self._record.collectives[self._collectives :]
            if new and os.getpid() == self._process:
                self._collectives += len(new)
                self._write_line({"collectives": to_plain(new)})

    def _write_for_ever(self) -> None:
        while not self._closed.wait(WAIT_S):
            self._write_new()

    def _write_new(self, is_last: bool = False) -> None:
        with self._lock:
            self.write_collectives()
            for id_, compile_ in list(self._new.items()):
                last, size = self._written.get(id_, (0.0, -1))
                is_running = compile_.outcome == "running"  # before its line is made: it may end meanwhile
                if is_running and not is_last and time.monotonic() - last < RUNNING_S:
                    continue
                try:
                    line = self._compile_line(compile_)
                except RuntimeError:  # it changed meanwhile
                    continue
                self._new.pop(id_, None)
                if is_running:
                    self._new[id_] = compile_
                if hash(line) != size:
                    self._written[id_] = (time.monotonic(), hash(line))
                    self._write_sources()
                    self._write_text(line)

    def _head(self) -> dict[str, Any]:
        return {"format": FORMAT, "head": {name: to_plain(getattr(self._record, name)) for name in _HEAD_FIELDS}}

    def _compile_line(self, compile_: Compile) -> str:
        frame = next((each for each in self._record.frames if each.id == compile_.frame), None)
        if frame is None:
            return ""
        names = [field.name for field in public_fields(type(frame)) if field.name != "compiles"]
        plain = {"frame": {name: to_plain(getattr(frame, name)) for name in names}, "compile": to_plain(compile_)}
        return _json(plain)

    def _write_sources(self) -> None:
        for source in list(self._record.sources):
            if self._sources.get(source.id) != len(source.text):
                self._sources[source.id] = len(source.text)
                self._write_line({"source": to_plain(source)})

    def _write_line(self, plain: dict[str, Any]) -> None:
        self._write_text(_json(plain))

    def _write_text(self, text: str) -> None:
        if text:
            self._grown.write(f"{text}\n")


def _json(plain: dict[str, Any]) -> str:
    return json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def is_journal(first_bytes: bytes) -> bool:
    """Whether a file that begins with these bytes is a journal."""
    return first_bytes.startswith(f'{{"format":"{FORMAT}"'.encode())


def read_journal(path: str | Path) -> Record:
    """Reads a journal.  Lines that are damaged, and a last one that is incomplete, are left out with a note.

    Raises:
        RecordError: the file is not a journal, or what is left of it is not a record.
    """
    head: dict[str, Any] = {}
    sources: dict[str, Any] = {}
    frames: dict[int, dict[str, Any]] = {}
    compiles: dict[str, Any] = {}
    collectives: list[Any] = []
    notes, heads = [], 0
    for number, line, is_complete in _lines(Path(path)):
        entry = _parsed(line)
        if entry is None and not is_complete:
            notes.append("The last entry is incomplete: the process ended while it was written.")
        elif entry is None:
            notes.append(f"Line {number} is damaged and left out.")
        elif "head" in entry:
            head, heads = entry["head"], heads + 1
        elif "source" in entry:
            sources[entry["source"]["id"]] = entry["source"]
        elif "collectives" in entry:
            collectives += entry["collectives"]
        else:
            frames[entry["frame"]["id"]] = entry["frame"]
            compiles[entry["compile"]["id"]] = entry["compile"]
    if not head:
        raise RecordError(f"{path}: not a journal of Cutaway")
    if heads == 1:  # `close` writes it again
        notes.append(
            "The process did not close the file: it was killed, or it runs. "
            f"Of its compiles the last {WAIT_S} s may be missing."
        )
    for frame in frames.values():
        frame["compiles"] = [each for each in compiles.values() if each.get("frame") == frame["id"]]
    plain = {**head, "sources": list(sources.values()), "frames": [frames[id_] for id_ in sorted(frames)],
             "collectives": collectives}  # fmt: skip
    try:
        record = without_gc(lambda: Record.from_plain(plain))
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from None
    record.notes += notes[: limits.NOTES]
    return record


def _lines(path: Path) -> Iterator[tuple[int, bytes, bool]]:
    """Yields the number of each line, its text, and whether it has an end."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(limits.JSON):
            number += 1
            yield number, line, line.endswith(b"\n")


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Returns an entry; None if it is damaged."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    kinds = {"head": dict, "source": dict, "compile": dict, "collectives": list}
    known = [key for key, kind in kinds.items() if isinstance(entry.get(key), kind)]
    if not known:
        return None
    if "source" in known and not isinstance(entry["source"].get("id"), str):
        return None
    if "compile" in known:
        frame = entry.get("frame")
        if not isinstance(frame, dict) or not isinstance(frame.get("id"), int):
            return None
        if not isinstance(entry["compile"].get("id"), str):
            return None
    return entry
