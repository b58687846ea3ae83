"""External programs: compilers, assemblers, disassemblers.  All are run by `run`.

A program has a limit of time and of output.  It runs in a session of its own, which is ended as a whole when the
limit is reached or the caller is interrupted, so nothing of it goes on behind the caller's back.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from compiler_core.codegen.build import faults
from compiler_core.errors import BuildError, MissingTool, TimedOut
from compiler_core.support.interrupts import safe_point

LIMIT = 1 << 20
"""Bytes that are kept of each of a program's two outputs."""
_TICK_S = 0.1
"""How often it is looked whether a program has ended while something that it started still holds its outputs."""


class Done(NamedTuple):
    """A program that has ended."""

    status: int
    """Its exit status; the negated number of the signal that ended it."""
    out: str
    err: str
    cut: bool
    """Whether it wrote more than the limit."""


def run(
    command: Sequence[str], *, timeout: float, limit: int = LIMIT, environment: Mapping[str, str] | None = None
) -> Done:
    """Run a program to its end, without input.

    TimedOut: it did not end within `timeout` seconds.  OSError: it could not be started.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    try:
        outputs = _Outputs(process, limit)
        if not outputs.read_until(time.monotonic() + timeout):
            raise TimedOut(f"{Path(command[0]).name} did not end within {timeout:g} s and was stopped")
    finally:
        _end(process)
    out, err = (bytes(text).decode("utf-8", "replace") for text in outputs.texts)
    return Done(process.returncode, out, err, outputs.cut)


def checked(
    command: Sequence[str],
    what: str,
    *,
    timeout: float,
    limit: int = LIMIT,
    environment: Mapping[str, str] | None = None,
) -> Done:
    """`run`, of which nothing but success comes back; `what` is the program's name in errors.

    MissingTool: it cannot run here, or what it says is a fault of this machine.  BuildError: it failed.
    """
    try:
        done = run(command, timeout=timeout, limit=limit, environment=environment)
    except OSError as error:
        raise MissingTool(f"{what} did not run: {faults.words(error)}") from error
    if done.status:
        raise _failed(command, what, done)
    if done.cut:
        raise BuildError(f"{what} wrote more than {limit:,} bytes")
    return done


def _failed(command: Sequence[str], what: str, done: Done) -> BuildError:
    if fault := faults.of_text(done.err):
        return MissingTool(f"{what} failed: {fault.what}; {fault.remedy}\n{done.err.strip()}")
    how = f"with status {done.status}" if done.status > 0 else f"by signal {-done.status}"
    said = done.err.strip().splitlines()
    worst = next((line.partition("error: ")[2] for line in said if "error: " in line), "it does not say why")
    words = "\n".join([" ".join(command), *said[:20]])
    return BuildError(f"{Path(command[0]).name} failed {how}: {worst}\n{words}")


class _Outputs:
    """What a program writes, as it comes."""

    def __init__(self, process: subprocess.Popen[bytes], limit: int) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._process, self._limit = process, limit
        self._pipes = (process.stdout, process.stderr)
        self.texts = (bytearray(), bytearray())
        self.cut = False

    def read_until(self, deadline: float) -> bool:
        """Whether the program ended before the deadline."""
        with selectors.DefaultSelector() as selector:
            for pipe, text in zip(self._pipes, self.texts, strict=True):
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_READ, text)
            while selector.get_map():
                safe_point()
                left = deadline - time.monotonic()
                ready = selector.select(min(max(left, 0), _TICK_S))
                for key, _ in ready:
                    if not self._took(key.fd, key.data):
                        selector.unregister(key.fileobj)
                if not ready and _has_ended(self._process):
                    return True
                if left <= 0:
                    return False
        pause = 0.0005
        while not _has_ended(self._process):
            if time.monotonic() > deadline:
                return False
            safe_point()
            time.sleep(pause)
            pause = min(2 * pause, _TICK_S)
        return True

    def _took(self, fd: int, text: bytearray) -> bool:
        """Take what is there; False at the end."""
        piece = os.read(fd, 1 << 16)
        room = self._limit - len(text)
        text += piece[:room]
        self.cut = self.cut or len(piece) > room
        return bool(piece)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Without taking the status, so that the number stays the process's."""
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # this process does not want to know of its children's ends
        return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the program, and whatever it started and left."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # its status is not taken yet, so the number is nobody else's
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
