"""The file with the results of a sweep: SQLite, one table of rows that other tools read.

Workers in many processes write to it (write-ahead log, one short transaction at a time).  A worker claims a case before
it runs it, and renews the claim while it does; the claim of a worker that was killed expires.  So a finished case is
never run again, and an interrupted one is.  All workers need the file on a file system with locks, which network file
systems may lack.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from compiler_core.errors import UsageError

VERSION = 1
_TOKEN = secrets.token_hex(4)
"""Distinguishes this process from an earlier one with the same id."""
STALE_S = 30.0
"""Seconds after which a claim that was not renewed has expired."""
RENEW_S = 5.0
LOCK_S = 60.0
"""Seconds that a transaction waits for those of others."""

COLUMNS = {
    "name": "TEXT PRIMARY KEY", "state": "TEXT", "reason": "TEXT", "graphs": "INTEGER", "graph_breaks": "INTEGER",
    "recompiles": "INTEGER", "failures": "INTEGER", "compile_seconds": "REAL", "first_seconds": "REAL",
    "eager_seconds": "REAL", "compiled_seconds": "REAL", "speed": "REAL", "error": "REAL", "eager_error": "REAL",
    "peak_bytes": "INTEGER", "peak_device_bytes": "INTEGER", "seconds": "REAL", "attempts": "INTEGER",
    "record": "TEXT", "breaks": "TEXT", "failed": "TEXT", "traceback": "TEXT",
}  # fmt: skip
"""The columns of the table ``rows``; ``breaks`` and ``failed`` are lists as JSON."""
_JSON = ("breaks", "failed")

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE IF NOT EXISTS cases (
    name TEXT PRIMARY KEY, position INTEGER, owner TEXT DEFAULT '', renewed REAL DEFAULT 0, attempts INTEGER DEFAULT 0
);
CREATE TABLE IF NOT EXISTS runs (name TEXT, owner TEXT, started REAL, ended REAL, state TEXT);
CREATE TABLE IF NOT EXISTS rows ({", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())});
"""


