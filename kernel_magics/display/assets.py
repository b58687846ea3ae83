"""The files of the built browser code."""

from __future__ import annotations

from pathlib import Path

from compiler_core.errors import BuildError

STATIC = Path(__file__).parents[1] / "static"


def asset(name: str) -> Path:
    """Returns the path of a file that the browser build makes; raises BuildError, with the remedy, if it is missing."""
    path = STATIC / name
    if not path.is_file():
        raise BuildError(f"the explorer's browser code is not built ({name} is missing): run `make lab` in the clone")
    return path
