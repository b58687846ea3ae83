"""Checks whether the core engine works on this version of Python and PyTorch.

On versions that the tests cover it does.  On others a small program is compiled once, in a separate
process, so that a crash does not end the kernel; the result is cached for these versions.
"""

from __future__ import annotations

import functools
import hashlib
import json
import platform
import sys
from contextlib import suppress

from compiler_core.errors import MissingTool, TimedOut

TESTED_PYTHON = ("3.11", "3.12", "3.13")
TESTED_TORCH = ("2.11", "2.12", "2.13", "2.14", "2.15")
TIMEOUT_S = 120

PROGRAM = """
import torch
from compiler_core import torch_private

if missing := torch_private.missing():
    raise SystemExit(f"PyTorch {torch.__version__} lacks {', '.join(missing)}")

from compiler_core.api import compile as api
from compiler_core.tools import recording

def function(x):
    y = torch.cos(x) * 2
    return y.sum() if y.sum() > 0 else y.mean()

x = torch.linspace(-1, 1, 12, requires_grad=True)
want = torch.autograd.grad(function(x), x)
with recording.record() as record:
    got = torch.autograd.grad(api.compile(function)(x), x)
torch.testing.assert_close(got, want)
failures = [f.message for c in record.compiles for f in c.failures] + [c.reason for c in record.compiles]
assert record.compiles and not any(failures), failures
"""
"""The trial: looks up PyTorch's private names, compiles a function with a graph break, differentiates it, and compares
with eager."""


def versions() -> tuple[str, str]:
    """Returns the versions of Python and PyTorch."""
    from importlib.metadata import version

    return platform.python_version(), version("torch")


def untested_versions() -> str:
    """Returns the running versions that the tests do not cover, as text; empty if they cover both."""
    python, torch = versions()
    new = [f"Python {python}"] if _minor(python) not in TESTED_PYTHON else []
    new += [f"PyTorch {torch}"] if _minor(torch) not in TESTED_TORCH else []
    return " and ".join(new)


def tested_versions() -> str:
    """Returns the running versions that the tests cover, as text: each of them, not all pairs."""
    python, torch = versions()
    return f"Python {_minor(python)} and with PyTorch {_minor(torch)}"


@functools.cache
def core_engine_problem() -> str:
    """Returns why the core engine does not work on these versions; empty if it works."""
    if not untested_versions():
        return ""
    from compiler_core.codegen.build import disk_cache  # imports PyTorch

    key = hashlib.sha256("Python {}, PyTorch {}".format(*versions()).encode()).hexdigest()
    result = _read_result(key)
    if result is None:
        result = run_trial(PROGRAM)
        with suppress(MissingTool):  # not cached: the trial runs again next time
            disk_cache.write("engines", key, json.dumps(result).encode())
    return result


def version_notice() -> str:
    """Returns one line for a user who loads the extension on untested versions; empty on tested ones."""
    if not (new := untested_versions()):
        return ""
    if reason := core_engine_problem():
        return (
            f"{new} is not tested with this version of Cutaway, and the core engine does not work with it: "
            f"cells run as plain Python ({reason})"
        )
    return f"{new} is not tested with this version of Cutaway; a trial compile succeeded"


def run_trial(program: str) -> str:
    """Runs `program` in a separate process; returns what went wrong, in one line, or an empty string."""
    from compiler_core.codegen.build import external

    try:
        done = external.run([sys.executable, "-c", program], timeout=TIMEOUT_S)
    except TimedOut:
        return f"the trial did not end within {TIMEOUT_S} s"
    except OSError as error:
        return f"the trial did not start: {external.describe_fault(error)}"
    if done.status < 0:
        return f"the trial crashed with signal {-done.status}"
    if done.status:
        return (done.err.strip().splitlines() or ["the trial failed"])[-1][:200]
    return ""


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _read_result(key: str) -> str | None:
    """Returns the cached result of a trial in an earlier process, or None."""
    from compiler_core.codegen.build import disk_cache

    try:
        result = json.loads(disk_cache.read("engines", key) or b"null")
    except ValueError:
        return None
    return result if isinstance(result, str) else None
