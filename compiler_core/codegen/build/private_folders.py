"""Opens folders and files that no other user can change; each is opened once and used through its descriptor.

Libraries in the kernel cache are executed, so a user who can write there can run code as this user.  A folder is
trusted if it belongs to this user or to root and nobody else may write to it or to any of its ancestors, in which
the folder could be replaced.  Ancestors with the sticky bit (mode ``+t``, such as /tmp), in which only owners may
rename entries, are accepted.  Symbolic links in the path are followed if this user or root made them.
"""

from __future__ import annotations

import errno
import functools
import grp
import os
import pwd
import stat
from pathlib import Path

from compiler_core.errors import MissingTool

MAX_LINKS = 40
_OPEN_DIRECTORY = os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_OPEN_ANCESTOR = _OPEN_DIRECTORY | getattr(os, "O_PATH", os.O_RDONLY)
_OPEN_FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # O_NONBLOCK: opening a FIFO does not wait


def open_private(path: Path, *, create: bool = False) -> int:
    """Opens the folder at `path`, which must be absolute, and returns a descriptor for access to its entries.

    `create` makes missing folders.  Raises MissingTool if a folder of the path is not trusted (the message has the
    reason and the remedy), OSError if the folder does not exist or cannot be made or opened.
    """
    at = os.open("/", _OPEN_ANCESTOR)
    try:
        todo, here, links = list(reversed(path.parts[1:])), Path("/"), 0
        check_ancestor(here, os.fstat(at))
        while todo:
            name = todo.pop()
            if target := _link_target(at, name, here):
                links += 1
                if links > MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
                if target.is_absolute():
                    at, here = _close_first(at, os.open("/", _OPEN_ANCESTOR)), Path("/")
                todo += reversed([part for part in target.parts if part != "/"])
                continue
            at, here = _close_first(at, open_subfolder(at, name, here / name, create=create)), here / name
            status = os.fstat(at)
            if todo:
                check_ancestor(here, status)
            else:
                check_private(here, status)
        return at
    except BaseException:
        os.close(at)
        raise


def open_subfolder(at: int, name: str, shown: Path, *, create: bool = False) -> int:
    """Opens a folder inside the folder `at`, without following a link; `create` makes it, with mode 700.

    `shown` is its path in error messages.
    """
    try:
        return _open_folder(at, name, shown)
    except FileNotFoundError:
        if not create:
            raise
    try:
        os.mkdir(name, 0o700, dir_fd=at)
    except FileExistsError:
        pass  # another process has made it
    except OSError as error:
        raise _with_path(error, shown) from None
    return _open_folder(at, name, shown)


def check_private(path: Path, status: os.stat_result) -> None:
    """Raises MissingTool unless only this user and root can change the folder or file that has this status."""
    what = "folder" if stat.S_ISDIR(status.st_mode) else "file"
    if status.st_uid not in (os.geteuid(), 0):
        raise MissingTool(
            f"the {what} {path} of the kernel cache is not used: it belongs to another user "
            f"({_user_name(status.st_uid)}); set CUTAWAY_CACHE_DIR to a folder of yours"
        )
    if others := _other_writers(status):
        raise MissingTool(
            f"the {what} {path} of the kernel cache is not used: it can be changed by {others}; "
            f"run `chmod {_chmod_mode(others)} {path}`, or set CUTAWAY_CACHE_DIR to a folder of yours"
        )


def check_ancestor(path: Path, status: os.stat_result) -> None:
    """Raises MissingTool if another user could replace an entry of this folder."""
    if status.st_uid not in (os.geteuid(), 0) and not _is_unmapped(status.st_uid):
        raise MissingTool(
            f"the kernel cache is not used: its parent folder {path} belongs to another user "
            f"({_user_name(status.st_uid)}), who could replace it; set CUTAWAY_CACHE_DIR to a folder of yours"
        )
    if (others := _other_writers(status)) and not status.st_mode & stat.S_ISVTX:
        raise MissingTool(
            f"the kernel cache is not used: its parent folder {path} can be changed by {others}, who could "
            f"replace it; run `chmod +t {path}` or `chmod {_chmod_mode(others)} {path}`, or set "
            "CUTAWAY_CACHE_DIR to another folder"
        )


def open_file(folder: int, name: str) -> int | None:
    """Opens a regular file in `folder` for reading; returns None if it does not exist or is not a regular file."""
    try:
        if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            return None
        found = os.open(name, _OPEN_FILE, dir_fd=folder)
    except FileNotFoundError:
        return None
    if stat.S_ISREG(os.fstat(found).st_mode):
        return found
    os.close(found)
    return None


def open_read_only(path: Path) -> int:
    """Opens a folder named by CUTAWAY_CACHE_READ_FROM, which the user declares trusted, whoever owns it.

    Raises MissingTool if every user can change it, OSError if it does not exist or cannot be opened.
    """
    at = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    if os.fstat(at).st_mode & stat.S_IWOTH:
        os.close(at)
        raise MissingTool(
            f"the folder {path} named by CUTAWAY_CACHE_READ_FROM is not used: it can be changed by every user; "
            f"its owner can run `chmod o-w {path}`"
        )
    return at


def _open_folder(at: int, name: str, shown: Path) -> int:
    try:
        return os.open(name, _OPEN_ANCESTOR, dir_fd=at)
    except OSError as error:
        raise _with_path(error, shown) from None


def _with_path(error: OSError, path: Path) -> OSError:
    """Returns `error` with the whole path in its message."""
    return type(error)(error.errno, error.strerror, str(path))


def _close_first(before: int, after: int) -> int:
    os.close(before)
    return after


def _link_target(at: int, name: str, here: Path) -> Path | None:
    """Returns the target of a symbolic link; None if `name` is something else or does not exist.

    Raises MissingTool if another user made the link.
    """
    try:
        status = os.stat(name, dir_fd=at, follow_symlinks=False)
    except OSError:
        return None
    if not stat.S_ISLNK(status.st_mode):
        return None
    if status.st_uid not in (os.geteuid(), 0):
        raise MissingTool(
            f"the kernel cache is not used: {here / name} is a symbolic link made by another user "
            f"({_user_name(status.st_uid)}); set CUTAWAY_CACHE_DIR to a folder of yours"
        )
    return Path(os.readlink(name, dir_fd=at))


def _other_writers(status: os.stat_result) -> str:
    """Returns who may write besides the owner, as text; empty if nobody."""
    if status.st_mode & stat.S_IWOTH:
        return "every user"
    if status.st_mode & stat.S_IWGRP and not _is_own_group(status.st_gid):
        return f"the group {_group_name(status.st_gid)}"
    return ""


def _chmod_mode(others: str) -> str:
    return "go-w" if others == "every user" else "g-w"


@functools.cache
def _is_own_group(gid: int) -> bool:
    """Returns whether only this user, or root, is in the group: many systems give each user a group of that name."""
    try:
        group = grp.getgrgid(gid)
        user = "root" if gid == 0 else pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False
    return group.gr_name == user and {*group.gr_mem} <= {user}


@functools.cache
def _is_unmapped(uid: int) -> bool:
    """Returns whether the user is not mapped into this process's user namespace, which is common for root's folders."""
    try:
        whole = Path("/proc/self/uid_map").read_text().split() == ["0", "0", str(2**32 - 1)]
        return not whole and uid == int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return False


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
