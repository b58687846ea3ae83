"""Folders and files that no other user can change, opened once and used by their descriptors.

What lies in the kernel cache is run, so whoever can write there can run programs as this user.  A folder is trusted
where it belongs to this user or to root and nobody else may write to it, nor to any folder above it, where a folder
could be put in its place.  A folder that only its entries' owners may rename entries of (mode ``+t``, such as /tmp)
may be above.  Symbolic links on the way to a folder are followed where this user or root made them.
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

MOST_LINKS = 40
_FOLDER = os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_ON_THE_WAY = _FOLDER | getattr(os, "O_PATH", os.O_RDONLY)
_FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a FIFO is opened at once, and turned away


def opened(path: Path, *, create: bool = False) -> int:
    """A descriptor of the trusted folder at `path`, which is absolute, for what is below it.

    MissingTool: it is not trusted; the message says why and what to do.  OSError: it is not there, or cannot be made
    or opened.
    """
    at = os.open("/", _ON_THE_WAY)
    try:
        todo, here, links = list(reversed(path.parts[1:])), Path("/"), 0
        check_above(here, os.fstat(at))
        while todo:
            name = todo.pop()
            if target := _link(at, name, here):
                links += 1
                if links > MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
                if target.is_absolute():
                    at, here = _moved(at, os.open("/", _ON_THE_WAY)), Path("/")
                todo += reversed([part for part in target.parts if part != "/"])
                continue
            at, here = _moved(at, below(at, name, here / name, create=create)), here / name
            status = os.fstat(at)
            check_above(here, status) if todo else check(here, status)
        return at
    except BaseException:
        os.close(at)
        raise


def below(at: int, name: str, shown: Path, *, create: bool = False) -> int:
    """A descriptor of a folder in the folder `at`, made with mode 700 if need be; no link is followed."""
    try:
        return _entered(at, name, shown)
    except FileNotFoundError:
        if not create:
            raise
    try:
        os.mkdir(name, 0o700, dir_fd=at)
    except FileExistsError:
        pass  # another process was quicker
    except OSError as error:
        raise _of(error, shown) from None
    return _entered(at, name, shown)


def check(path: Path, status: os.stat_result) -> None:
    """MissingTool unless only this user and root can change the folder, or file, that has this status."""
    what = "folder" if stat.S_ISDIR(status.st_mode) else "file"
    if status.st_uid not in (os.geteuid(), 0):
        raise MissingTool(
            f"the {what} {path} of the kernel cache belongs to another user ({_user(status.st_uid)}): it is not used; "
            "let CUTAWAY_CACHE_DIR name a folder of yours"
        )
    if others := _who_may_write(status):
        raise MissingTool(
            f"the {what} {path} of the kernel cache can be changed by {others}: it is not used; "
            f"`chmod {_closing(others)} {path}`, or let CUTAWAY_CACHE_DIR name a folder of yours"
        )


def check_above(path: Path, status: os.stat_result) -> None:
    """MissingTool where another user could put a folder of his in the place of one in this folder."""
    if status.st_uid not in (os.geteuid(), 0) and not _is_unmapped(status.st_uid):
        raise MissingTool(
            f"the kernel cache is not used: {path}, which it lies in, belongs to another user "
            f"({_user(status.st_uid)}), who could replace it; let CUTAWAY_CACHE_DIR name a folder of yours"
        )
    if (others := _who_may_write(status)) and not status.st_mode & stat.S_ISVTX:
        raise MissingTool(
            f"the kernel cache is not used: {path}, which it lies in, can be changed by {others}, who could "
            f"replace it; `chmod +t {path}` or `chmod {_closing(others)} {path}`, or let "
            "CUTAWAY_CACHE_DIR name another folder"
        )


def file(folder: int, name: str) -> int | None:
    """A descriptor, for reading, of a regular file in `folder`; None where there is something else or nothing."""
    try:
        if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            return None
        found = os.open(name, _FILE, dir_fd=folder)
    except FileNotFoundError:
        return None
    if stat.S_ISREG(os.fstat(found).st_mode):
        return found
    os.close(found)
    return None


def promised(path: Path) -> int:
    """A descriptor of a folder that the user has promised to be trusted, whoever it belongs to.

    MissingTool: every user can change it.  OSError: it is not there, or cannot be opened.
    """
    at = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    if os.fstat(at).st_mode & stat.S_IWOTH:
        os.close(at)
        raise MissingTool(
            f"the folder {path}, which CUTAWAY_CACHE_READ_FROM names, can be changed by every user: it is not used; "
            f"its owner can `chmod o-w {path}`"
        )
    return at


def _entered(at: int, name: str, shown: Path) -> int:
    try:
        return os.open(name, _ON_THE_WAY, dir_fd=at)
    except OSError as error:
        raise _of(error, shown) from None


def _of(error: OSError, path: Path) -> OSError:
    """With the whole path in its message."""
    return type(error)(error.errno, error.strerror, str(path))


def _moved(before: int, after: int) -> int:
    os.close(before)
    return after


def _link(at: int, name: str, here: Path) -> Path | None:
    """Where a symbolic link leads to; None where there is something else or nothing."""
    try:
        status = os.stat(name, dir_fd=at, follow_symlinks=False)
    except OSError:
        return None
    if not stat.S_ISLNK(status.st_mode):
        return None
    if status.st_uid not in (os.geteuid(), 0):
        raise MissingTool(
            f"the kernel cache is not used: {here / name} is a symbolic link that another user "
            f"({_user(status.st_uid)}) made; let CUTAWAY_CACHE_DIR name a folder of yours"
        )
    return Path(os.readlink(name, dir_fd=at))


def _who_may_write(status: os.stat_result) -> str:
    """Who besides the owner, in words."""
    if status.st_mode & stat.S_IWOTH:
        return "every user"
    if status.st_mode & stat.S_IWGRP and not _is_own_group(status.st_gid):
        return f"the group {_group(status.st_gid)}"
    return ""


def _closing(others: str) -> str:
    return "go-w" if others == "every user" else "g-w"


@functools.cache
def _is_own_group(gid: int) -> bool:
    """Whether nobody but this user, or root, is in the group: many systems give each user a group of that name."""
    try:
        group = grp.getgrgid(gid)
        user = "root" if gid == 0 else pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False
    return group.gr_name == user and {*group.gr_mem} <= {user}


@functools.cache
def _is_unmapped(uid: int) -> bool:
    """Whether the user is outside of the user namespace that this process is in, where most of root's folders are."""
    try:
        whole = Path("/proc/self/uid_map").read_text().split() == ["0", "0", str(2**32 - 1)]
        return not whole and uid == int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return False


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
