"""Runs external programs (compilers, assemblers, disassemblers), and names the faults of the machine that stop them.

A program has a time limit and an output limit.  It runs in a new session, all processes of which are killed when the
limit is reached or the caller is interrupted, so that no process is left running.  If this process is killed itself, a
signal does not reach the session.  A watcher, a small shell process, reads the sessions from a pipe that only this
process writes to.  At the end of the pipe, which the kernel closes even after SIGKILL, the watcher kills the sessions
that still run.

Faults are a full disk, missing permissions, limits; `docs/faults.md` lists them all, with the messages that name them.
"""

from __future__ import annotations

import atexit
import errno
import os
import re
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

from compiler_core.errors import BuildError, MissingTool, TimedOut
from compiler_core.support.fork_locks import replace_after_fork

OUTPUT_LIMIT = 1 << 20
"""The maximum number of bytes read from each of stdout and stderr."""
_POLL_S = 0.1
"""How often to check whether a program has ended while a child process keeps its outputs open."""


class CompletedProgram(NamedTuple):
    """The result of a program that has ended."""

    status: int
    """The exit status, or the negated number of the signal that ended the program."""
    out: str
    err: str
    cut: bool
    """Whether the program wrote more than the limit, so that the output is truncated."""


class Stopped(Exception):
    """A build was stopped, because the compile that needs it has ended."""


_stopping: ContextVar[tuple[threading.Event, ...]] = ContextVar("_stopping", default=())
"""The events of the blocks of `stopped_on_error` around."""


@contextmanager
def stopped_on_error() -> Iterator[None]:
    """Context manager that stops the programs which threads run in its context, if its block raises an exception."""
    stopping = threading.Event()
    token = _stopping.set((*_stopping.get(), stopping))
    try:
        yield
    except BaseException:
        stopping.set()
        raise
    finally:
        _stopping.reset(token)


def check() -> None:
    """Runs handlers of signals that are pending.  Raises Stopped if the build that runs is to end."""
    from compiler_core.support.interrupts import safe_point  # imports PyTorch, which commands do without

    if any(stopping.is_set() for stopping in _stopping.get()):
        raise Stopped
    safe_point()


def run(
    command: Sequence[str],
    *,
    timeout: float,
    limit: int = OUTPUT_LIMIT,
    environment: Mapping[str, str] | None = None,
) -> CompletedProgram:
    """Runs a program to its end, without input, and returns its exit status and outputs.

    `check` is called every `_POLL_S` seconds or more often; what it raises stops the program.  Raises TimedOut if the
    program did not end within `timeout` seconds, OSError if it could not be started.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    outputs = _Outputs(process, limit)
    try:
        with ended_with_this_process(process.pid):
            if not outputs.read_until(time.monotonic() + timeout):
                raise TimedOut(f"{Path(command[0]).name} did not end within {timeout:g} s and was stopped")
    finally:
        _end(process)
    out, err = (bytes(text).decode("utf-8", "replace") for text in outputs.texts)
    return CompletedProgram(process.returncode, out, err, outputs.cut)


def run_checked(
    command: Sequence[str],
    what: str,
    *,
    timeout: float,
    limit: int = OUTPUT_LIMIT,
    environment: Mapping[str, str] | None = None,
) -> CompletedProgram:
    """Like `run`, but raises an error unless the program succeeds; `what` is the program's name in errors.

    Raises MissingTool if the program cannot run here or failed because of the machine (`Fault`), BuildError if it
    failed otherwise or wrote too much, TimedOut if it did not end in time.
    """
    try:
        done = run(command, timeout=timeout, limit=limit, environment=environment)
    except OSError as error:
        raise MissingTool(f"{what} did not run: {describe_fault(error)}") from error
    if done.status:
        raise _error_of(command, what, done)
    if done.cut:
        raise BuildError(f"{what} wrote more than {limit:,} bytes")
    return done


def _error_of(command: Sequence[str], what: str, done: CompletedProgram) -> BuildError:
    if fault := fault_in_output(done.err):
        return MissingTool(f"{what} failed: {fault.what}; {fault.remedy}\n{done.err.strip()}")
    how = f"with status {done.status}" if done.status > 0 else f"by signal {-done.status}"
    lines = done.err.strip().splitlines()
    reason = next((line.partition("error: ")[2] for line in lines if "error: " in line), "it printed no reason")
    message = "\n".join([" ".join(command), *lines[:20]])
    return BuildError(f"{Path(command[0]).name} failed {how}: {reason}\n{message}")


class _Outputs:
    """The outputs of a running program."""

    def __init__(self, process: subprocess.Popen[bytes], limit: int) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._process, self._limit = process, limit
        self._pipes = (process.stdout, process.stderr)
        self.texts = (bytearray(), bytearray())
        self.cut = False

    def read_until(self, deadline: float) -> bool:
        """Reads the outputs until the program ends; returns False if the deadline passes before."""
        with selectors.DefaultSelector() as selector:
            for pipe, text in zip(self._pipes, self.texts, strict=True):
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_READ, text)
            while selector.get_map():
                check()
                left = deadline - time.monotonic()
                ready = selector.select(min(max(left, 0), _POLL_S))
                for key, _ in ready:
                    if not self._read_available(key.fd, key.data):
                        selector.unregister(key.fileobj)
                if not ready and _has_ended(self._process):
                    for key in selector.get_map().values():  # it may have written before it ended
                        self._read_rest(key.fd, key.data)
                    return True
                if left <= 0:
                    return False
        pause = 0.0005
        while not _has_ended(self._process):
            if time.monotonic() > deadline:
                return False
            check()
            time.sleep(pause)
            pause = min(2 * pause, _POLL_S)
        return True

    def _read_rest(self, fd: int, text: bytearray) -> None:
        with suppress(BlockingIOError):
            while self._read_available(fd, text) and not self.cut:
                pass

    def _read_available(self, fd: int, text: bytearray) -> bool:
        """Reads what is available from a pipe; returns False at its end."""
        piece = os.read(fd, 1 << 16)
        room = self._limit - len(text)
        text += piece[:room]
        self.cut = self.cut or len(piece) > room
        return bool(piece)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Returns whether the process has ended, without reaping it, so that its id cannot be reused yet."""
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # SIGCHLD is ignored in this process, so the child was reaped already
        return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kills the program and all processes of its session, and closes its pipes."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # not reaped yet, so the id cannot belong to another process
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


