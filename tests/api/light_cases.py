"""Cases for tests of sweeps that need no PyTorch: what happens to the process of a case, and a row for it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compiler_core.tools.sweep.cases import Case, make_case

MEASURE = f"{__name__}:measure"


def make(what: str, value: int = 0, folder: str = "") -> tuple[Any, tuple[Any, ...]]:
    return what, (value, folder)


def case(name: str, what: str = "ok", value: int = 0, folder: Path | str = "") -> Case:
    return Case(name, make, (what, value, str(folder)))


def measure(spec: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    what, (value, folder), _ = make_case(spec)
    if what == "raise":
        raise ValueError(f"no model of {value}")
    if what == "crash":
        print("the last words")
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "hang":
        time.sleep(1000)
    if what == "eat":
        eaten = [bytearray(b"x" * 2**20) for _ in range(400)]
        time.sleep(1000)
        print(len(eaten))
    if what == "count threads":
        return {"graphs": int(os.environ["OMP_NUM_THREADS"])}
    if what == "sleep":
        time.sleep(0.3)
    if what == "kill the worker once" and not (marker := Path(folder) / spec["name"]).exists():
        marker.touch()
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1000)
    break_ = {"kind": "print", "file": "model.py", "line": 24, "text": "print(x)", "reason": "It prints.", "hint": ""}
    return {"graphs": 1 + value % 2, "graph_breaks": value % 2, "recompiles": 0, "failures": 0, "speed": 1.5,
            "compile_seconds": 1.0 + value, "breaks": [break_] * (value % 2)}  # fmt: skip
