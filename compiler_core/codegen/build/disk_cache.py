"""The kernel cache: what was built before, on disk, each file named by the digest of all that it was made from.

    ~/.cache/cutaway/CACHEDIR.TAG           says that the folder is a cache, and Cutaway's
    ~/.cache/cutaway/cpp/<digest>.so        ``XDG_CACHE_HOME`` and ``CUTAWAY_CACHE_DIR`` name other places

Any number of processes share it.  A file is made beside its place, sealed with the digest of its content and
renamed, so a damaged file is told from a whole one and never used.  What a process leaves half made when it is
killed, the next one that writes takes away.

Only files of `KINDS`, named as they are named here, in a folder with the marker, are ever removed: those that were
not used for the longest time, where those of a kind together exceed its limit.  No rights are changed, no links
followed below the cache's folder, and nothing is used that another user could have written (`folders`).  Other
caches, named by ``CUTAWAY_CACHE_READ_FROM``, are only read.

Where the cache cannot be used, kernels are built all the same, in a temporary folder; `noted` says why.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from compiler_core import config
from compiler_core.codegen.build import faults, private_folders
from compiler_core.errors import MissingTool

T = TypeVar("T")
MIB = 1 << 20


class Kind(NamedTuple):
    """What files of one kind are called after the digest, and how many bytes they may have together."""

    suffix: str
    limit: int


KINDS = {
    "cpp": Kind(".so", 448 * MIB),
    "graphs": Kind("", 256 * MIB),
    "triton": Kind(".zip", 256 * MIB),
    "stock": Kind(".json", 48 * MIB),
    "tuned": Kind(".json", 15 * MIB),
    "engines": Kind(".json", 1 * MIB),
}
"""1 GiB in all."""
KEPT = 0.8
"""The share of a kind's limit that is left when it was exceeded."""
SEAL = hashlib.sha256().digest_size
TAG = "CACHEDIR.TAG"
MARKER = b"""Signature: 8a477f597d28d172789f06886806bc55
# This folder is the kernel cache of Cutaway, which removes files from it. It can be deleted at any time.
# The first line tells programs that make backups: see https://bford.info/cachedir/
"""
_UNDONE = f"{config.OWN_FOLDER}-building-"
_OLD_NAMES = frozenset({"engines.json"})
"""What earlier versions put beside the kinds."""

_noted: dict[str, MissingTool] = {}


def sealed(content: bytes) -> bytes:
    """`content` with what tells that it is whole at its end."""
    return content + hashlib.sha256(content).digest()


def unsealed(whole: bytes) -> bytes | None:
    """The content of a sealed file; None unless it is whole."""
    content = whole[:-SEAL]
    return content if len(whole) > SEAL and sealed(content) == whole else None


def path_of(kind: str, key: str) -> Path:
    """Where the file lies."""
    return config.cache_dir() / kind / _name(kind, key)


def read(kind: str, key: str) -> bytes | None:
    """The content of a file; None unless it is there, whole, and nobody else could have written it."""
    return find(kind, key, lambda file, content: content)


def find(kind: str, key: str, use: Callable[[int, bytes], T | None]) -> T | None:
    """What `use` makes of the file's descriptor and content: of the cache's own or, where there is none or `use`
    makes nothing of it, of the caches that are only read."""
    name = _name(kind, key)
    try:
        if (made := _found(partial(_own, kind), kind, name, use, own=True)) is not None:
            return made
    except MissingTool as error:
        note(error)
    except OSError as error:
        note(MissingTool(f"the kernel cache {_shown()} cannot be used: {faults.words(error)}"))
    for other in _others():
        with suppress(OSError, MissingTool):  # `check` says of each cache whether it can be read
            if (made := _found(partial(_promised, other, kind), kind, name, use, own=False)) is not None:
                return made
    return None


def write(kind: str, key: str, content: bytes) -> None:
    """Put `content`, sealed, into the cache in one step.  MissingTool: it could not be."""
    name = _name(kind, key)
    try:
        folder = _own(kind, create=True)
        try:
            _put(folder, name, sealed(content))
            _tidy(folder, kind)
        finally:
            os.close(folder)
    except OSError as error:
        raise MissingTool(f"the kernel cache {_shown()} cannot be used: {faults.words(error)}") from None


def note(error: MissingTool) -> None:
    """Note why something is not in the cache, which is no reason not to go on."""
    _noted[str(error)] = error


def noted() -> list[MissingTool]:
    """What was noted since this was last asked."""
    errors = list(_noted.values())
    _noted.clear()
    return errors


