"""Faults of the machine (full disk, missing permissions, limits): how to recognise them, and their remedies.

`docs/faults.md` lists them all, with the messages that name them.
"""

from __future__ import annotations

import errno
import re
from typing import NamedTuple


class Fault(NamedTuple):
    """A condition of this machine that prevents building or caching kernels."""

    what: str
    remedy: str


NO_SPACE = Fault(
    "no space is left on the disk",
    "free some space, or set CUTAWAY_CACHE_DIR and TMPDIR to folders on another disk",
)
NO_QUOTA = Fault("your disk quota is exceeded", NO_SPACE.remedy)
READ_ONLY = Fault("the file system is read-only", "set CUTAWAY_CACHE_DIR and TMPDIR to writable folders")
DENIED = Fault("you have no permission to write there", "change it, or set CUTAWAY_CACHE_DIR to a writable folder")
NOT_A_FOLDER = Fault(
    "a part of the path is not a folder", "move that file away, or set CUTAWAY_CACHE_DIR to another folder"
)
TOO_MANY_FILES = Fault(
    "this process has too many open files",
    "close some, or raise the limit (`ulimit -n`, before Python starts)",
)
SYSTEM_FILES = Fault("this machine has too many open files", "end some processes")
NO_MEMORY = Fault("there is not enough memory", "free some memory, or build fewer things at once")
TOO_MANY_PROCESSES = Fault("no more processes can be started", "end some, or raise the limit (`ulimit -u`)")
FILE_TOO_LARGE = Fault("the file size limit is reached", "raise it (`ulimit -f`, before Python starts)")
NO_PROGRAM = Fault("it is not a program for this machine", "set CXX to a C++ compiler for this machine")

_BY_ERRNO = {
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
FOLDER_FAULTS = frozenset({NO_SPACE, NO_QUOTA, READ_ONLY, DENIED})
"""Faults of a folder: the same operation may succeed in another folder."""


def fault_of_error(error: OSError) -> Fault | None:
    """Returns the fault that caused a failed system call, or None if it is not known."""
    return _BY_ERRNO.get(error.errno) if error.errno else fault_in_output(str(error))


def fault_in_output(output: str) -> Fault | None:
    """Returns the fault that a failed program's output names, or None."""
    return next((fault for pattern, fault in _BY_TEXT if re.search(pattern, output, re.IGNORECASE)), None)


def describe(error: OSError) -> str:
    """Returns a failed system call as text: what failed, and the remedy if it is known."""
    fault = fault_of_error(error)
    named = f" ({error.filename})" if isinstance(error.filename, str) else ""
    if fault is None:
        return f"{error.strerror or error}{named}"
    return f"{fault.what}{named}; {fault.remedy}"
