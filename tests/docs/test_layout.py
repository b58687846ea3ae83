"""The layout of the packages: small folders, and no circular imports between them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("compiler_core", "kernel_magics")
MOST_MODULES = 15
MOST_ENTRIES = 18
CIRCULAR = {"compiler_core.capture", "compiler_core.capture.values"}
"""Packages whose folders may import one another: values of Python's types make values of one another."""


def _files() -> dict[str, Path]:
    """The files of both packages, by module name."""
    found = {}
    for file in sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py")):
        parts = file.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


FILES = _files()
FOLDERS = sorted({file.parent for file in FILES.values()})


def _imported(file: Path) -> Iterator[str]:
    """The modules of ours that a file imports, anywhere in it: in functions and for types, too."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in FILES)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in FILES else node.module


def _below(package: str) -> nx.DiGraph:
    """Which members of a package import which others of its members, folders taken as a whole."""
    graph, depth = nx.DiGraph(), package.count(".") + 2
    for name, file in FILES.items():
        for other in _imported(file):
            if name.startswith(f"{package}.") and other.startswith(f"{package}."):
                pair = [".".join(each.split(".")[:depth]) for each in (name, other)]
                if pair[0] != pair[1]:
                    graph.add_edge(*pair)
    return graph


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_folders_are_small(folder: Path) -> None:
    modules = [file.name for file in folder.glob("*.py") if file.name != "__init__.py"]
    assert len(modules) <= MOST_MODULES, f"split {folder.relative_to(ROOT)}"


def test_the_compiler_is_found_at_a_glance() -> None:
    assert len([entry for entry in (ROOT / "compiler_core").iterdir() if entry.name != "__pycache__"]) <= MOST_ENTRIES


@pytest.mark.parametrize("package", [folder.relative_to(ROOT).as_posix().replace("/", ".") for folder in FOLDERS])
def test_no_circular_packages(package: str) -> None:
    folders = {name for name, file in FILES.items() if file.name == "__init__.py"}
    circles = [circle for circle in nx.strongly_connected_components(_below(package)) if len(circle) > 1]
    circular = [sorted(circle) for circle in circles if circle & folders]
    if package in CIRCULAR:
        assert circular, f"{package} is not circular any more: take it off the list"
    else:
        assert not circular
