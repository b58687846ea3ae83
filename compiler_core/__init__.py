"""Cutaway's compiler: PyTorch programs to kernels, with everything it did written in one record.

    compile      a function or module, as a decorator or a call; the contract is torch.compile's
    record       a context manager: what the compiler does inside is written to its Record
    explain      the short answer for one call (an Explanation): graphs, breaks with reasons, guards
    export       one graph for the whole function, or an error that says why not
    disable      a function that is never captured
    graph_break  break the graph here
    mark_dynamic a dimension of a tensor that is symbolic from the first compile on
    mark_static  one that never is
    pin          one compile as a function that checks no guards
    reset        forget everything compiled
    CompileWarning    says that something failed and runs uncompiled; its kinds: RefusalWarning, ToolWarning
    already_compiled  what is left of what stock torch.compile compiled before anyone looked
    read_logs    records of what PyTorch logged elsewhere under TORCH_TRACE

`compiler_core.record` is a package, too, which needs only the standard library; PyTorch is loaded
when one of the functions above is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compiler_core.api import compile, disable, graph_break, mark_dynamic, mark_static, pin, record, reset
    from compiler_core.errors import CompileWarning, RefusalWarning, ToolWarning
    from compiler_core.one_call import Explanation, explain, export
    from compiler_core.stock.already import already_compiled
    from compiler_core.stock.logs import read_logs

_FROM = {
    "api": ("compile", "disable", "graph_break", "mark_dynamic", "mark_static", "pin", "reset"),
    "one_call": ("Explanation", "explain", "export"),
    "errors": ("CompileWarning", "RefusalWarning", "ToolWarning"),
    "stock.already": ("already_compiled",),
    "stock.logs": ("read_logs",),
}


def __getattr__(name: str) -> Any:
    if name == "record":
        return importlib.import_module("compiler_core.record")
    for module, names in _FROM.items():
        if name in names:
            return getattr(importlib.import_module(f"compiler_core.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "CompileWarning", "Explanation", "RefusalWarning", "ToolWarning", "already_compiled", "compile", "disable",
    "explain", "export", "graph_break", "mark_dynamic", "mark_static", "pin", "read_logs", "record", "reset",
]  # fmt: skip
