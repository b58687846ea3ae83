"""Runs the tests of the compiler's front half on every installed CPython.

    python tests/sweeps/versions.py [pytest arguments]

Each version gets its own virtual environment, .venv-3.12 and so on, with PyTorch and pytest.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MINORS = (11, 12, 13)
NEEDS = ["torch", "numpy", "networkx", "sympy", "hypothesis", "pytest", "pytest-timeout", "pytest-xdist"]
TESTS = [
    "tests/programs",
    "tests/api/test_compile.py",
    "tests/capture/test_break_kinds.py",
    "tests/bytecode/test_bytecode.py",
    "tests/tools/test_decompile.py",
    "tests/tools/test_structured.py",
    "tests/guards/test_guards.py",
    "tests/capture/test_modules.py",
    "tests/programs/test_programs.py",
    "tests/sweeps/test_random_programs.py",
    "tests/resume/test_resume_functions.py",
    "tests/notebooks/test_toy.py",
]


def python(minor: int) -> str | None:
    """Returns a CPython 3.`minor` with PyTorch: from a virtual environment made here or by `make test`."""
    own = ROOT / f".venv-3.{minor}" / "bin" / "python"
    if sys.version_info.minor == minor:
        return sys.executable
    if not own.exists():
        base = interpreter(minor)
        if base is None:
            return None
        print(f"Making .venv-3.{minor} ...", flush=True)
        subprocess.run([base, "-m", "venv", own.parents[1]], check=True)
    install: list[str | Path] = [
        own,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "-c",
        ROOT / "constraints.txt",
    ]
    subprocess.run([*install, *NEEDS], check=True)
    return str(own)


def interpreter(minor: int) -> str | None:
    """Returns an installed CPython 3.`minor`, or None."""
    installed = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))
    return str(installed[-1]) if installed else shutil.which(f"python3.{minor}")


def run_tests(name: str, executable: str, arguments: list[str]) -> bool:
    """Runs the tests, prints failures and returns whether there were any."""
    command = [executable, "-m", "pytest", "-q", *arguments]
    environment = os.environ | {"PATH": f"{Path(executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    ran = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, env=environment)
    shown = ran.stdout.splitlines()
    if ran.returncode:
        print("\n".join(line for line in shown if re.match(r"FAILED|ERROR", line)) or ran.stdout + ran.stderr)
    print(f"{name}: {shown[-1] if shown else ran.stderr[-300:]}", flush=True)
    return bool(ran.returncode)


def main(arguments: list[str]) -> int:
    failed = 0
    for minor in MINORS:
        executable = python(minor)
        if executable is None:
            print(f"3.{minor}: not on this machine")
            continue
        failed += run_tests(f"3.{minor}", executable, arguments or TESTS)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
