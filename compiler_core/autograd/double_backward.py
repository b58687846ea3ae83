"""Gradients that are differentiated themselves: what a compiled backward does under ``create_graph=True``.

Autograd cannot look into a compiled backward.  So the captured graph runs once more there, eagerly and under
autograd, on the inputs of the forward; the gradients taken of that run can be differentiated as often as one likes.
Where a second run would not do what the first did, the gradients raise an error that says why when they are
differentiated: they depend, for autograd, on every input, so that nobody finds them unused and takes them for zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from compiler_core.autograd.joint import JointGraph
from compiler_core.records import Compile
from compiler_core.support import torch_state
from compiler_core.support.fx_graphs import draws, graph_module
from compiler_core.support.silenced_warnings import unheard

Gradients = tuple[torch.Tensor | None, ...]

graph_is_retained: Any = vars(torch._C._autograd)["_get_current_graph_task_keep_graph"]


def unchanged(ctx: Any) -> bool:
    """Whether the inputs of a run, which its node keeps until autograd frees what was saved, still are what the
    forward saw, and still there."""
    return ctx.primals is not None and _versions(ctx.primals) == ctx.versions


def _versions(primals: Sequence[Any]) -> tuple[int, ...]:
    try:
        return tuple(p._version for p in primals if isinstance(p, torch.Tensor))
    except RuntimeError:  # of inference tensors nobody knows
        return ()


@dataclass(frozen=True)
class Rules:
    """Whether the captured graph may run again, and what of it then counts."""

    refused: str
    """Why a second run could differ from the first; empty where it cannot."""
    written: list[int]
    """The inputs that the graph writes to."""
    makers: list[str]
    """The captured nodes whose values have a tangent."""

    @staticmethod
    def of(captured: fx.GraphModule, joint: JointGraph) -> Rules:
        makers = zip(joint.makers, joint.differentiable, strict=True)
        names = [m.name for m, differentiable in makers if differentiable]
        return Rules(_refusal(captured, joint), [m.primal for m in joint.mutations], names)


class Again:
    """Runs the captured graph of one compile again."""

    def __init__(self, captured: fx.GraphModule, rules: Rules, compile_: Compile) -> None:
        self._captured, self._rules, self._compile = captured, rules, compile_
        self._graph: fx.GraphModule | None = None
        self._defaults = [d for d in torch_state.default_devices() if d is not None], torch.get_default_dtype()
        """Those of the forward: a backward runs outside of its ``with torch.device(...)``."""

    def gradients(self, ctx: Any, tangents: Sequence[torch.Tensor | None]) -> Gradients:
        """One for each primal, which autograd can differentiate."""
        if self._graph is not None:
            return self._gradients(self._graph, ctx, tangents)
        with self._compile.step("run", "create_graph=True") as event:
            event.detail = "for gradients that are differentiated, or sparse, the captured graph runs again, eagerly"
            self._graph = self._outputs_graph()
            return self._gradients(self._graph, ctx, tangents)

    def of_sparse(self, ctx: Any, tangents: Sequence[torch.Tensor | None]) -> Gradients | None:
        """As eager PyTorch makes them of gradients that are sparse, which no kernel of ours takes.  None where the
        captured graph cannot run again.  The error that is being handled is raised where no gradient is sparse."""
        if all(t is None or t.layout is torch.strided for t in tangents):
            raise  # noqa: PLE0704
        if self._rules.refused or not unchanged(ctx):
            return None
        create_graph = torch.is_grad_enabled()
        made = self.gradients(ctx, tangents)
        if not graph_is_retained():
            ctx.maybe_clear_saved_tensors()
            if hasattr(ctx, "kept"):
                ctx.kept.passed([t is None for t in tangents])
        return made if create_graph else tuple(g if g is None else g.detach() for g in made)

    def checked(self, ctx: Any, tangents: Sequence[torch.Tensor | None]) -> Gradients:
        """One for each primal, while autograd detects anomalies: each operation's gradient is looked at."""
        if self._graph is None:
            self._graph = self._outputs_graph()
        found = self._gradients(self._graph, ctx, tangents)
        return tuple(g if g is None else g.detach() for g in found)

    def once(self, ctx: Any, gradients: Gradients) -> Gradients:
        """The gradients that the compiled backward made; differentiating them raises an error."""
        why = self._rules.refused or "an input was written to since, or is kept no longer"
        message = (
            f"a gradient that a compiled backward has made cannot be differentiated again: {why}; "
            "leave the function whose gradient it is uncompiled (compiler_core.disable)"
        )
        if ctx.primals is None or any(ctx.needs_input_grad[i] for i in self._rules.written):
            raise RuntimeError(message)  # an error that waits could not be reached from every input
        reachable = [p for p in ctx.primals if getattr(p, "requires_grad", False)]
        made = [g for g in gradients if g is not None]
        marked = [g.detach().requires_grad_() for g in made]
        raises: Any = torch._C._functions.DelayedError(message.encode(), len(marked) + len(reachable))
        raising = iter(raises(*marked, *reachable))
        return tuple(g if g is None else next(raising) for g in gradients)

    def _outputs_graph(self) -> fx.GraphModule:
        """The captured graph, returning what has a tangent."""
        graph, copied = fx.Graph(), dict[fx.Node, fx.Node]()
        graph.graph_copy(self._captured.graph, copied)
        made = {node.name: copy for node, copy in copied.items()}
        graph.output(tuple(made[name] for name in self._rules.makers))
        return graph_module(self._captured, graph)

    def _gradients(self, graph: fx.GraphModule, ctx: Any, tangents: Sequence[torch.Tensor | None]) -> Gradients:
        needed = ctx.needs_input_grad
        with torch.enable_grad():
            # each an alias, so that an input given twice has two gradients
            inputs = [p.view_as(p) if n else p for p, n in zip(ctx.primals, needed, strict=True)]
            outputs = self._run(graph, inputs)
            given = [(o, t) for o, t in zip(outputs, tangents, strict=True) if t is not None]
            wanted = [i for i, n in zip(inputs, needed, strict=True) if n]
            found = iter(
                torch.autograd.grad(
                    [o for o, _ in given], wanted, [t for _, t in given], create_graph=True, allow_unused=True
                )
            )
        if not graph_is_retained():
            ctx.primals = None
        return tuple(next(found) if n else None for n in needed)

    def _run(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        """The forward, which has given its warnings."""
        with (
            torch._C._DisableAutocast(),
            unheard(),
            torch.autograd.set_detect_anomaly(False),
            torch_state.defaults(*self._defaults),
        ):
            return graph(*inputs)


def _refusal(captured: fx.GraphModule, joint: JointGraph) -> str:
    if joint.mutations:
        return "the graph writes to its inputs, and a second run would do so again"
    if draws(captured.graph):
        return "the graph draws random numbers, and a second run would draw others"
    if joint.autocast or any(n.target is torch_state.enter_autocast for n in captured.graph.nodes):
        return "the graph ran under autocast"
    return ""
