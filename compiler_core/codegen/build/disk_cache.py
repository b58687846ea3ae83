"""The kernel cache on disk.  Each entry is a file named by the digest of everything that it was made from.

    ~/.cache/cutaway/CACHEDIR.TAG           marks the folder as a cache of Cutaway
    ~/.cache/cutaway/cpp/<digest>.so        ``XDG_CACHE_HOME`` and ``CUTAWAY_CACHE_DIR`` select other folders

Any number of processes may share the cache.  A file is written under a temporary name, with a checksum of its content
at the end, and renamed, so a damaged file is detected and never used.  Temporary files of killed processes are removed
by the next process that writes.

Only files of `KINDS`, with names of the expected form, in a folder with the marker, are ever removed: the least
recently used ones, when the files of a kind together exceed its limit.  No permissions are changed, no links are
followed below the cache's folder, and nothing is used that another user could have written (`private_folders`).  Other
caches, named by ``CUTAWAY_CACHE_READ_FROM``, are only read.

If the cache cannot be used, kernels are built in a temporary folder; `take_problems` returns the reasons.
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
from compiler_core.codegen.build import private_folders
from compiler_core.codegen.build.external import describe_fault
from compiler_core.errors import MissingTool

T = TypeVar("T")
MIB = 1 << 20


class Kind(NamedTuple):
    """A kind of entry: the suffix of its files after the digest, and the limit of their total size in bytes."""

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
SHARE_AFTER_EVICTION = 0.8
"""The share of a kind's limit that remains after files were removed because it was exceeded."""
CHECKSUM_BYTES = hashlib.sha256().digest_size
TAG = "CACHEDIR.TAG"
MARKER = b"""Signature: 8a477f597d28d172789f06886806bc55
# This folder is the kernel cache of Cutaway, which removes files from it. It can be deleted at any time.
# The first line tells programs that make backups: see https://bford.info/cachedir/
"""
_TEMPORARY_PREFIX = f"{config.OWN_FOLDER}-building-"
_NAMES_OF_EARLIER_VERSIONS = frozenset({"engines.json"})
"""Names that earlier versions wrote beside the folders of `KINDS`."""

_problems: dict[str, MissingTool] = {}


def with_checksum(content: bytes) -> bytes:
    """Returns `content` with its checksum appended."""
    return content + hashlib.sha256(content).digest()


def verified_content(whole: bytes) -> bytes | None:
    """Returns the content of a file written by `with_checksum`; None if the checksum does not match."""
    content = whole[:-CHECKSUM_BYTES]
    return content if len(whole) > CHECKSUM_BYTES and with_checksum(content) == whole else None


def path_of(kind: str, key: str) -> Path:
    """Returns the path of an entry in the cache."""
    return config.cache_dir() / kind / _file_name(kind, key)


def read(kind: str, key: str) -> bytes | None:
    """Returns the content of an entry; None if it does not exist, is damaged, or another user could have written it."""
    return find(kind, key, lambda file, content: content)


def find(kind: str, key: str, use: Callable[[int, bytes], T | None]) -> T | None:
    """Looks up an entry and returns ``use(descriptor, content)``.

    The cache is searched first; if it has no entry, or `use` returns None, the read-only caches follow.
    """
    name = _file_name(kind, key)
    try:
        found = _find_in(partial(_open_own_folder, kind), kind, name, use, own=True)
        if found is not None:
            return found
    except MissingTool as error:
        report_problem(error)
    except OSError as error:
        report_problem(_unusable(error))
    for other in _read_only_caches():
        with suppress(OSError, MissingTool):  # `compiler_core.tools.check` reports caches that cannot be read
            found = _find_in(partial(_open_read_only_folder, other, kind), kind, name, use, own=False)
            if found is not None:
                return found
    return None


def write(kind: str, key: str, content: bytes) -> None:
    """Writes an entry atomically, with a checksum; raises MissingTool if the cache cannot be written."""
    name = _file_name(kind, key)
    try:
        folder = _open_own_folder(kind, create=True)
        try:
            _write_file(folder, name, with_checksum(content))
            _evict(folder, kind)
        finally:
            os.close(folder)
    except OSError as error:
        raise _unusable(error) from None


def report_problem(error: MissingTool) -> None:
    """Stores the reason why the cache could not be used; the compile continues without it."""
    _problems[str(error)] = error


def take_problems() -> list[MissingTool]:
    """Returns the problems reported since the last call, and forgets them."""
    errors = list(_problems.values())
    _problems.clear()
    return errors


# ---- files -----------------------------------------------------------------------------------


def _file_name(kind: str, key: str) -> str:
    name = f"{key}{KINDS[kind].suffix}"
    assert _is_entry(kind, name), name
    return name


