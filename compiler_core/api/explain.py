"""One call of a function, compiled: what became of it, its graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from compiler_core.api.compile import compile, record
from compiler_core.errors import UsageError
from compiler_core.hook.failures import one_line
from compiler_core.records import Compile, Record


@dataclass(frozen=True)
class Explanation:
    """What compiling one call did."""

    record: Record

    @property
    def compiles(self) -> list[Compile]:
        return self.record.compiles

    @property
    def graph_count(self) -> int:
        return sum(a.pane == "captured" for c in self.compiles for a in c.artifacts)

    @property
    def graph_break_count(self) -> int:
        return len(self.break_reasons)

    @property
    def break_reasons(self) -> list[str]:
        return [f"{b.kind}: {b.explanation}" for c in self.compiles for b in c.breaks]

    @property
    def op_count(self) -> int:
        graphs = [a.graph for c in self.compiles for a in c.artifacts if a.pane == "captured" and a.graph]
        return sum(n.op.startswith("call_") for g in graphs for n in g.nodes)

    @property
    def guard_count(self) -> int:
        return sum(len(c.guards) for c in self.compiles)

    def __str__(self) -> str:
        lines = [
            f"graphs: {self.graph_count}, graph breaks: {self.graph_break_count}, "
            f"operations: {self.op_count}, guards: {self.guard_count}"
        ]
        for failure in (f for c in self.compiles for f in c.failures):
            lines.append(
                f"failure at {failure.filename}:{failure.lineno}, {failure.stage}: {one_line(failure.message)}"
            )
        for compile_ in self.compiles:
            if compile_.guards_ns is not None:
                lines.append(
                    f"guards of {compile_.id}: {len(compile_.guards)}, {compile_.guards_ns / 1000:.2f} us a call"
                )
            for broke in compile_.breaks:
                at = broke.stack[-1]
                lines.append(f"break in {compile_.id} at {at.filename}:{at.lineno}  {at.text}")
                lines += [f"    {broke.kind}: {broke.explanation}", f"    hint: {broke.hint}"]
        return "\n".join(lines)


def explain(fn: Any, *args: Any, **kwargs: Any) -> Explanation:
    """Compile `fn` for one call, run it, and tell what happened."""
    with record(title=f"explain {getattr(fn, '__name__', type(fn).__name__)}") as made:
        compile(fn, backend="eager")(*args, **kwargs)
    return Explanation(made)


def export(fn: Any, *args: Any, **kwargs: Any) -> torch.fx.GraphModule:
    """The one graph of `fn` for these arguments; FullGraphError where it would break.

    The graph takes the tensors that `fn` reads, in the order of ``graph.placeholders``.
    """
    found: list[torch.fx.GraphModule] = []

    def keep(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        found.append(gm)
        return gm.forward

    with record(title="export"):
        compile(fn, backend=keep, fullgraph=True, strict=True)(*args, **kwargs)
    if not found:
        raise UsageError("nothing to export: the call has no tensor operations")
    return found[0]