# ---- files -----------------------------------------------------------------------------------


def _name(kind: str, key: str) -> str:
    name = f"{key}{KINDS[kind].suffix}"
    assert _is_ours(kind, name), name
    return name


def _is_ours(kind: str, name: str) -> bool:
    """Whether a file of this kind has such a name."""
    digest, suffix = name[:64], name[64:]
    return suffix == KINDS[kind].suffix and re.fullmatch(r"[0-9a-f]{64}", digest) is not None


def _found(
    open_folder: Callable[[], int], kind: str, name: str, use: Callable[[int, bytes], T | None], *, own: bool
) -> T | None:
    try:
        folder = open_folder()
    except FileNotFoundError:
        return None
    try:
        file = private_folders.file(folder, name)
    finally:
        os.close(folder)
    if file is None:
        return None
    try:
        content = _whole(file, kind, Path(kind, name), own)
        return None if content is None else use(file, content)
    finally:
        os.close(file)


def _whole(file: int, kind: str, shown: Path, own: bool) -> bytes | None:
    status = os.fstat(file)
    if own:
        private_folders.check(config.cache_dir() / shown, status)
    if status.st_size > KINDS[kind].limit or status.st_mode & stat.S_IWOTH:
        return None
    content = unsealed(io.FileIO(file, closefd=False).readall())
    if own and content is not None:
        with suppress(OSError):  # a cache that is only read
            os.utime(file)  # it was used
    return content


def _put(folder: int, name: str, content: bytes) -> None:
    """A file with this content, made beside its place and renamed."""
    mode = 0o600 | os.fstat(folder).st_mode & 0o044  # whoever may list the folder may read what is in it
    while True:
        made = f"{_UNDONE}{secrets.token_hex(8)}"
        file = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=folder)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not os.fstat(file).st_nlink:  # before the lock, another process took it for one left behind
                continue
            with io.FileIO(file, "w", closefd=False) as stream:
                _write_all(stream, content)
            os.rename(made, name, src_dir_fd=folder, dst_dir_fd=folder)
            return
        except BaseException:
            with suppress(OSError):
                os.unlink(made, dir_fd=folder)
            raise
        finally:
            os.close(file)


def _write_all(stream: io.FileIO, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[stream.write(left) or 0 :]


# ---- folders ---------------------------------------------------------------------------------


def _shown() -> str:
    try:
        return str(config.cache_dir())
    except MissingTool:
        return ""


@dataclass(frozen=True)
class _Held:
    """A folder of the cache that this process holds open."""

    path: Path
    descriptor: int
    status: os.stat_result
    marked: bool

    def is_still(self, status: os.stat_result) -> bool:
        """Whether the folder is there, and the descriptor is its: programs close what they do not know of."""
        same = (status.st_dev, status.st_ino) == (self.status.st_dev, self.status.st_ino)
        return same and status.st_nlink > 0


_held: dict[str, _Held] = {}
"""Of each kind, the folder that was opened last: to go through all folders above it takes as long as the rest."""


def _own(kind: str, *, create: bool = False) -> int:
    """A descriptor of the kind's folder in the cache; FileNotFoundError where it is not there and not to be made."""
    path = config.cache_dir() / kind
    held = _held.get(kind)
    if held is not None and held.path == path and (held.marked or not create):
        with suppress(OSError):
            again = os.dup(held.descriptor)
            status = os.fstat(again)
            if held.is_still(status):
                return _checked(again, path, status)
            os.close(again)
    folder = _opened(path, create)
    status = os.fstat(folder)
    if held is not None:
        _let_go(held)
    _held[kind] = _Held(path, os.dup(folder), status, create)
    return folder


def _let_go(held: _Held) -> None:
    with suppress(OSError):
        if held.is_still(os.fstat(held.descriptor)):
            os.close(held.descriptor)


def _opened(path: Path, create: bool) -> int:
    root = private_folders.opened(path.parent, create=create)
    try:
        if create:
            _mark(root, path.parent)
        folder = private_folders.below(root, path.name, path, create=create)
    finally:
        os.close(root)
    return _checked(folder, path, os.fstat(folder))


def _checked(folder: int, path: Path, status: os.stat_result) -> int:
    try:
        private_folders.check(path, status)
    except MissingTool:
        os.close(folder)
        raise
    return folder


def _mark(root: int, path: Path) -> None:
    """Mark a folder that is new, or holds nothing but what is ours; MissingTool where it holds anything else."""
    file = private_folders.file(root, TAG)
    if file is not None:
        try:
            is_ours = os.read(file, len(MARKER)) == MARKER
        finally:
            os.close(file)
        if is_ours:
            return
    names = [name for name in _names(root) if not name.startswith(_UNDONE)]
    if other := next((name for name in sorted(names) if name not in KINDS and name not in _OLD_NAMES), None):
        raise MissingTool(
            f"{path} is not used as the kernel cache: it is not marked as one, and holds other files ({other}); "
            "move it away, or let CUTAWAY_CACHE_DIR name another folder"
        )
    _put(root, TAG, MARKER)


def _others() -> list[Path]:
    try:
        return config.cache_read_from()
    except MissingTool as error:
        note(error)
        return []


def _promised(path: Path, kind: str) -> int:
    folder = private_folders.promised(path)
    try:
        at = private_folders.below(folder, kind, path / kind)
    finally:
        os.close(folder)
    if os.fstat(at).st_mode & stat.S_IWOTH:
        os.close(at)
        raise MissingTool(f"every user can change {path / kind}")
    return at


# ---- making room -----------------------------------------------------------------------------


def _tidy(folder: int, kind: str) -> None:
    """Remove what killed processes left, and the oldest files of the kind where all are too large."""
    files: list[tuple[float, int, str]] = []
    for name in _names(folder):
        if name.startswith(_UNDONE):
            with suppress(OSError):
                _remove_if_left(folder, name)
        elif _is_ours(kind, name):
            with suppress(OSError):
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    files.append((status.st_mtime, status.st_size, name))
    size, limit = sum(each for _, each, _ in files), KINDS[kind].limit
    if size <= limit:
        return
    for _, each, name in sorted(files):
        if size <= KEPT * limit:
            return
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
            size -= each


def _names(folder: int) -> list[str]:
    """What is in a folder that was opened on the way to others."""
    listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return os.listdir(listed)
    finally:
        os.close(listed)


def _remove_if_left(folder: int, name: str) -> None:
    """Remove what was to be made, unless a process is at it."""
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if status.st_uid != os.geteuid() or not (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)):
        return
    left = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)  # OSError while its process lives
        if stat.S_ISDIR(status.st_mode):
            shutil.rmtree(name, ignore_errors=True, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)
    finally:
        os.close(left)


