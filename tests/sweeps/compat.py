"""The core of the test suite on other versions of PyTorch:  python -m tests.sweeps.compat [VERSION ...] [-- pytest
arguments].

The PyTorch that is here always; those that are named ("2.14.1", "2.15.0": gigabytes each) get a virtual environment of
their own, .venv-torch-2.14.1 and so on, as do those that have one already.  What cannot be installed is said, and the
next one tried.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import version

from tests.sweeps.versions import NEEDS, ROOT, TESTS, run_tests

HERE = version("torch")
STOCK = [
    *(f"tests/stock/test_{name}.py" for name in ("stock", "stock_logs", "stock_cells", "stock_ranks")),
    "tests/records/test_compare.py",
]
BESIDES = ["anywidget", "ipython", "traitlets"]
"""What the tests of stock's cells need of the notebook half."""


def python(torch: str) -> str | None:
    """A Python with this PyTorch; None, and a line that says why, where it cannot be installed."""
    folder = ROOT / f".venv-torch-{torch}"
    own = folder / "bin" / "python"
    if not folder.exists():
        print(f"Making {folder.name} ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    wanted = [f"torch=={torch}", *(need for need in (*NEEDS, *BESIDES) if need != "torch")]
    install = [str(own), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted]
    done = subprocess.run(install, check=False, capture_output=True, text=True)
    if done.returncode:
        shutil.rmtree(folder)
        print(f"torch {torch}: cannot be installed: {(done.stderr.strip().splitlines() or ['?'])[-1]}", flush=True)
        return None
    return str(own)


def main(arguments: list[str]) -> int:
    split = arguments.index("--") if "--" in arguments else len(arguments)
    made = [folder.name.removeprefix(".venv-torch-") for folder in ROOT.glob(".venv-torch-*")]
    others = [each for each in dict.fromkeys([*arguments[:split], *sorted(made)]) if each != HERE.partition("+")[0]]
    pythons = {HERE: sys.executable} | {other: found for other in others if (found := python(other))}
    tests = arguments[split + 1 :] or [*TESTS, *STOCK]
    return sum(run_tests(f"torch {torch}", executable, tests) for torch, executable in pythons.items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