def _is_entry(kind: str, name: str) -> bool:
    """Returns whether `name` has the form of an entry of this kind."""
    digest, suffix = name[:64], name[64:]
    return suffix == KINDS[kind].suffix and re.fullmatch(r"[0-9a-f]{64}", digest) is not None


def _find_in(
    open_folder: Callable[[], int], kind: str, name: str, use: Callable[[int, bytes], T | None], *, own: bool
) -> T | None:
    try:
        folder = open_folder()
    except FileNotFoundError:
        return None
    try:
        file = private_folders.open_file(folder, name)
    finally:
        os.close(folder)
    if file is None:
        return None
    try:
        content = _read_verified(file, kind, Path(kind, name), own)
        return None if content is None else use(file, content)
    finally:
        os.close(file)


def _read_verified(file: int, kind: str, shown: Path, own: bool) -> bytes | None:
    status = os.fstat(file)
    if own:
        private_folders.check_private(config.cache_dir() / shown, status)
    if status.st_size > KINDS[kind].limit or status.st_mode & stat.S_IWOTH:
        return None
    content = verified_content(io.FileIO(file, closefd=False).readall())
    if own and content is not None:
        with suppress(OSError):  # the cache may be read-only
            os.utime(file)  # for eviction of the least recently used entries
    return content


def _write_file(folder: int, name: str, content: bytes) -> None:
    """Writes a file under a temporary name and renames it."""
    mode = 0o600 | os.fstat(folder).st_mode & 0o044  # users who may list the folder may read its files
    while True:
        temporary = f"{_TEMPORARY_PREFIX}{secrets.token_hex(8)}"
        file = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=folder
        )
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not os.fstat(file).st_nlink:  # another process removed it before it was locked
                continue
            with io.FileIO(file, "w", closefd=False) as stream:
                remaining = memoryview(content)
                while remaining:
                    remaining = remaining[stream.write(remaining) or 0 :]
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            return
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
        finally:
            os.close(file)


# ---- folders ---------------------------------------------------------------------------------


def _unusable(error: OSError) -> MissingTool:
    """Returns the error for a failed system call in the cache's folder."""
    try:
        path = str(config.cache_dir())
    except MissingTool:
        path = ""
    return MissingTool(f"the kernel cache {path} cannot be used: {describe_fault(error)}")


@dataclass(frozen=True)
class _OpenFolder:
    """A folder of the cache that this process keeps open."""

    path: Path
    descriptor: int
    status: os.stat_result
    marked: bool

    def is_same(self, status: os.stat_result) -> bool:
        """Returns whether the folder still exists and the descriptor is still its own: programs may close descriptors
        that they did not open."""
        same = (status.st_dev, status.st_ino) == (self.status.st_dev, self.status.st_ino)
        return same and status.st_nlink > 0


_open_folders: dict[str, _OpenFolder] = {}
"""The last opened folder of each kind: checking all its ancestors takes as long as the rest of a lookup."""


def _open_own_folder(kind: str, *, create: bool = False) -> int:
    """Opens the kind's folder in the cache; raises FileNotFoundError if it does not exist and `create` is False."""
    path = config.cache_dir() / kind
    opened = _open_folders.get(kind)
    if opened is not None and opened.path == path and (opened.marked or not create):
        with suppress(OSError):
            again = os.dup(opened.descriptor)
            status = os.fstat(again)
            if opened.is_same(status):
                return _check_folder(again, path, status)
            os.close(again)
    folder = _open_kind_folder(path, create)
    status = os.fstat(folder)
    if opened is not None:
        _close(opened)
    _open_folders[kind] = _OpenFolder(path, os.dup(folder), status, create)
    return folder


def _close(opened: _OpenFolder) -> None:
    with suppress(OSError):
        if opened.is_same(os.fstat(opened.descriptor)):
            os.close(opened.descriptor)


def _open_kind_folder(path: Path, create: bool) -> int:
    root = private_folders.open_private(path.parent, create=create)
    try:
        if create:
            _write_marker(root, path.parent)
        folder = private_folders.open_subfolder(root, path.name, path, create=create)
    finally:
        os.close(root)
    return _check_folder(folder, path, os.fstat(folder))


def _check_folder(folder: int, path: Path, status: os.stat_result) -> int:
    try:
        private_folders.check_private(path, status)
    except MissingTool:
        os.close(folder)
        raise
    return folder


def _write_marker(root: int, path: Path) -> None:
    """Writes the marker into a folder that is empty or has only files of the cache; raises MissingTool for others."""
    file = private_folders.open_file(root, TAG)
    if file is not None:
        try:
            is_ours = os.read(file, len(MARKER)) == MARKER
        finally:
            os.close(file)
        if is_ours:
            return
    names = [name for name in _list_folder(root) if not name.startswith(_TEMPORARY_PREFIX)]
    if other := next(
        (name for name in sorted(names) if name not in KINDS and name not in _NAMES_OF_EARLIER_VERSIONS), None
    ):
        raise MissingTool(
            f"{path} is not used as the kernel cache: it is not marked as one, and it contains other files ({other}); "
            "move them away, or set CUTAWAY_CACHE_DIR to another folder"
        )
    _write_file(root, TAG, MARKER)


