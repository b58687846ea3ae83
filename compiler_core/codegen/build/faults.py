"""Faults of the environment: what the system says of them, in words, and what to do.

`docs/faults.md` lists them all, with the messages that name them.
"""

from __future__ import annotations

import errno
import re
from typing import NamedTuple


class Fault(NamedTuple):
    """Something about this machine that keeps kernels from being built or kept."""

    what: str
    remedy: str


NO_SPACE = Fault(
    "no space is left on the disk",
    "free some, or let CUTAWAY_CACHE_DIR and TMPDIR name folders on another disk",
)
NO_QUOTA = Fault("your quota of disk space is used up", NO_SPACE.remedy)
READ_ONLY = Fault("the file system is read-only", "let CUTAWAY_CACHE_DIR and TMPDIR name folders that you may write to")
DENIED = Fault(
    "you may not write there", "change the rights, or let CUTAWAY_CACHE_DIR name a folder that you may write to"
)
NOT_A_FOLDER = Fault(
    "something that is no folder is in the way", "move it, or let CUTAWAY_CACHE_DIR name another folder"
)
TOO_MANY_FILES = Fault(
    "this process has as many files open as it may",
    "close some, or raise the limit (`ulimit -n`, before Python starts)",
)
SYSTEM_FILES = Fault("all processes of this machine have as many files open as they may", "end some of them")
NO_MEMORY = Fault("there is not enough memory", "free some, or build fewer things at once")
TOO_MANY_PROCESSES = Fault("no further process can be started", "end some, or raise the limit (`ulimit -u`)")
FILE_TOO_LARGE = Fault("the limit of a file's size is reached", "raise it (`ulimit -f`, before Python starts)")
NO_PROGRAM = Fault("it is no program for this machine", "let CXX name a C++ compiler for it")

_BY_NUMBER = {
    errno.ENOSPC: NO_SPACE,
    errno.EDQUOT: NO_QUOTA,
    errno.EROFS: READ_ONLY,
    errno.EACCES: DENIED,
    errno.EPERM: DENIED,
    errno.ENOTDIR: NOT_A_FOLDER,
    errno.EISDIR: NOT_A_FOLDER,
    errno.EMFILE: TOO_MANY_FILES,
    errno.ENFILE: SYSTEM_FILES,
    errno.ENOMEM: NO_MEMORY,
    errno.EAGAIN: TOO_MANY_PROCESSES,
    errno.EFBIG: FILE_TOO_LARGE,
    errno.ENOEXEC: NO_PROGRAM,
}
_BY_TEXT = (
    (r"no space left on device", NO_SPACE),
    (r"disk quota exceeded", NO_QUOTA),
    (r"read-only file system", READ_ONLY),
    (r"too many open files in system", SYSTEM_FILES),
    (r"too many open files", TOO_MANY_FILES),
    (r"file size limit exceeded|file too large", FILE_TOO_LARGE),
    (r"cannot allocate memory|virtual memory exhausted|out of memory|memory exhausted|Killed signal", NO_MEMORY),
    (r"resource temporarily unavailable", TOO_MANY_PROCESSES),
)
ELSEWHERE = frozenset({NO_SPACE, NO_QUOTA, READ_ONLY, DENIED})
"""The faults of a folder that another folder may not have."""


def of_error(error: OSError) -> Fault | None:
    """The fault behind a failed call of the system."""
    return _BY_NUMBER.get(error.errno) if error.errno else of_text(str(error))


def of_text(said: str) -> Fault | None:
    """The fault that a program speaks of as it fails."""
    return next((fault for pattern, fault in _BY_TEXT if re.search(pattern, said, re.IGNORECASE)), None)


def words(error: OSError) -> str:
    """What failed, and what to do about it where that is known."""
    fault = of_error(error)
    named = f" ({error.filename})" if isinstance(error.filename, str) else ""
    if fault is None:
        return f"{error.strerror or error}{named}"
    return f"{fault.what}{named}; {fault.remedy}"
