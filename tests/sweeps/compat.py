"""Runs the core of the test suite on other versions of PyTorch.

    python -m tests.sweeps.compat [VERSION ...] [-- pytest arguments]

The installed PyTorch is always tested.  Each version named ("2.14.1", or "2.14.1-3.13" on CPython 3.13: gigabytes each)
gets a virtual environment such as .venv-torch-2.14.1 with all that the suite needs, so that ``-- tests`` runs the whole
suite there; versions that have one already are tested as well.  One that cannot be installed is reported and skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from tests.sweeps.versions import ROOT, TESTS, interpreter, run_tests

INSTALLED = version("torch")
STOCK = [
    *(f"tests/tools/stock/test_{name}.py" for name in ("stock", "stock_logs", "stock_cells", "stock_ranks")),
    "tests/tools/test_compare.py",
]
BUILD_TOOLS = ["hatchling", "editables", "hatch-jupyter-builder", "jupyter-builder"]
OF_PYTORCH = ("torch", "triton", "setuptools")
"""The packages whose versions a PyTorch decides."""


def python(pair: str) -> str | None:
    """Returns the Python of a virtual environment; prints the reason and returns None if it cannot be made."""
    folder = ROOT / f".venv-torch-{pair}"
    own = folder / "bin" / "python"
    torch, _, cpython = pair.partition("-")
    if not folder.exists():
        base = interpreter(int(cpython.removeprefix("3."))) if cpython else sys.executable
        if base is None:
            print(f"torch {pair}: CPython {cpython} is not on this machine", flush=True)
            return None
        print(f"Making {folder.name} ...", flush=True)
        subprocess.run([base, "-m", "venv", folder], check=True)
    pinned = (ROOT / "constraints.txt").read_text().splitlines(keepends=True)
    constraints = folder / "constraints.txt"
    constraints.write_text("".join(line for line in pinned if line.partition("==")[0] not in OF_PYTORCH))
    list_needs = [sys.executable, str(ROOT / ".ci/packages.py"), "test"]
    needs = subprocess.run(list_needs, check=True, capture_output=True, text=True).stdout.splitlines()
    install: list[str | Path] = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    packages: list[str | Path] = ["-c", constraints, f"torch=={torch}", *needs, *BUILD_TOOLS]
    cutaway: list[str | Path] = ["--no-build-isolation", "--no-deps", "-e", ROOT]
    for wanted in (packages, cutaway):
        environment = os.environ | {"HATCH_JUPYTER_BUILDER_SKIP_NPM": "1"}
        done = subprocess.run([*install, *wanted], check=False, capture_output=True, text=True, env=environment)
        if done.returncode:
            shutil.rmtree(folder)
            print(f"torch {pair}: cannot be installed: {(done.stderr.strip().splitlines() or ['?'])[-1]}", flush=True)
            return None
    return str(own)


def main(arguments: list[str]) -> int:
    split = arguments.index("--") if "--" in arguments else len(arguments)
    results = [folder.name.removeprefix(".venv-torch-") for folder in ROOT.glob(".venv-torch-*")]
    others = [
        each for each in dict.fromkeys([*arguments[:split], *sorted(results)]) if each != INSTALLED.partition("+")[0]
    ]
    pythons = {INSTALLED: sys.executable} | {other: found for other in others if (found := python(other))}
    tests = arguments[split + 1 :] or [*TESTS, *STOCK]
    return sum(run_tests(f"torch {torch}", executable, tests) for torch, executable in pythons.items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