class Store:
    """A file of results; each call is a transaction."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def records(self) -> Path:
        """The folder beside the file that has the records of the cases."""
        return self.path.with_name(f"{self.path.name}.records")

    def create(self, settings: Mapping[str, Any], names: Sequence[str]) -> None:
        """Makes the file if needed, and adds the cases that it does not have yet.

        Raises UsageError if the file does not hold a sweep, or one with other settings.
        """
        text = json.dumps(dict(settings), sort_keys=True)
        try:
            with self._transaction() as db:
                known = dict(db.execute("SELECT key, value FROM meta"))
                if known and known.get("version") != str(VERSION):
                    raise UsageError(f"{self.path} was written by another version of Cutaway; choose another file")
                if known and known["settings"] != text:
                    raise UsageError(
                        f"{self.path} has a sweep with other settings ({known['settings']}), whose rows cannot be "
                        "compared; choose another file"
                    )
                items = {"version": str(VERSION), "settings": text, "created": str(time.time())}
                db.executemany("INSERT OR IGNORE INTO meta VALUES (?, ?)", items.items())
                db.executemany("INSERT OR IGNORE INTO cases (name, position) VALUES (?, ?)",
                               [(name, position) for position, name in enumerate(names)])  # fmt: skip
        except sqlite3.DatabaseError as error:
            raise UsageError(f"{self.path} is not a file of a sweep: {error}") from None

    def claim(self, name: str) -> bool:
        """Claims a case for this process; False if it is finished.  Waits while another worker has it."""
        while True:
            with self._transaction() as db:
                if db.execute("SELECT 1 FROM rows WHERE name = ?", (name,)).fetchone():
                    return False
                found = db.execute("SELECT owner, renewed FROM cases WHERE name = ?", (name,)).fetchone()
                if not found or not found[0] or _has_expired(*found):
                    db.execute(
                        "UPDATE cases SET owner = ?, renewed = ?, attempts = attempts + 1 WHERE name = ?",
                        (_owner(), time.time(), name),
                    )
                    db.execute("UPDATE runs SET state = 'lost' WHERE name = ? AND ended IS NULL", (name,))
                    db.execute("INSERT INTO runs VALUES (?, ?, ?, NULL, 'running')", (name, _owner(), time.time()))
                    return True
            time.sleep(1)

    def renew(self, name: str) -> None:
        """Renews the claim of this process."""
        with self._transaction() as db:
            db.execute("UPDATE cases SET renewed = ? WHERE name = ? AND owner = ?", (time.time(), name, _owner()))

    def release(self, name: str, state: str) -> None:
        """Gives up a claim without writing a row, for another attempt."""
        with self._transaction() as db:
            self._end_run(db, name, state)
            db.execute("UPDATE cases SET owner = '' WHERE name = ?", (name,))

    def finish(self, name: str, row: Mapping[str, Any]) -> None:
        """Writes the row of a case."""
        with self._transaction() as db:
            attempts = db.execute("SELECT attempts FROM cases WHERE name = ?", (name,)).fetchone()
            full = {"name": name, "attempts": attempts[0] if attempts else 1, **row}
            full |= {key: json.dumps(full[key]) for key in _JSON if key in full}
            marks = ", ".join("?" * len(COLUMNS))
            db.execute(f"INSERT OR IGNORE INTO rows VALUES ({marks})", [full.get(column) for column in COLUMNS])
            db.execute("UPDATE cases SET owner = '' WHERE name = ?", (name,))
            self._end_run(db, name, str(row["state"]))

    def finished(self) -> set[str]:
        """Returns the names of the cases that have a row."""
        with self._reading() as db:
            return {name for (name,) in db.execute("SELECT name FROM rows")}

    def rows(self) -> list[dict[str, Any]]:
        """Returns all rows in the order of the cases, as dicts with the keys of `COLUMNS`."""
        with self._reading() as db:
            found = db.execute(
                "SELECT rows.* FROM rows LEFT JOIN cases USING (name) ORDER BY position, name"
            ).fetchall()
        rows = [dict(zip(COLUMNS, values, strict=True)) for values in found]
        for row in rows:
            row.update({key: json.loads(row[key] or "[]") for key in _JSON})
        return rows

    def runs(self) -> list[tuple[str, str]]:
        """Returns each run of each case: its name and how it ended."""
        with self._reading() as db:
            return list(db.execute("SELECT name, state FROM runs ORDER BY started"))

    def settings(self) -> dict[str, Any]:
        """Returns the settings of the sweep."""
        with self._reading() as db:
            found = db.execute("SELECT value FROM meta WHERE key = 'settings'").fetchone()
        settings: dict[str, Any] = json.loads(found[0]) if found else {}
        return settings

    @staticmethod
    def _end_run(db: sqlite3.Connection, name: str, state: str) -> None:
        db.execute(
            "UPDATE runs SET ended = ?, state = ? WHERE name = ? AND owner = ? AND ended IS NULL",
            (time.time(), state, name, _owner()),
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        db = sqlite3.connect(self.path, timeout=LOCK_S, isolation_level=None)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'rows'").fetchone():
                db.executescript(_SCHEMA)
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")
        finally:
            db.close()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        if not self.path.is_file():
            raise UsageError(f"{self.path}: there is no such file")
        db = sqlite3.connect(self.path, timeout=LOCK_S)
        try:
            yield db
        except sqlite3.DatabaseError as error:
            raise UsageError(f"{self.path} is not a file of a sweep: {error}") from None
        finally:
            db.close()


def _owner() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{_TOKEN}"


def _has_expired(owner: str, renewed: float) -> bool:
    """Whether the worker of a claim has ended: on this machine its process, elsewhere it did not renew the claim in
    time."""
    host, pid, token = owner.rsplit(":", 2)
    if host == socket.gethostname():
        if int(pid) == os.getpid():
            return token != _TOKEN  # an earlier process with the same number
        if Path("/proc/self").exists() and not Path(f"/proc/{pid}").exists():
            return True
    return time.time() - renewed > STALE_S
