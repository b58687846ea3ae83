"""The layout of the packages: small folders, and no circular imports between them."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import pytest

from tests.docs.imports import FILES, ROOT, below

MOST_MODULES = 15
MOST_ENTRIES = 18

FOLDERS = sorted({file.parent for file in FILES.values()})


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_folders_are_small(folder: Path) -> None:
    modules = [file.name for file in folder.glob("*.py") if file.name != "__init__.py"]
    assert len(modules) <= MOST_MODULES, f"split {folder.relative_to(ROOT)}"


def test_the_compiler_is_found_at_a_glance() -> None:
    assert len([entry for entry in (ROOT / "compiler_core").iterdir() if entry.name != "__pycache__"]) <= MOST_ENTRIES


@pytest.mark.parametrize("package", [folder.relative_to(ROOT).as_posix().replace("/", ".") for folder in FOLDERS])
def test_no_circular_packages(package: str) -> None:
    folders = {name for name, file in FILES.items() if file.name == "__init__.py"}
    circles = [circle for circle in nx.strongly_connected_components(below(package)) if len(circle) > 1]
    assert not [sorted(circle) for circle in circles if circle & folders]