# ---- places to build in ----------------------------------------------------------------------


def places(kind: str) -> Iterator[Path]:
    """Folders to build in: the kind's own, then temporary ones, on other disks perhaps."""
    try:
        os.close(_own(kind, create=True))
        yield config.cache_dir() / kind
    except MissingTool as error:
        note(error)
    except OSError as error:
        note(MissingTool(f"the kernel cache {_shown()} cannot be used: {faults.words(error)}"))
    temporary = []
    with suppress(OSError):  # there is none that can be written to
        temporary.append(Path(tempfile.gettempdir()))
    if os.access("/dev/shm", os.W_OK):  # in memory
        temporary.append(Path("/dev/shm"))
    for place in temporary:
        with suppress(OSError):
            _clear(place)
        yield place


@contextmanager
def workshop(place: Path) -> Iterator[Path]:
    """A folder of this process's own to make something in, gone afterwards.  It is locked while the process lives,
    which tells it from one left behind."""
    made, lock = _locked(place)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(lock)


@contextmanager
def some_workshop(kind: str) -> Iterator[Path]:
    """A workshop in the first place that has room for one; MissingTool where none has."""
    with ExitStack() as stack:
        yield _first_workshop(kind, stack)


def _first_workshop(kind: str, stack: ExitStack) -> Path:
    why: OSError | None = None
    for place in places(kind):
        try:
            return stack.enter_context(workshop(place))
        except OSError as error:
            why = error
    raise no_place(why)


def no_place(why: OSError | None) -> MissingTool:
    """The error where no folder can be built in."""
    reason = f": {faults.words(why)}" if why else ""
    return MissingTool(f"there is no folder to build kernels in{reason}; TMPDIR and CUTAWAY_CACHE_DIR name folders")


def _clear(place: Path) -> None:
    """Remove what killed processes of this user left in a temporary folder."""
    folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in _names(folder):
            if name.startswith(_UNDONE):
                with suppress(OSError):
                    _remove_if_left(folder, name)
    finally:
        os.close(folder)


def _locked(place: Path) -> tuple[Path, int]:
    while True:
        made = Path(tempfile.mkdtemp(dir=place, prefix=_UNDONE))
        with suppress(FileNotFoundError):  # before the lock, another process may take it for one left behind
            lock = os.open(made, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if made.exists():
                return made, lock
            os.close(lock)
