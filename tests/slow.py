"""Runs a command as a machine N times as slow would: ``python -m tests.slow 6 .venv/bin/pytest tests/ui``.

The command's processes run for some milliseconds, then are stopped for N - 1 times as long, which takes no processor
time.  ``--only TEXT`` slows those only whose command line contains a text: ``--only=--type=renderer`` the pages of
Chromium, so that tests look at a page before it is done; ``--only warm_kernel`` the kernels of notebooks.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import psutil

RUN_S = (0.003, 0.03)
"""The least and the most time for which the processes run."""
LOOK_EVERY_S = 0.5
"""How often new processes are looked for."""


def slow(process: subprocess.Popen[bytes], factor: float, only: str) -> None:
    """Slows the descendants of `process` until it ends."""
    root, slowed, looked = psutil.Process(process.pid), [], -LOOK_EVERY_S
    while process.poll() is None:
        if time.monotonic() - looked > LOOK_EVERY_S:
            slowed, looked = [each for each in _family(root) if only in _command_line(each)], time.monotonic()
        running = random.uniform(*RUN_S)
        try:
            _each(slowed, psutil.Process.suspend)
            time.sleep(running * (factor - 1))
        finally:
            _each(slowed, psutil.Process.resume)
        time.sleep(running)


def _family(root: psutil.Process) -> list[psutil.Process]:
    try:
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""


def _each(processes: Sequence[psutil.Process], do: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            do(process)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("factor", type=float)
    parser.add_argument("--only", default="")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    process = subprocess.Popen(arguments.command)
    slow(process, arguments.factor, arguments.only)
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
