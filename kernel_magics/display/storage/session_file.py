"""A temporary file for the texts of this process, in the form of an SQLite database.

SQLite makes the file in the folder for temporary files, readable by this user only, and removes its name at once, so
that nothing is left however the process ends.  The space of deleted texts is used again.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import deque

MAX_BYTES = 2 * 2**30
_PAGE_BYTES = 4096


class SessionFile:
    """Keeps texts by number."""

    def __init__(self) -> None:
        self._process, self._lock = os.getpid(), threading.Lock()
        self._deleted: deque[int] = deque()
        self._opened: sqlite3.Connection | None = None

    def write(self, text: str) -> int | None:
        """Returns the number of a text that was written.

        Returns None if it was not: the disk is full, the file has `MAX_BYTES`, or this is a forked process, which
        shares the file with its parent.
        """
        if os.getpid() != self._process:
            return None
        try:
            with self._lock:
                database = self._database()
                while self._deleted:
                    database.execute("DELETE FROM texts WHERE number = ?", (self._deleted.popleft(),))
                return database.execute("INSERT INTO texts (text) VALUES (?)", (text,)).lastrowid
        except sqlite3.Error:
            return None

    def read(self, number: int) -> str:
        """Returns a text; OSError if it cannot be read."""
        try:
            with self._lock:
                row = self._database().execute("SELECT text FROM texts WHERE number = ?", (number,)).fetchone()
        except sqlite3.Error as error:
            raise OSError(f"the temporary file of this session cannot be read: {error}") from None
        return str(row[0])

    def delete(self, number: int) -> None:
        """Deletes a text with the next write.  May be called wherever Python frees objects, so it takes no lock."""
        self._deleted.append(number)

    def _database(self) -> sqlite3.Connection:
        if self._opened is None:
            self._opened = sqlite3.connect("", isolation_level=None, check_same_thread=False)
            self._opened.execute("PRAGMA journal_mode = OFF")
            self._opened.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            self._opened.execute(f"PRAGMA max_page_count = {MAX_BYTES // _PAGE_BYTES}")
            self._opened.execute("CREATE TABLE texts (number INTEGER PRIMARY KEY, text TEXT)")
        return self._opened
