"""Frees the large fields of records that an explorer shows; they are read again when such a record is used.

A record that was shown is mostly looked at in the page, which has its own copy.
"""

from __future__ import annotations

import functools
import json
import sys
import threading
import weakref
from collections.abc import Sequence
from typing import Any

from compiler_core.records import Compile, Record
from compiler_core.records.record import LARGE_FIELDS
from kernel_magics.display.packing import pack, unpack
from kernel_magics.display.storage.session_file import SessionFile

_file = SessionFile()
_shown: dict[int, weakref.ref[Record]] = {}
"""The records that explorers show or have shown, by id; the one shown last is the last."""


class StoredRecord:
    """A packed record in the session's file, which is deleted there when nobody has this object any more."""

    def __init__(self, number: int) -> None:
        self._number = number
        weakref.finalize(self, _file.delete, number).atexit = False

    def packed(self) -> dict[str, Any]:
        """Returns the packed record."""
        found: dict[str, Any] = json.loads(_file.read(self._number))
        return found

    def __call__(self) -> Record:
        """Returns the record, of any size: it is our own."""
        return unpack(self.packed(), sys.maxsize)


class StoredFields:
    """The large fields of a record's compiles while they are in the session's file."""

    def __init__(self, record: Record, compiles: Sequence[Compile], stored: StoredRecord) -> None:
        """Frees the fields of these compiles."""
        self.stored: StoredRecord | None = stored
        """None once they are in memory again."""
        self._lock = threading.RLock()
        self._record, self._compiles = weakref.ref(record), compiles
        with self._lock:  # another thread, which has the page's messages, may read one meanwhile
            for compile_ in compiles:
                compile_.free(self)
            record._freed = self

    def read_again(self) -> None:
        with self._lock:
            if self.stored is not None:
                found = {each.id: each for each in self.stored().compiles}
                for compile_ in self._compiles:
                    for name in LARGE_FIELDS:
                        setattr(compile_, name, getattr(found[compile_.id], name))
                    compile_._freed = None
                if record := self._record():
                    record._freed = None
                self.stored, self._compiles = None, []


def install(shell: Any) -> None:
    """Registers the callback that frees records at the end of a cell."""
    shell.events.register("post_run_cell", on_cell_end)


def remove(shell: Any) -> None:
    """Removes the callback of `install`."""
    if on_cell_end in shell.events.callbacks["post_run_cell"]:
        shell.events.unregister("post_run_cell", on_cell_end)


def packed(record: Record) -> dict[str, Any]:
    """Returns the packed record: as it was shown if it is in the session's file, else as it is now."""
    freed = record._freed
    stored = freed.stored if isinstance(freed, StoredFields) else None
    return stored.packed() if stored else pack(record)


def add(record: Record) -> None:
    """Notes that a record is shown."""
    key = id(record)
    _shown.pop(key, None)
    _shown[key] = weakref.ref(record, functools.partial(_shown.pop, key))


def find(title: str) -> Record | None:
    """Returns the record with this title that was shown last; None if there is none any more."""
    records = [reference() for reference in reversed(list(_shown.values()))]
    return next((record for record in records if record is not None and record.title == title), None)


def free(record: Record, compiles: Sequence[Compile], packed: dict[str, Any]) -> None:
    """Writes a packed record to the session's file, and frees the large fields of its compiles.

    They stay in memory if it cannot be written.

    Args:
        record: the record.
        compiles: its compiles that had ended when it was packed.
        packed: the packed record.
    """
    number = _file.write(json.dumps(packed))
    if number is None:
        _shown.pop(id(record), None)
    elif record._freed is None:
        StoredFields(record, compiles, StoredRecord(number))


def free_again(record: Record) -> None:
    """Packs a record as it is now, and frees it."""
    compiles = ended_compiles(record)
    free(record, compiles, pack(record))


def on_cell_end(_: Any) -> None:
    """Frees the records that were shown and have been used since, except the one shown last."""
    for reference in list(_shown.values())[:-1]:
        record = reference()
        if record is not None and record._freed is None:
            free_again(record)


def ended_compiles(record: Record) -> list[Compile]:
    """Returns the compiles whose large fields do not change any more unless somebody adds to them."""
    return [each for each in record.compiles if each.outcome != "running"]
