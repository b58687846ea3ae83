"""The built browser half, as files."""

from __future__ import annotations

from pathlib import Path

from compiler_core.errors import BuildError

STATIC = Path(__file__).parents[1] / "static"


def asset(name: str) -> Path:
    """A file that the browser half's build makes; BuildError, with the remedy, where it did not run."""
    path = STATIC / name
    if not path.is_file():
        raise BuildError(f"the explorer is not built ({name} is missing): run `npm ci && npm run build` in extension/")
    return path
