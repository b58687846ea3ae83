"""Runs one case in its own process, with limits of time and memory.

The process is a new Python (`child`), so that a crash, a leak or a hang of one case does not touch the others, under
any executor.  It ends when this process ends, also when this one is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

POLL_S = 0.05
MAX_OUTPUT = 2000
"""Characters of a crashed process's output that its reason contains, the last ones."""

_running: set[subprocess.Popen[bytes]] = set()
_lock = threading.Lock()


class Stopped(Exception):
    """The case was stopped by `stop_all` before it had a result."""


def run_isolated(
    spec: Mapping[str, Any], settings: Mapping[str, Any], tick: Callable[[], Any] = lambda: None
) -> dict[str, Any]:
    """Runs a case in a new process and returns its row.

    Args:
        spec: `Case.spec`.
        settings: with ``timeout`` in seconds and ``memory`` in bytes, None for no limit; and ``threads``, how many
            PyTorch may use, None for its default.
        tick: called every `POLL_S` seconds.

    Returns:
        The row; ``state`` is ``ok``, ``failed`` (it raised), ``crashed``, ``timed out`` or ``out of memory``.

    Raises:
        Stopped: `stop_all` was called.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cutaway-sweep-") as folder:
        result, output = Path(folder, "row.json"), Path(folder, "output")
        with output.open("wb") as stream:
            process = _start(stream, settings.get("threads"))
        order = {"spec": spec, "settings": settings, "result": str(result), "sys_path": settings["sys_path"]}
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()
            why = _wait(process, settings, began, tick)
        except BrokenPipeError:
            why = ""
        finally:
            _kill(process)
            with _lock:
                was_stopped = process not in _running
                _running.discard(process)
        if was_stopped and not result.exists():
            raise Stopped
        row = _row(process, why, settings, result, output)
    return row | {"seconds": time.monotonic() - began}


def stop_all() -> None:
    """Ends the processes of all cases that run now, which makes their `run_isolated` raise `Stopped`."""
    with _lock:
        processes = list(_running)
        _running.clear()
    for process in processes:
        _kill(process)


def _start(output: Any, threads: int | None) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "compiler_core.tools.sweep.child"]
    root = str(Path(__file__).parents[3])
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))}
    if threads is not None:
        env.setdefault("OMP_NUM_THREADS", str(threads))
    with _lock:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, env=env, start_new_session=True
        )
        _running.add(process)
    return process


def _wait(process: subprocess.Popen[bytes], settings: Mapping[str, Any], began: float, tick: Callable[[], Any]) -> str:
    """Waits for the process to end, or for a limit to be passed; returns the state that this means, or ``""``."""
    timeout, memory = settings["timeout"], settings["memory"]
    while process.poll() is None:
        if timeout is not None and time.monotonic() - began > timeout:
            return "timed out"
        if memory is not None and resident_bytes(process.pid) > memory:
            return "out of memory"
        tick()
        time.sleep(POLL_S)
    return ""


def resident_bytes(pid: int) -> int:
    """Returns the memory that a process has now; 0 on systems other than Linux."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and the compilers that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    process.wait()


def _row(
    process: subprocess.Popen[bytes], why: str, settings: Mapping[str, Any], result: Path, output: Path
) -> dict[str, Any]:
    if why == "timed out":
        return {"state": why, "reason": f"it took more than {settings['timeout']:g} s"}
    if why:
        return {"state": why, "reason": f"its process had more than {settings['memory'] / 2**20:,.0f} MiB"}
    if result.exists():
        row: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return row
    text = output.read_text(encoding="utf-8", errors="replace").strip()[-MAX_OUTPUT:]
    code = process.returncode
    end = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return {"state": "crashed", "reason": f"{end}\n{text}".strip()}