_SCRIPT = """
running=
while read -r change session; do
    others=
    for each in $running; do [ "$each" = "$session" ] || others="$others $each"; done
    running=$others
    [ "$change" = end ] || running="$running $session"
done
for each in $running; do kill -s KILL -- "-$each"; done
"""

_lock = threading.RLock()
_watcher: subprocess.Popen[bytes] | None = None
"""The watcher of this process; it starts with the first program."""


@contextmanager
def ended_with_this_process(session: int) -> Iterator[None]:
    """Lets the watcher kill the processes of `session` if this process ends inside the block."""
    _report("start", session)
    try:
        yield
    finally:
        _report("end", session)


def _report(change: str, session: int) -> None:
    """Reports to the watcher.  If it cannot be started (no more processes are allowed), programs run without it."""
    global _watcher
    with _lock, suppress(OSError):
        if _watcher is None:
            _watcher = _start_watcher()
        assert _watcher.stdin is not None
        os.write(_watcher.stdin.fileno(), f"{change} {session}\n".encode())


def _start_watcher() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", _SCRIPT],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        cwd="/",
        start_new_session=True,  # a signal that a terminal sends to this process's group does not reach it
    )


def _stop_watcher() -> None:
    """Closes the pipe and waits for the watcher, so that it does not outlive this process."""
    global _watcher
    watcher, _watcher = _watcher, None
    if watcher is not None and watcher.stdin is not None:
        watcher.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            watcher.wait(1)


def _forget_watcher() -> None:
    """Closes a forked child's copy of the pipe; the child starts its own watcher."""
    global _watcher
    if _watcher is not None and _watcher.stdin is not None:
        _watcher.stdin.close()
        _watcher.returncode = 0  # not a child of this process
        _watcher = None


replace_after_fork(sys.modules[__name__], "_lock")
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_watcher)
atexit.register(_stop_watcher)


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


def describe_fault(error: OSError) -> str:
    """Returns a failed system call as text: what failed, and the remedy if it is known."""
    fault = fault_of_error(error)
    named = f" ({error.filename})" if isinstance(error.filename, str) else ""
    if fault is None:
        return f"{error.strerror or error}{named}"
    return f"{fault.what}{named}; {fault.remedy}"
