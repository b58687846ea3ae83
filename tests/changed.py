"""Prints the tests of the files that changed since a commit, one a line:  python -m tests.changed [main]

A module's tests are those of its folder whose name contains the module's, or else all of its folder.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def changed(since: str) -> list[Path]:
    """The files that differ from where the branch left `since`, also those not committed or not tracked."""

    def lines(*command: str) -> list[str]:
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()

    base = lines("git", "merge-base", since, "HEAD")[0]
    names = lines("git", "diff", "--name-only", base) + lines("git", "ls-files", "--others", "--exclude-standard")
    return [Path(name) for name in names]


def matching(file: Path) -> Iterator[Path]:
    """The test files, or the folder of tests, of one file; none where nothing tests it."""
    package, *folders = file.parts
    if package == "tests" and file.name.startswith("test_") and (ROOT / file).exists():
        yield file
    elif file.suffix == ".py" and package in ("compiler_core", "kernel_magics"):
        folder = Path("tests", folders[0] if package == "compiler_core" and len(folders) > 1 else package)
        named = sorted((ROOT / folder).glob(f"test_*{file.stem}*.py"))
        if named:
            yield from (each.relative_to(ROOT) for each in named)
        elif (ROOT / folder).is_dir():
            yield folder


def main(arguments: Sequence[str]) -> None:
    found = {test for file in changed(arguments[0] if arguments else "main") for test in matching(file)}
    print(*sorted(t for t in found if not found.intersection(t.parents)), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
