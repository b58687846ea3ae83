"""Docstrings of public functions name all arguments, and pages name functions and fields that exist.

Ruff refuses public functions and classes without a docstring.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import compiler_core
import kernel_magics
from compiler_core import records

ROOT = Path(__file__).parents[2]
CLASSES = {name: found for of in (records, compiler_core) for name, found in vars(of).items() if inspect.isclass(found)}


def functions(name: str, public: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yields a function, or the public methods of a class."""
    if not inspect.isclass(public):
        yield name, public
        return
    for method, function in vars(public).items():
        if inspect.isfunction(function) and not method.startswith("_"):
            yield f"{name}.{method}", function


def missing(function: Callable[..., Any]) -> list[str]:
    """Returns the arguments that a docstring does not name."""
    text = inspect.getdoc(function) or ""
    arguments = [name for name in inspect.signature(function).parameters if name != "self"]
    return [name for name in arguments if not re.search(rf"\b{name}\b", text)]


@pytest.mark.parametrize("package", [compiler_core, kernel_magics])
def test_public_functions_explain_their_arguments(package: Any) -> None:
    public = [pair for name in package.__all__ for pair in functions(name, getattr(package, name))]
    assert all(inspect.getdoc(function) for _, function in public)
    assert not {name: found for name, function in public if (found := missing(function))}


def test_a_missing_argument_is_found() -> None:
    def average(values: list[float], weights: list[float]) -> None:
        """Returns the average of `values`."""

    assert missing(average) == ["weights"]


def unknown(text: str) -> list[str]:
    """Returns what a page names of `compiler_core` and does not exist: functions, and fields of its classes."""
    code = " ".join(re.findall(r"`[^`\n]+`", text))
    functions = {name for name in re.findall(r"\bcompiler_core\.(\w+)\(", code) if not hasattr(compiler_core, name)}
    fields = {
        f"{name}.{field}"
        for name, field in re.findall(r"\b([A-Z]\w+)\.([a-z]\w*)", code)
        if name in CLASSES and not hasattr(CLASSES[name], field) and field not in inspect.get_annotations(CLASSES[name])
    }
    return sorted(functions | fields)


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")], ids=lambda page: page.name)
def test_pages_name_what_exists(page: Path) -> None:
    assert unknown(page.read_text(encoding="utf-8")) == []


def test_what_does_not_exist_is_found() -> None:
    assert unknown("Call `compiler_core.recrod()`, then `Record.measure` and `Record.compiles`.") == [
        "Record.measure",
        "recrod",
    ]
