"""The layout of the explorer's sources: small folders, short files, and imports in one direction."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "extension/src"
LAYERS = [".", "view/app", "view/panes", "view/graph", "view/model", "view/dom"]
"""Folders import only from themselves and from folders to the right."""

GENERATED = "view/model/record/record.ts"
MAX_MODULES = 15
MAX_LINES = 400

FILES = sorted(file for suffix in ("ts", "css") for file in SOURCES.rglob(f"*.{suffix}"))
FOLDERS = sorted({file.parent for file in FILES})


def layer(file: Path) -> int:
    """Returns the index in `LAYERS` of the folder that contains a file."""
    path = file.relative_to(SOURCES).as_posix()
    return max(i for i, folder in enumerate(LAYERS) if folder == "." or path.startswith(f"{folder}/"))


def imports(file: Path) -> list[Path]:
    """Returns the source files that a TypeScript file imports."""
    specifiers = re.findall(r'from "(\.[^"]*)"', file.read_text())
    return [(file.parent / specifier).resolve().with_suffix(".ts") for specifier in specifiers]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(SOURCES)))
def test_folders_are_small(folder: Path) -> None:
    modules = [file for file in folder.glob("*.ts") if not file.name.endswith(".test.ts")]
    assert len(modules) <= MAX_MODULES


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(SOURCES).as_posix())
def test_files_are_short(file: Path) -> None:
    if file.relative_to(SOURCES).as_posix() != GENERATED:
        assert len(file.read_text().splitlines()) <= MAX_LINES


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
