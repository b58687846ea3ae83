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
    measure      time the kernels of a record here; roofline is the least time that each can take
    check_accuracy    compare what they compute with eager PyTorch in float64
    compare      two records or two compiles, line by line
    why_kept, why_static, added_by_autograd    questions that a record answers

PyTorch is loaded when one of these is first used.  `CONTRIBUTING.md` says what each folder does; start at
`pipeline/frame.py`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compiler_core.api.accuracy import check_accuracy
    from compiler_core.api.compile import compile, disable, graph_break, mark_dynamic, mark_static, pin, record, reset
    from compiler_core.api.explain import Explanation, explain, export
    from compiler_core.api.measure import measure
    from compiler_core.api.roofline import roofline
    from compiler_core.errors import CompileWarning, RefusalWarning, ToolWarning
    from compiler_core.records.compare import compare
    from compiler_core.records.queries import added_by_autograd, why_kept, why_static
    from compiler_core.stock.cached_compiles import already_compiled
    from compiler_core.stock.trace_logs import read_logs

_FROM = {
    "api.compile": ("compile", "disable", "graph_break", "mark_dynamic", "mark_static", "pin", "record", "reset"),
    "api.explain": ("Explanation", "explain", "export"),
    "errors": ("CompileWarning", "RefusalWarning", "ToolWarning"),
    "stock.cached_compiles": ("already_compiled",),
    "stock.trace_logs": ("read_logs",),
    "api.accuracy": ("check_accuracy",),
    "api.measure": ("measure",),
    "api.roofline": ("roofline",),
    "records.compare": ("compare",),
    "records.queries": ("added_by_autograd", "why_kept", "why_static"),
}


def __getattr__(name: str) -> Any:
    for module, names in _FROM.items():
        if name in names:
            return getattr(importlib.import_module(f"compiler_core.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "CompileWarning", "Explanation", "RefusalWarning", "ToolWarning", "added_by_autograd", "already_compiled",
    "check_accuracy", "compare", "compile", "disable", "explain", "export", "graph_break", "mark_dynamic",
    "mark_static", "measure", "pin", "read_logs", "record", "reset", "roofline", "why_kept", "why_static",
]  # fmt: skip
