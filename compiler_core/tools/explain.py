"""Explains one call of a function: its graphs, graph breaks and guards, or the Python frames that ran."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from compiler_core.api.compile import compile
from compiler_core.hook.failures import first_line
from compiler_core.records import Compile, Graph, Problem, Record, costly_and_expected, problem_count
from compiler_core.tools.frames.report import FrameReport
from compiler_core.tools.recording import record
from compiler_core.tools.stock.uncached import uncached, without_recompile_limit


@dataclass(frozen=True)
class Explanation:
    """A summary of the record of one call; `str` prints it."""

    record: Record

    @property
    def compiles(self) -> list[Compile]:
        """The compiles of the call."""
        return self.record.compiles

    @property
    def graph_count(self) -> int:
        """The number of captured graphs that compute something."""
        return sum(len(c.captured_graphs) for c in self.compiles)

    @property
    def graph_break_count(self) -> int:
        """The number of graph breaks, also of those that need no change: one for each line and kind, however many
        compiles have it."""
        return problem_count(self.record.problems, "graph break")

    @property
    def break_reasons(self) -> list[str]:
        """The kind and explanation of each graph break."""
        return [f"{p.title.partition(': ')[2]}: {p.cause}" for p in self._breaks]

    @property
    def _breaks(self) -> list[Problem]:
        return [p for p in self.record.problems if p.kind == "graph break"]

    @property
    def op_count(self) -> int:
        """The number of operations in all captured graphs."""
        return sum(_count_operations(a.graph) for c in self.compiles for a in c.artifacts if a.pane == "captured")

    @property
    def guard_count(self) -> int:
        """The number of guards of all compiles."""
        return sum(len(c.guards) for c in self.compiles)

    def __str__(self) -> str:
        breaks, expected = costly_and_expected(self.record.problems, "graph break")
        lines = [
            f"graphs: {self.graph_count}, graph breaks: {breaks}{expected}, "
            f"operations: {self.op_count}, guards: {self.guard_count}"
        ]
        for failure in (f for c in self.compiles for f in c.failures):
            message = first_line(failure.message)
            lines.append(f"failure at {failure.filename}:{failure.lineno}, {failure.stage}: {message}")
        for compile_ in self.compiles:
            if compile_.guards_ns is not None:
                microseconds = compile_.guards_ns / 1000
                lines.append(f"guards of {compile_.id}: {len(compile_.guards)}, {microseconds:.2f} us a call")
        for break_, reason in zip(self._breaks, self.break_reasons, strict=True):
            text = self.record.line_text(break_.line)
            where = f"in {break_.compiles[0]} at " if break_.compiles else "at "
            lines.append(f"break {where}{break_.filename}:{break_.lineno}  {text}")
            lines += [f"    {reason}", f"    hint: {break_.advice}"]
            lines += [f"    {break_.checked}"] if break_.checked else []
        return "\n".join(lines)


def _count_operations(graph: Graph | None) -> int:
    return 0 if graph is None else sum(node.op.startswith("call_") for node in graph.nodes)


def explain(fn: Any, *args: Any, engine: Literal["core", "torch"] = "core", **kwargs: Any) -> Explanation:
    """Compiles `fn` with the backend ``eager``, calls it once with these arguments, and returns a summary.

    Args:
        fn: anything that `compile` accepts.
        args, kwargs: the arguments of the call, which is run, so that its side effects happen.
        engine: ``core``, or ``torch`` for stock `torch.compile`.

    Returns:
        Counts of graphs, graph breaks, operations and guards; `str` prints them with the reasons of the breaks.

    Raises:
        UsageError: `fn` cannot be compiled, or there is no such engine.  Exceptions of the call itself are raised as
            they are.

    Example::

        print(compiler_core.explain(f, torch.randn(8)))
    """
    with record(title=f"explain {getattr(fn, '__name__', type(fn).__name__)}", engine=engine) as opened:
        if engine == "core":
            compile(fn, backend="eager")(*args, **kwargs)
        else:
            _call_by_stock(fn, args, kwargs)
    return Explanation(opened)


def frames(fn: Any, *args: Any, engine: Literal["core", "torch"] = "core", **kwargs: Any) -> FrameReport:
    """Compiles `fn` with the backend ``eager``, calls it once, and returns every Python frame that ran inside the call.

    A frame was compiled, inlined into the compile of its caller, skipped by a rule of the frame hook, or ran as plain
    Python, each with the reason.  Calls are slow while they are watched, and at no other time.

    Not seen are frames of other threads (such as a backward on a GPU), functions of C, functions of PyTorch that became
    one operation of a graph, Cutaway's own frames, and what runs after the program calls `sys.setprofile`.
    Inlined calls run no frame, so they are counted at capture, times the runs of the compile.

    Args:
        fn: anything that `compile` accepts.  A compiled function is compiled again.
        args, kwargs: the arguments of the call, which is run, so that its side effects happen.
        engine: ``core``, or ``torch`` for stock `torch.compile`, whose own reasons are given.

    Returns:
        The frames; `str` prints a table and a tree by caller.

    Raises:
        UsageError: `fn` cannot be compiled, or there is no such engine.  Exceptions of the call itself are raised as
            they are.

    Example::

        print(compiler_core.frames(f, torch.randn(8)))
    """
    title = f"frames of {getattr(fn, '__name__', type(fn).__name__)}"
    with record(title, engine=engine, steps=True, frames=True) as opened:
        if engine == "core":
            compile(fn, backend="eager", steps=True)(*args, **kwargs)
        else:
            _call_by_stock(fn, args, kwargs)
    return FrameReport(opened.seen, opened.labels)


def _call_by_stock(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Compiles `fn` by stock again, with a backend that runs graphs as they are, and calls it."""
    with without_recompile_limit():
        _, backend = graph_collector()
        compiled: Any = torch.compile(uncached(fn), backend=backend)
        compiled(*args, **kwargs)


def graph_collector() -> tuple[list[torch.fx.GraphModule], Callable[..., Any]]:
    """Returns a new backend, which runs each graph as it is, and the list of the graphs that it was given.

    Stock has not compiled anything for it.
    """
    graphs: list[torch.fx.GraphModule] = []

    def collect(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    return graphs, collect
