"""Prints the tests of the files that changed since a commit, or of the files that are named, one a line.

    python -m tests.changed [main]
    python -m tests.changed compiler_core/loops/lower/reductions.py

``tests/FOLDER`` mirrors ``compiler_core/FOLDER``; ``tests/api`` tests the options and errors, too.  A module's tests
are the files there that have its name in theirs and use it; or else all of the folder, if any there uses it; or else
the files elsewhere that import it.  `tests/docs/test_changed.py` checks that a test of each module uses it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.docs import imports

ROOT = Path(__file__).resolve().parents[1]
USED_BY = {
    "kernel_magics/server.py": "tests/ui/test_tour.py",  # JupyterLab's server runs it
    "compiler_core/api/torch_backend.py": "tests/api/test_torch_backend.py",
}
"""The tests of modules that no test imports by itself, and none in the module's folder uses."""


def changed(since: str) -> list[Path]:
    """The files that differ from where the branch left `since`, also those not committed or not tracked."""

    def lines(*command: str) -> list[str]:
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()

    base = lines("git", "merge-base", since, "HEAD")[0]
    names = lines("git", "diff", "--name-only", base) + lines("git", "ls-files", "--others", "--exclude-standard")
    return [Path(name) for name in names]


def matching(file: Path) -> list[Path]:
    """The test files, or the folder of tests, of one file; none where nothing tests it."""
    package, *folders = file.parts[:-1] or ("",)
    if package == "tests" and file.name.startswith("test_") and (ROOT / file).exists():
        return [file]
    if file.suffix != ".py" or package not in ("compiler_core", "kernel_magics"):
        return []
    if file.as_posix() in USED_BY:
        return [Path(USED_BY[file.as_posix()])]
    module = next((name for name, path in imports.FILES.items() if path == ROOT / file), "")  # none if it is deleted
    folder = Path("tests", package if package == "kernel_magics" else folders[0] if folders else "api")
    near = sorted((ROOT / folder).rglob("test_*.py"))
    named = [test for test in near if file.stem in test.stem and module in imports.reached(test)]
    whole = [ROOT / folder] if not module or any(module in imports.reached(test) for test in near) else []
    far = () if named or whole else sorted((ROOT / "tests").rglob("test_*.py"))
    found = named or whole or [test for test in far if module in imports.imported(test)]
    return [test.relative_to(ROOT) for test in found if test.exists()]


def main(arguments: Sequence[str]) -> None:
    named = [Path(each) for each in arguments if (ROOT / each).is_file()]
    found = {test for file in named or changed(*arguments or ("main",)) for test in matching(file)}
    print(*sorted(t for t in found if not found.intersection(t.parents)), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
