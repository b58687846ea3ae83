"""A program of the corpus is a function with this decorator, which says how its arguments are made."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
Inputs = Callable[[], Sequence[Any]]


@dataclass(frozen=True)
class Program:
    """A function, and what makes its arguments for each run; floating-point tensors among them get gradients."""

    function: Callable[..., Any]
    inputs: Inputs
    grad: bool
    later: Sequence[Inputs] = ()
    """What makes the arguments of further calls, with other sizes or other plain arguments."""


PROGRAMS: dict[str, Program] = {}
"""By field and name, such as ``attention.rotary``."""


def program(inputs: Inputs, *later: Inputs, grad: bool = True) -> Callable[[Function], Function]:
    """Adds a function to the corpus: ``@program(lambda: (torch.randn(2, 3), Block(3)))``."""

    def add(function: Function) -> Function:
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        assert name not in PROGRAMS, f"two programs have the name {name}"
        PROGRAMS[name] = Program(function, inputs, grad, later)
        return function

    return add


def each(make: Callable[[Any], Sequence[Any]], values: Sequence[Any]) -> list[Inputs]:
    """Returns what makes the arguments of several calls: ``make(value)`` for each value."""
    return [functools.partial(make, value) for value in values]


def sizes(make: Callable[[int], Sequence[Any]], *values: int) -> list[Inputs]:
    """Returns what makes the arguments of calls with five sizes: `values`, or 3 to 7."""
    return each(make, values or range(3, 8))


def all_programs() -> dict[str, Program]:
    """Imports the files of all fields, and returns their programs."""
    for path in sorted(Path(__file__).parent.glob("*.py")):
        importlib.import_module(f"{__package__}.{path.stem}")
    return PROGRAMS
