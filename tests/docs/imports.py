"""Which of our modules import which: for the tests of the layout, docs/architecture.md, and the tests of a module."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
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
    tree = ast.parse(file.read_text())
    named = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    texts = named.union(f"{each}.__main__" for each in named) & FILES.keys()
    return tuple(_importing(tree)), tuple(texts)


def _importing(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in WITH_TESTS)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [(f"{node.module}.{alias.name}", node.module) for alias in node.names]
            yield from (name if name in WITH_TESTS else module for name, module in names)


@functools.cache
def _without_types(file: Path) -> set[str]:
    """The modules of ours that a file imports, but for those that it imports for types only, which may be any."""
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    return set(_importing(tree))


def below(package: str) -> nx.DiGraph:
    """Which members of a package import which others of its members, folders taken as a whole, to run."""
    graph, depth = nx.DiGraph(), package.count(".") + 2
    for name, file in FILES.items():
        for other in _without_types(file):
            if name.startswith(f"{package}.") and other.startswith(f"{package}."):
                pair = [".".join(each.split(".")[:depth]) for each in (name, other)]
                if pair[0] != pair[1]:
                    graph.add_edge(*pair)
    return graph
