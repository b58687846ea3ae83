"""The layout of the packages: no circular imports between them, and a way to each module by its docstrings."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

from tests.docs.imports import FILES, ROOT, below

CORE = ROOT / "compiler_core"
START = [CORE / "pipeline" / name for name in ("__init__.py", "frame.py", "graph.py")]
ASIDE = ("api", "tools", "records")
"""Folders of `compiler_core` that are not stages of a compile."""

MODULES = {str(file): file for file in FILES.values()}

MOST_ENTRIES = 20

FOLDERS = sorted({file.parent for file in FILES.values()})


def test_the_compiler_is_found_at_a_glance() -> None:
    entries = [entry for entry in CORE.iterdir() if entry.is_file() or (entry / "__init__.py").exists()]
    assert len(entries) <= MOST_ENTRIES


@pytest.mark.parametrize("package", [folder.relative_to(ROOT).as_posix().replace("/", ".") for folder in FOLDERS])
def test_no_circular_packages(package: str) -> None:
    folders = {name for name, file in FILES.items() if file.name == "__init__.py"}
    circles = [circle for circle in nx.strongly_connected_components(below(package)) if len(circle) > 1]
    assert not [sorted(circle) for circle in circles if circle & folders]


@cache
def named_in(file: Path) -> frozenset[Path]:
    """Returns the modules and packages that a module's docstring names, by their path or the end of it."""
    text = ast.get_docstring(ast.parse(file.read_text())) or ""
    words = {word.removesuffix(".py").strip("./") for word in re.findall(r"[\w./]+", text)}
    names = words | {word.partition(".")[0] for word in words}  # ``printer.generate`` names `printer`
    paths = {f"{base}/{name}" for base in (CORE, file.parent) for name in names if name}
    return frozenset(MODULES[p] for path in paths for p in (f"{path}.py", f"{path}/__init__.py") if p in MODULES)


def test_packages_name_their_modules() -> None:
    packages = [file for file in FILES.values() if file.name == "__init__.py" and file.parent.parent != ROOT]
    inside = [
        (file, each)
        for file in packages
        for each in [*file.parent.glob("[!_]*.py"), *file.parent.glob("*/__init__.py")]
    ]
    assert [str(each.relative_to(ROOT)) for file, each in inside if each not in named_in(file)] == []


def test_each_stage_is_two_clicks_from_the_pipeline() -> None:
    first = {each for file in START for each in named_in(file)}
    second = {each for file in first for each in named_in(file)}
    stages = {file for file in FILES.values() if CORE in file.parents and file.parent != CORE}
    far = {file for file in stages if file.relative_to(CORE).parts[0] not in ASIDE} - {*START, *first, *second}
    assert not sorted(file.relative_to(CORE).as_posix() for file in far)
