"""A program of the corpus is a function with this decorator, which says how its arguments are made."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Program:
    """A function, and what makes its arguments for each run; floating-point tensors among them get gradients."""

    function: Callable[..., Any]
    inputs: Callable[[], Sequence[Any]]
    grad: bool


PROGRAMS: dict[str, Program] = {}
"""By field and name, such as ``attention.rotary``."""


def program(inputs: Callable[[], Sequence[Any]], grad: bool = True) -> Callable[[Function], Function]:
    """Adds a function to the corpus: ``@program(lambda: (torch.randn(2, 3), Block(3)))``."""

    def add(function: Function) -> Function:
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        assert name not in PROGRAMS, f"two programs have the name {name}"
        PROGRAMS[name] = Program(function, inputs, grad)
        return function

    return add


def all_programs() -> dict[str, Program]:
    """Imports the files of all fields, and returns their programs."""
    for path in sorted(Path(__file__).parent.glob("*.py")):
        importlib.import_module(f"{__package__}.{path.stem}")
    return PROGRAMS
