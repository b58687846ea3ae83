"""A file that grows while a process runs: each text is handed to the operating system at once.

The file of a program that is only observed must never end it: a full disk ends the file, with one message.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path


def make_folder(folder: str | Path) -> Path:
    """Makes a folder for such files, unless it is there, and returns its path.

    Raises:
        OSError: it cannot be made, or nothing can be written in it.
    """
    path = Path(folder).absolute()
    path.mkdir(parents=True, exist_ok=True)
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "The folder cannot be written", str(path))
    return path


class GrowingFile:
    """Appends texts to a file, which is made at the first one; a fork of the process writes nothing.

    Args:
        path: the file.  Its folder is made, too.
        head: returns what the file begins with.
    """

    def __init__(self, path: str | Path, head: Callable[[], str] = str) -> None:
        self.path, self._head = Path(path), head
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._file: int | None = None
        self._has_ended = False

    @property
    def is_new(self) -> bool:
        """Whether nothing has been written."""
        return self._file is None

    def write(self, text: str) -> None:
        """Appends a text; does nothing after `close`, and after a write that failed."""
        if self._has_ended or os.getpid() != self._process:
            return
        with self._lock:
            try:
                if self._file is None:
                    self._file = self._open()
                    text = self._head() + text
                data = text.encode("utf-8", "backslashreplace")
                while data:
                    data = data[os.write(self._file, data) :]
            except OSError as error:
                self._has_ended = True
                sys.stderr.write(f"cutaway: {self.path} is not written any further: {error.strerror}\n")

    def close(self) -> None:
        """Ends the file."""
        with self._lock:
            self._has_ended = True
            if self._file is not None and os.getpid() == self._process:
                os.close(self._file)
                self._file = None

    def _open(self) -> int:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