def _read_only_caches() -> list[Path]:
    try:
        return config.cache_read_from()
    except MissingTool as error:
        report_problem(error)
        return []


def _open_read_only_folder(path: Path, kind: str) -> int:
    folder = private_folders.open_read_only(path)
    try:
        at = private_folders.open_subfolder(folder, kind, path / kind)
    finally:
        os.close(folder)
    if os.fstat(at).st_mode & stat.S_IWOTH:
        os.close(at)
        raise MissingTool(f"every user can change {path / kind}")
    return at


# ---- eviction --------------------------------------------------------------------------------


def _evict(folder: int, kind: str) -> None:
    """Removes temporary files of killed processes, and the least recently used entries if all exceed the limit."""
    _remove_abandoned(folder)
    files: list[tuple[float, int, str]] = []
    for name in _list_folder(folder):
        if _is_entry(kind, name):
            with suppress(OSError):
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    files.append((status.st_mtime, status.st_size, name))
    size, limit = sum(each for _, each, _ in files), KINDS[kind].limit
    if size <= limit:
        return
    for _, each, name in sorted(files):
        if size <= SHARE_AFTER_EVICTION * limit:
            return
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
            size -= each


def _list_folder(folder: int) -> list[str]:
    """Returns the names in a folder, whose descriptor may have been opened with O_PATH."""
    listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return os.listdir(listed)
    finally:
        os.close(listed)


def _remove_abandoned(folder: int) -> None:
    """Removes the temporary files of this user's killed processes from a folder."""
    for name in _list_folder(folder):
        if name.startswith(_TEMPORARY_PREFIX):
            with suppress(OSError):
                _remove_if_abandoned(folder, name)


def _remove_if_abandoned(folder: int, name: str) -> None:
    """Removes a temporary file or folder, unless the process that made it is still running (holds its lock)."""
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if status.st_uid != os.geteuid() or not (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)):
        return
    abandoned = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        fcntl.flock(abandoned, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises OSError while its process is running
        if stat.S_ISDIR(status.st_mode):
            shutil.rmtree(name, ignore_errors=True, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)
    finally:
        os.close(abandoned)


# ---- build folders ---------------------------------------------------------------------------


def build_locations(kind: str) -> Iterator[Path]:
    """Yields folders to build in: the kind's folder in the cache, then temporary ones, possibly on other disks."""
    try:
        os.close(_open_own_folder(kind, create=True))
        yield config.cache_dir() / kind
    except MissingTool as error:
        report_problem(error)
    except OSError as error:
        report_problem(_unusable(error))
    temporary = []
    with suppress(OSError):  # no temporary folder is writable
        temporary.append(Path(tempfile.gettempdir()))
    if os.access("/dev/shm", os.W_OK):  # a file system in memory
        temporary.append(Path("/dev/shm"))
    for place in temporary:
        with suppress(OSError):
            folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                _remove_abandoned(folder)
            finally:
                os.close(folder)
        yield place


@contextmanager
def build_folder(place: Path) -> Iterator[Path]:
    """Makes a temporary folder in `place` and removes it at the end.  It stays locked while the process runs, which
    distinguishes it from a folder of a killed process."""
    temporary, lock = _make_locked_folder(place)
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        os.close(lock)


@contextmanager
def any_build_folder(kind: str) -> Iterator[Path]:
    """Makes a build folder in the first usable location; raises MissingTool if there is none."""
    with ExitStack() as stack:
        yield _enter_first_build_folder(kind, stack)


def _enter_first_build_folder(kind: str, stack: ExitStack) -> Path:
    failure: OSError | None = None
    for place in build_locations(kind):
        try:
            return stack.enter_context(build_folder(place))
        except OSError as error:
            failure = error
    raise no_build_location(failure)


def no_build_location(failure: OSError | None) -> MissingTool:
    """Returns the error for the case that no folder can be built in."""
    reason = f": {describe_fault(failure)}" if failure else ""
    return MissingTool(
        f"there is no folder to build kernels in{reason}; set TMPDIR or CUTAWAY_CACHE_DIR to a writable folder"
    )


def _make_locked_folder(place: Path) -> tuple[Path, int]:
    while True:
        temporary = Path(tempfile.mkdtemp(dir=place, prefix=_TEMPORARY_PREFIX))
        with suppress(FileNotFoundError):  # another process may remove it before it is locked
            lock = os.open(temporary, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if temporary.exists():
                return temporary, lock
            os.close(lock)
