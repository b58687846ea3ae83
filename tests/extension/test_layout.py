"""The layout of the explorer's sources: imports go in one direction."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "extension/src"
LAYERS = [".", "view/app", "view/panes", "view/graph", "view/model", "view/dom"]
"""Folders import only from themselves and from folders to the right."""

FILES = sorted(file for suffix in ("ts", "css") for file in SOURCES.rglob(f"*.{suffix}"))


def layer(file: Path) -> int:
    """Returns the index in `LAYERS` of the folder that contains a file."""
    path = file.relative_to(SOURCES).as_posix()
    return max(i for i, folder in enumerate(LAYERS) if folder == "." or path.startswith(f"{folder}/"))


def imports(file: Path) -> list[Path]:
    """Returns the source files that a TypeScript file imports."""
    specifiers = re.findall(r'from "(\.[^"]*)"', file.read_text())
    return [(file.parent / specifier).resolve().with_suffix(".ts") for specifier in specifiers]


@pytest.mark.parametrize("folder", LAYERS)
def test_imports_go_in_one_direction(folder: str) -> None:
    wrong = [
        f"{file.relative_to(SOURCES)} imports {imported.relative_to(SOURCES)}"
        for file in FILES
        if file.suffix == ".ts" and LAYERS[layer(file)] == folder
        for imported in imports(file)
        if layer(imported) < layer(file)
    ]
    assert wrong == []
