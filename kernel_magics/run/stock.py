"""A cell's units through stock `torch.compile`, with the user's own options."""

from __future__ import annotations

import dis
import types
from collections.abc import Callable
from typing import Any

_NOT_YET = object()


def compiler(**options: Any) -> Callable[[types.FunctionType], Callable[[], object]]:
    """What makes a unit run compiled by stock `torch.compile`; options that are None are not given."""
    import torch

    given = {name: value for name, value in options.items() if value is not None}

    def compile_unit(unit: types.FunctionType) -> Callable[[], object]:
        return _with_names(torch.compile(unit, **given), unit)

    return compile_unit


def _with_names(compiled: Callable[[], object], unit: types.FunctionType) -> Callable[[], object]:
    """Dynamo cannot read a global that did not exist when the frame began, which is what a cell's variables are:
    while the unit runs, those that it will bind exist."""
    new = {i.argval for i in dis.get_instructions(unit.__code__) if i.opname == "STORE_GLOBAL"}
    namespace = unit.__globals__

    def run() -> object:
        for name in new:
            namespace.setdefault(name, _NOT_YET)
        try:
            return compiled()
        finally:
            for name in new:
                if namespace.get(name) is _NOT_YET:
                    del namespace[name]

    return run
