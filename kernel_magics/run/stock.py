"""Compiles a cell's units by stock `torch.compile`, with the user's options."""

from __future__ import annotations

import dis
import types
from collections.abc import Callable, Sequence
from typing import Any

from compiler_core.config import CodeEdit, GraphPass
from kernel_magics.cell.parse import Unit

_UNBOUND = object()


def unit_compiler(
    passes: Sequence[GraphPass] = (), edits: Sequence[CodeEdit] = (), **options: Any
) -> Callable[[types.FunctionType], Unit]:
    """Returns a function that compiles a unit by stock `torch.compile` with the user's graph passes and edits; options
    that are None are not passed on."""
    import torch

    from compiler_core.tools.editing.stock_edits import with_output_code
    from compiler_core.tools.stock.inductor_passes import stock_passes

    given = {name: value for name, value in options.items() if value is not None}

    def compile_unit(unit: types.FunctionType) -> Unit:
        run = _with_globals_bound(torch.compile(unit, **given), unit)

        def run_with_passes() -> object:
            with stock_passes(passes), with_output_code(edits):
                return run()

        return run_with_passes if passes or edits else run

    return compile_unit


def _with_globals_bound(compiled: Callable[[], object], unit: types.FunctionType) -> Callable[[], object]:
    """Binds the globals that the unit stores to a placeholder while it runs.

    Dynamo cannot read a global that did not exist when the frame started, and a cell's variables are such globals.
    Names that still have the placeholder afterwards are deleted.
    """
    from compiler_core.tools.stock.hooks.torch_internals import expect_emptied_namespace

    new = {i.argval for i in dis.get_instructions(unit.__code__) if i.opname == "STORE_GLOBAL"}
    namespace = unit.__globals__

    def run() -> object:
        for name in new:
            namespace.setdefault(name, _UNBOUND)
        try:
            return compiled()
        finally:
            for name in new:
                if namespace.get(name) is _UNBOUND:
                    del namespace[name]
            expect_emptied_namespace(namespace)

    return run
