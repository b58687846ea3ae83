"""Docstrings of what people call: each names all arguments.  Ruff refuses public functions and classes without any."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import compiler_core
import kernel_magics


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
