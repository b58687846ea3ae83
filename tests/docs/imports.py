"""Which of our modules import which, for the tests of the layout and the picture in docs/architecture.md."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("compiler_core", "kernel_magics")


def files() -> dict[str, Path]:
    """The files of both packages, by module name."""
    found = {}
    for file in sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py")):
        parts = file.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


FILES = files()


@functools.cache
def _imported(file: Path) -> tuple[str, ...]:
    """The modules of ours that a file imports, anywhere in it: in functions and for types, too."""
    return tuple(_imports_in(file))


def _imports_in(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in FILES)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in FILES else node.module


def below(package: str) -> nx.DiGraph:
    """Which members of a package import which others of its members, folders taken as a whole."""
    graph, depth = nx.DiGraph(), package.count(".") + 2
    for name, file in FILES.items():
        for other in _imported(file):
            if name.startswith(f"{package}.") and other.startswith(f"{package}."):
                pair = [".".join(each.split(".")[:depth]) for each in (name, other)]
                if pair[0] != pair[1]:
                    graph.add_edge(*pair)
    return graph
