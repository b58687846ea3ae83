"""Ends a test process that stands still, and says where: a separate process that watches it.

pytest-timeout ends a test that takes too long with a signal, whose handler runs when the interpreter gets to it.  In a
native call that holds the GIL and never returns it never does.  So each process that runs tests has a watchdog, which
reads what begins and what ends.  What takes a fifth longer than its limit has the Python stacks of all threads
printed, the native ones where py-spy or gdb is installed, and its process killed with all that it started.  Under
pytest-xdist this is one failed test; another worker goes on with the rest.  `conftest.py` registers `Watched`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import IO, Any

import pytest

PATIENCE = 1.2
"""After this many times the limit the process is killed: pytest-timeout and the clean-up of the test come first."""
LOOK_EVERY_S = 2.0
"""How often the watchdog looks whether the process that it watches still lives; a fork of it may hold the pipe open."""
STACKS = signal.SIGQUIT
"""Prints the Python stacks of all threads.  The handler is C code that does not wait for the GIL."""
STACKS_S = 2.0
GDB = ("-ex", "set print frame-arguments none", "-ex", "thread apply all backtrace 20")
NATIVE_S = 60.0


class Watched:
    """The plugin of pytest that tells the watchdog what begins and what ends in this process."""

    def __init__(self, config: pytest.Config) -> None:
        self._limit = float(getattr(config, "_env_timeout", None) or 0)
        stderr = os.dup(2)  # before pytest captures it
        faulthandler.register(STACKS, file=stderr, all_threads=True)
        command = [sys.executable, "-u", __file__, str(os.getpid())]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def _begin(self, what: str, limit: float | None) -> None:
        self._tell(f"{(limit or 0) * PATIENCE}\t{what}\n")

    def _end(self) -> None:
        self._tell("0\t\n")

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # somebody has killed the watchdog
            os.write(self._process.stdin.fileno(), line.encode())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Iterator[None]:
        self._begin("the collection of the tests", self._limit)
        result = yield
        self._end()
        return result

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: Any) -> None:
        self._begin(item.nodeid, settings.timeout)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_cancel_timer(self, item: pytest.Item) -> None:
        self._end()

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        self._begin("the end of the process", self._limit)


# ---- in the watchdog -------------------------------------------------------------------------


def watch(pid: int, news: IO[bytes]) -> None:
    """Reads what the process does, until it ends or stands still."""
    what, until, unread = "", 0.0, b""
    os.set_blocking(news.fileno(), False)
    while os.getppid() == pid:
        wait = min(LOOK_EVERY_S, max(until - time.monotonic(), 0)) if until else LOOK_EVERY_S
        if select.select([news], [], [], wait)[0]:
            *lines, unread = (unread + os.read(news.fileno(), 1 << 16)).split(b"\n")
            if not lines and not unread:
                return  # the pipe is closed
            if lines:
                limit, what = lines[-1].decode().split("\t", 1)
                until = time.monotonic() + float(limit) if float(limit) else 0.0
        elif until and time.monotonic() >= until:
            end(pid, what)
            return


def end(pid: int, what: str) -> None:
    """Prints where a process stands, and kills it with all processes that it started."""
    import psutil  # where pytest-timeout sets limits, the other packages for tests are there, too

    say(f"\nwatchdog: process {pid} stands still in {what}; it is killed.  Its Python stacks:")
    os.kill(pid, STACKS)
    time.sleep(STACKS_S)
    commands = {
        "py-spy": ["py-spy", "dump", "--native", "--pid", str(pid)],
        "gdb": ["gdb", "-nx", "-batch", "-p", str(pid), *GDB],
    }
    if tool := next(filter(shutil.which, commands), None):
        say(f"watchdog: native stacks, by {tool}:")
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(commands[tool], stdout=2, stdin=subprocess.DEVNULL, timeout=NATIVE_S, check=False)
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        children = [each for each in process.children(recursive=True) if each.pid != os.getpid()]
        process.kill()
        for each in children:
            with contextlib.suppress(psutil.Error):
                say(f"watchdog: process {each.pid} of it is killed: {' '.join(each.cmdline())}")
                each.kill()
    say(f"watchdog: {what} did not end")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    watch(int(sys.argv[1]), sys.stdin.buffer)
