"""Ends the programs that this process started when the process itself ends, however it ends.

A program runs in its own session, so that it can be ended with all that it started; a signal that ends this process
does not reach it.  A watcher, a small shell process, reads the sessions from a pipe that only this process writes to.
At the end of the pipe, which the kernel closes even after SIGKILL, the watcher kills the sessions that still run.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from compiler_core.support.fork_locks import replace_after_fork

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
            _watcher = _start()
        assert _watcher.stdin is not None
        os.write(_watcher.stdin.fileno(), f"{change} {session}\n".encode())


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", _SCRIPT],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        cwd="/",
        start_new_session=True,  # a signal that a terminal sends to this process's group does not reach it
    )


def _stop() -> None:
    """Closes the pipe and waits for the watcher, so that it does not outlive this process."""
    global _watcher
    watcher, _watcher = _watcher, None
    if watcher is not None and watcher.stdin is not None:
        watcher.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            watcher.wait(1)


def _forget() -> None:
    """Closes a forked child's copy of the pipe; the child starts its own watcher."""
    global _watcher
    if _watcher is not None and _watcher.stdin is not None:
        _watcher.stdin.close()
        _watcher.returncode = 0  # not a child of this process
        _watcher = None


replace_after_fork(sys.modules[__name__], "_lock")
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
atexit.register(_stop)
