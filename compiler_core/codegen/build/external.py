"""Runs external programs: compilers, assemblers, disassemblers.

A program has a time limit and an output limit.  It runs in a new session, all processes of which are killed when the
limit is reached, the caller is interrupted or this process ends (`watcher`), so that no process is left running.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from compiler_core.codegen.build import faults
from compiler_core.codegen.build.watcher import ended_with_this_process
from compiler_core.errors import BuildError, MissingTool, TimedOut
from compiler_core.support.interrupts import safe_point

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


def run(
    command: Sequence[str],
    *,
    timeout: float,
    limit: int = OUTPUT_LIMIT,
    environment: Mapping[str, str] | None = None,
    check: Callable[[], None] = safe_point,
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
    outputs = _Outputs(process, limit, check)
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

    Raises MissingTool if the program cannot run here or failed because of the machine (`faults`), BuildError if it
    failed otherwise or wrote too much, TimedOut if it did not end in time.
    """
    try:
        done = run(command, timeout=timeout, limit=limit, environment=environment)
    except OSError as error:
        raise MissingTool(f"{what} did not run: {faults.describe(error)}") from error
    if done.status:
        raise _error_of(command, what, done)
    if done.cut:
        raise BuildError(f"{what} wrote more than {limit:,} bytes")
    return done


def _error_of(command: Sequence[str], what: str, done: CompletedProgram) -> BuildError:
    if fault := faults.fault_in_output(done.err):
        return MissingTool(f"{what} failed: {fault.what}; {fault.remedy}\n{done.err.strip()}")
    how = f"with status {done.status}" if done.status > 0 else f"by signal {-done.status}"
    lines = done.err.strip().splitlines()
    reason = next((line.partition("error: ")[2] for line in lines if "error: " in line), "it printed no reason")
    message = "\n".join([" ".join(command), *lines[:20]])
    return BuildError(f"{Path(command[0]).name} failed {how}: {reason}\n{message}")


class _Outputs:
    """The outputs of a running program."""

    def __init__(self, process: subprocess.Popen[bytes], limit: int, check: Callable[[], None]) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._process, self._limit, self._check = process, limit, check
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
                self._check()
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
            self._check()
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
