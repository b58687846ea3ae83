"""Which of our modules import which: for the tests of the layout, docs/architecture.md, and the tests of a module."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("compiler_core", "kernel_magics")


def files(*folders: str) -> dict[str, Path]:
    """The files of these folders, by module name."""
    found = {}
    for file in sorted(file for folder in folders for file in (ROOT / folder).rglob("*.py")):
        parts = file.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


FILES = files(*PACKAGES)
WITH_TESTS = FILES | files("tests")


def imported(file: Path) -> tuple[str, ...]:
    """The modules of ours that a file imports, anywhere in it: in functions and for types, too."""
    return _named(file)[0]


@functools.cache
def reached(file: Path) -> frozenset[str]:
    """The modules of ours that a file imports or runs by name (``-m``), and those that these import, and so on."""
    found: set[str] = set()
    todo = [*imported(file), *_named(file)[1]]
    while todo:
        name = todo.pop()
        if name in WITH_TESTS and name not in found:
            found.add(name)
            todo += [name.rpartition(".")[0], *imported(WITH_TESTS[name]), *_named(WITH_TESTS[name])[1]]
    return frozenset(found)


@functools.cache
def _named(file: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The modules that a file imports, and those that it names in texts, with what runs where that is a package."""
    importing: list[str] = []
    texts: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            importing += [alias.name for alias in node.names if alias.name in WITH_TESTS]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [(f"{node.module}.{alias.name}", node.module) for alias in node.names]
            importing += [name if name in WITH_TESTS else module for name, module in names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts |= {node.value, f"{node.value}.__main__"} & FILES.keys()
    return tuple(importing), tuple(texts)


def below(package: str) -> nx.DiGraph:
    """Which members of a package import which others of its members, folders taken as a whole."""
    graph, depth = nx.DiGraph(), package.count(".") + 2
    for name, file in FILES.items():
        for other in imported(file):
            if name.startswith(f"{package}.") and other.startswith(f"{package}."):
                pair = [".".join(each.split(".")[:depth]) for each in (name, other)]
                if pair[0] != pair[1]:
                    graph.add_edge(*pair)
    return graph
