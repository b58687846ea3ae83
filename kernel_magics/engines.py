"""Does the compiler work on this Python and this PyTorch?

On versions that its tests cover, yes.  On others a small program is compiled once, in a process of
its own, so that a crash there is not the kernel's; the answer is kept for these versions.
"""

from __future__ import annotations

import functools
import json
import platform
import subprocess
import sys
from pathlib import Path

from compiler_core.config import cache_dir

TESTED_PYTHON = ("3.11", "3.12", "3.13")
TESTED_TORCH = ("2.11", "2.12", "2.13")
TIMEOUT_S = 120

PROGRAM = """
import torch
from compiler_core import api

def function(x):
    y = torch.cos(x) * 2
    return y.sum() if y.sum() > 0 else y.mean()

x = torch.linspace(-1, 1, 12, requires_grad=True)
want = torch.autograd.grad(function(x), x)
with api.record() as record:
    got = torch.autograd.grad(api.compile(function)(x), x)
torch.testing.assert_close(got, want)
failures = [f.message for c in record.compiles for f in c.failures] + [c.reason for c in record.compiles]
assert record.compiles and not any(failures), failures
"""
"""Compiles, breaks, differentiates, and compares with eager."""


def versions() -> tuple[str, str]:
    """Of Python and PyTorch."""
    from importlib.metadata import version

    return platform.python_version(), version("torch")


def untested() -> str:
    """The versions here that the tests do not cover, in words; empty where they cover both."""
    python, torch = versions()
    new = [f"Python {python}"] if _minor(python) not in TESTED_PYTHON else []
    new += [f"PyTorch {torch}"] if _minor(torch) not in TESTED_TORCH else []
    return " and ".join(new)


@functools.cache
def broken() -> str:
    """Why the core engine does not work here; empty where it does."""
    if not untested():
        return ""
    answers = _read(_file())
    key = "Python {}, PyTorch {}".format(*versions())
    if key not in answers:
        answers[key] = try_out(PROGRAM)
        _write(_file(), answers)
    return answers[key]


def report() -> str:
    """One line for whoever loads the extension on versions that are not tested; empty on others."""
    if not (new := untested()):
        return ""
    if reason := broken():
        return f"{new} is not tested with this version: no engine works here, and cells run as plain Python ({reason})"
    return f"{new} is not tested with this version: a trial shows that the core engine works"


def try_out(program: str) -> str:
    """Run `program` in a process of its own; what went wrong in one line, or nothing."""
    try:
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"the trial did not end within {TIMEOUT_S} s"
    if done.returncode < 0:
        return f"the trial crashed with signal {-done.returncode}"
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["the trial failed"])[-1][:200]
    return ""


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _file() -> Path:
    return cache_dir() / "engines.json"


def _read(path: Path) -> dict[str, str]:
    try:
        answers = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return answers if isinstance(answers, dict) else {}


def _write(path: Path, answers: dict[str, str]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(answers), encoding="utf-8")
    except OSError:
        pass  # then the trial runs again next time
