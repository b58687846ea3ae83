"""What was built before, on disk: each file named by the digest of all that it was made from.

    ~/.cache/cutaway/cpp/<digest>.so        ``XDG_CACHE_HOME`` and ``CUTAWAY_CACHE_DIR`` name other places

Any number of processes share it.  A file is made beside its place, sealed with the digest of its content and
renamed, so a damaged or foreign one is told from a whole one and never used.  What a process leaves half made
when it is killed, the next one that builds takes away.  The folders are the user's alone, and what was not used
for the longest time goes when all together exceed `LIMIT`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from compiler_core import config
from compiler_core.errors import MissingTool

LIMIT = 1 << 30
"""Bytes."""
KEPT = 0.8
"""The share of `LIMIT` that is left when it was exceeded."""
SEAL = hashlib.sha256().digest_size
_UNDONE = "building-"


def folder(kind: str) -> Path:
    """The folder for files of one kind; MissingTool where there can be none."""
    return _private(_private(config.cache_dir()) / kind)


def sealed(content: bytes) -> bytes:
    """`content` with what tells that it is whole at its end."""
    return content + hashlib.sha256(content).digest()


def read(path: Path) -> bytes | None:
    """The content of a sealed file, without the seal; None unless it is whole and the user's own."""
    try:
        with path.open("rb") as file:
            whole = file.read()
            own = os.fstat(file.fileno()).st_uid == os.geteuid()
        os.utime(path)  # it was used
    except OSError:
        return None
    content = whole[:-SEAL]
    return content if own and len(whole) > SEAL and sealed(content) == whole else None


def write(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Put `content`, sealed, at `path` in one step."""
    try:
        with workshop(path.parent) as inside:
            made = inside / "made"
            made.write_bytes(sealed(content))
            made.chmod(mode)
            os.replace(made, path)
        tidy(path.parent)
    except OSError as error:
        raise MissingTool(f"cannot write to the kernel cache: {error}; CUTAWAY_CACHE_DIR names another place") from None


@contextmanager
def workshop(inside: Path) -> Iterator[Path]:
    """A folder to make something in.  It is locked while its process lives, which tells it from one left behind."""
    made, lock = _locked(inside)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(lock)


def _locked(inside: Path) -> tuple[Path, int]:
    while True:
        made = Path(tempfile.mkdtemp(dir=inside, prefix=_UNDONE))
        with suppress(FileNotFoundError):  # before the lock, another process may take it for one left behind
            lock = os.open(made, os.O_RDONLY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if made.exists():
                return made, lock
            os.close(lock)


def tidy(inside: Path) -> None:
    """Remove what killed processes left, and the oldest files where all are too large."""
    for undone in inside.glob(f"{_UNDONE}*"):
        with suppress(OSError):
            _remove_if_left(undone)
    files = [(path, status) for path in inside.parent.glob("*/*") if (status := _status(path))]
    size = sum(status.st_size for _, status in files)
    if size <= LIMIT:
        return
    for path, status in sorted(files, key=lambda each: each[1].st_mtime):
        if size <= KEPT * LIMIT:
            return
        with suppress(OSError):
            path.unlink()
            size -= status.st_size


def _remove_if_left(undone: Path) -> None:
    lock = os.open(undone, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # OSError while its process lives
        shutil.rmtree(undone, ignore_errors=True)
    finally:
        os.close(lock)


def _status(path: Path) -> os.stat_result | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _private(folder: Path) -> Path:
    """`folder`, made if need be, that nobody else may read or write."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        if status.st_uid != os.geteuid():
            raise MissingTool(
                f"the kernel cache {folder} belongs to another user; set CUTAWAY_CACHE_DIR to a folder of yours"
            )
        if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            folder.chmod(0o700)
    except OSError as error:
        raise MissingTool(
            f"the kernel cache {folder} cannot be used ({error}); set CUTAWAY_CACHE_DIR to another"
        ) from None
    return folder
