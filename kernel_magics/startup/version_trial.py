"""Does the compiler work on this Python and this PyTorch?

On versions that its tests cover, yes.  On others a small program is compiled once, in a process of
its own, so that a crash there is not the kernel's; the answer is kept for these versions.
"""

from __future__ import annotations

import functools
import hashlib
import json
import platform
import sys
from contextlib import suppress

from compiler_core.codegen.build import disk_cache, external, faults
from compiler_core.errors import MissingTool, TimedOut

TESTED_PYTHON = ("3.11", "3.12", "3.13")
TESTED_TORCH = ("2.11", "2.12", "2.13")
TIMEOUT_S = 120

PROGRAM = """
import torch
from compiler_core.api import compile as api

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
    key = hashlib.sha256("Python {}, PyTorch {}".format(*versions()).encode()).hexdigest()
    answer = _read(key)
    if answer is None:
        answer = try_out(PROGRAM)
        with suppress(MissingTool):  # then the trial runs again next time
            disk_cache.write("engines", key, json.dumps(answer).encode())
    return answer


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
        done = external.run([sys.executable, "-c", program], timeout=TIMEOUT_S)
    except TimedOut:
        return f"the trial did not end within {TIMEOUT_S} s"
    except OSError as error:
        return f"the trial did not start: {faults.words(error)}"
    if done.status < 0:
        return f"the trial crashed with signal {-done.status}"
    if done.status:
        return (done.err.strip().splitlines() or ["the trial failed"])[-1][:200]
    return ""


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _read(key: str) -> str | None:
    """What a trial in an earlier process came to."""
    try:
        answer = json.loads(disk_cache.read("engines", key) or b"null")
    except ValueError:
        return None
    return answer if isinstance(answer, str) else None
