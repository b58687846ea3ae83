"""Cutaway's compiler: compiles PyTorch programs to kernels, and writes everything it did to a record.

    compile       compiles a function or module; a decorator or a call, as torch.compile
    record        context manager that records everything compiled inside it
    explain       compiles one call and returns a summary (an Explanation): graphs, breaks with reasons, guards
    frames        returns every Python frame that ran in a compiled call: compiled, inlined, skipped, and why
    assert_compiles   asserts how many graphs and recompiles a call takes; also a fixture of pytest
    export        returns the one graph of a call as a module with its signature, or raises if it has a graph break
    GraphPass     a function that changes a graph while it is compiled, for the argument `passes` of compile
    disable       makes a function run as plain Python
    graph_break   breaks the graph
    mark_dynamic  makes a dimension of a tensor symbolic from the first compile on
    mark_static   makes a dimension never symbolic
    edit          swaps a text that you edited (a kernel, loops, a wrapper, a graph) into a compiled function;
                  try_edit only tries it, editable_text returns the text, revert takes it out
    stock_edited  a context manager in which stock torch.compile gets edits that were tried
    pin           returns a function that runs one compile without checking guards
    Dispatcher    runs one of a function's compiles, which you choose; says whether its guards hold
    reset         frees everything that was compiled
    CompileWarning    warns of a failure, after which code runs uncompiled; its subclasses: GraphPassWarning,
                      RefusalWarning, ToolWarning
    already_compiled  returns a record of a function's compiles that are in use, ours or stock's, observed or not
    first_difference  returns the first operation of a call that a compiler computes otherwise than plain PyTorch
    reproducer    returns a stand-alone file with the smallest graph and inputs that show a fault of a compiler
    what_if       compiles a call again with something changed, and compares both compiles
    decompiled    makes a function from the decompiled code of a compile; its text is in __source__
    guards_text   returns the guards of a compile as a Python function, with costs and lines as comments
    read_logs     reads the logs that PyTorch writes under TORCH_TRACE into records
    time          times a call as plain PyTorch, compiled, and compiled by stock torch.compile, side by side
    save_trace    writes the time of compiling in Chrome's trace format
    capture_methods   captures a function by each of PyTorch's methods, and says which results are right
    sweep         compiles many models, each in its own process, and returns a row of results for each
    measure       times the kernels of a record; roofline returns lower bounds of their times
    check_accuracy    compares the values of kernels with eager PyTorch in float64
    record_ranks  records what this rank of a job compiles, in a file that survives its process
    compare_ranks     compares all ranks of a job: groups equal ones, and finds the first difference of the others
    compare       compares two records or two compiles, line by line
    why_kept, why_static, added_by_autograd, first_inaccurate    queries on a record
    partition_plans   returns the ways to divide a joint graph: what each saves, with a drawing for Graphviz

PyTorch is imported when one of these is first used.  `CONTRIBUTING.md` describes the folders; start at
`pipeline/frame.py`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from compiler_core import tools  # noqa: F401 - they add to what is recorded
from compiler_core.support import fork_locks  # noqa: F401 - before the first thread that compiles

if TYPE_CHECKING:
    from compiler_core.api.compile import compile, disable, graph_break, mark_dynamic, mark_static, reset
    from compiler_core.api.export import export
    from compiler_core.config import GraphPass
    from compiler_core.errors import CompileWarning, GraphPassWarning, RefusalWarning, ToolWarning
    from compiler_core.tools.accuracy import check_accuracy
    from compiler_core.tools.assertions.compiles import assert_compiles
    from compiler_core.tools.capture_methods import capture_methods
    from compiler_core.tools.editing.edits import edit, editable_text, revert, stock_edited, try_edit
    from compiler_core.tools.explain import Explanation, explain, frames
    from compiler_core.tools.inspection.compiled_before import already_compiled, decompiled, guards_text
    from compiler_core.tools.inspection.partition_plans import partition_plans
    from compiler_core.tools.inspection.what_if import what_if
    from compiler_core.tools.measure import measure
    from compiler_core.tools.pin import Dispatcher, pin
    from compiler_core.tools.questions.compare import compare
    from compiler_core.tools.questions.queries import added_by_autograd, first_inaccurate, why_kept, why_static
    from compiler_core.tools.ranks.reading import compare_ranks
    from compiler_core.tools.recording import record, record_ranks
    from compiler_core.tools.reproduce.first_difference import first_difference
    from compiler_core.tools.reproduce.reproducer import reproducer
    from compiler_core.tools.roofline import roofline
    from compiler_core.tools.stock.trace_logs import read_logs
    from compiler_core.tools.sweep.sweeping import sweep
    from compiler_core.tools.timing.call import time
    from compiler_core.tools.timing.chrome_trace import save_trace

_EXPORTS = {
    "api.compile": ("compile", "disable", "graph_break", "mark_dynamic", "mark_static", "reset"),
    "tools.explain": ("Explanation", "explain", "frames"),
    "api.export": ("export",),
    "config": ("GraphPass",),
    "errors": ("CompileWarning", "GraphPassWarning", "RefusalWarning", "ToolWarning"),
    "tools.inspection.compiled_before": ("already_compiled", "decompiled", "guards_text"),
    "tools.stock.trace_logs": ("read_logs",),
    "tools.accuracy": ("check_accuracy",),
    "tools.assertions.compiles": ("assert_compiles",),
    "tools.capture_methods": ("capture_methods",),
    "tools.measure": ("measure",),
    "tools.pin": ("Dispatcher", "pin"),
    "tools.ranks.reading": ("compare_ranks",),
    "tools.recording": ("record", "record_ranks"),
    "tools.roofline": ("roofline",),
    "tools.inspection.partition_plans": ("partition_plans",),
    "tools.reproduce.first_difference": ("first_difference",),
    "tools.reproduce.reproducer": ("reproducer",),
    "tools.inspection.what_if": ("what_if",),
    "tools.editing.edits": ("edit", "editable_text", "revert", "stock_edited", "try_edit"),
    "tools.sweep.sweeping": ("sweep",),
    "tools.timing.call": ("time",),
    "tools.timing.chrome_trace": ("save_trace",),
    "tools.questions.compare": ("compare",),
    "tools.questions.queries": ("added_by_autograd", "first_inaccurate", "why_kept", "why_static"),
}


def __getattr__(name: str) -> Any:
    for module, names in _EXPORTS.items():
        if name in names:
            private = importlib.import_module("compiler_core.torch_private")
            return getattr(private.import_module(f"compiler_core.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "CompileWarning", "Dispatcher", "Explanation", "GraphPass", "GraphPassWarning", "RefusalWarning", "ToolWarning",
    "added_by_autograd", "already_compiled", "assert_compiles", "capture_methods", "check_accuracy", "compare",
    "compare_ranks", "compile", "decompiled", "disable", "edit", "editable_text", "explain", "export",
    "first_difference", "first_inaccurate", "frames", "graph_break", "guards_text", "mark_dynamic", "mark_static",
    "measure",
    "partition_plans", "pin", "read_logs", "record", "record_ranks", "reproducer", "reset", "revert", "roofline",
    "save_trace", "stock_edited", "sweep", "time", "try_edit", "what_if", "why_kept", "why_static",
]  # fmt: skip
