"""Gradients of gradients: what a compiled backward does under ``create_graph=True``.

Autograd cannot differentiate a compiled backward.  So the captured graph runs once more, eagerly and under autograd, on
the inputs of the forward; the gradients of that run can be differentiated any number of times.  If a second run could
differ from the first, the gradients raise an error that says why when they are differentiated.  These gradients are
connected to every input in the autograd graph, so that autograd never takes an input for unused and returns zero for
it.
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
from compiler_core.support.eager_warnings import silence_warnings
from compiler_core.support.fx_graphs import draws_random_numbers, graph_module
from compiler_core.support.operator_facts import communicates
from compiler_core.support.tensors import has_own_kernels
from compiler_core.torch_private import (
    DelayedError,
    DisableAutocast,
    DisableTorchFunctionSubclass,
    get_current_graph_task_keep_graph,
)

Gradients = tuple[torch.Tensor | None, ...]

graph_is_retained: Any = get_current_graph_task_keep_graph


def inputs_unchanged(ctx: Any) -> bool:
    """Returns whether the inputs of a run are still there and unchanged.  Its autograd node keeps them until autograd
    frees what was saved."""
    return ctx.primals is not None and _versions(ctx.primals) == ctx.versions


def _versions(primals: Sequence[Any]) -> tuple[int, ...]:
    try:
        return tuple(p._version for p in primals if isinstance(p, torch.Tensor))
    except RuntimeError:  # inference tensors have no version
        return ()


@dataclass(frozen=True)
class RerunRules:
    """Whether the captured graph may run again, and which of its inputs and values matter then."""

    refusal: str
    """Why a second run could differ from the first; empty if it cannot."""
    written_inputs: list[int]
    """The inputs that the graph writes to."""
    captured_outputs: list[str]
    """The names of the captured nodes whose values have a tangent."""
    grad_enabled: bool
    """The grad mode in which the graph begins."""

    @staticmethod
    def of(captured: fx.GraphModule, joint: JointGraph) -> RerunRules:
        outputs = zip(joint.captured_outputs, joint.differentiable, strict=True)
        names = [node.name for node, differentiable in outputs if differentiable]
        written = [m.primal for m in joint.mutations]
        return RerunRules(_refusal(captured, joint), written, names, torch.is_grad_enabled())


class DoubleBackward:
    """Runs the captured graph of one compile again."""

    def __init__(self, captured: fx.GraphModule, rules: RerunRules, compile_: Compile) -> None:
        self._captured, self._rules, self._compile = captured, rules, compile_
        self._graph: fx.GraphModule | None = None
        self._defaults = [d for d in torch_state.default_devices() if d is not None], torch.get_default_dtype()
        """The default devices and dtype of the forward.  A backward runs outside of its ``with torch.device(...)``."""

    def gradients(self, ctx: Any, tangents: Sequence[torch.Tensor | None]) -> Gradients:
        """Returns one gradient for each primal, which autograd can differentiate."""
        if self._graph is not None:
            return self._gradients(self._graph, ctx, tangents)
        with self._compile.step("run", "create_graph=True") as event:
            event.detail = (
                "for gradients of gradients, of sparse ones and of ones of a class with __torch_dispatch__, "
                "the captured graph runs again eagerly"
            )
            self._graph = self._outputs_graph()
            return self._gradients(self._graph, ctx, tangents)

    def gradients_without_kernels(self, ctx: Any, tangents: Sequence[torch.Tensor | None]) -> Gradients | None:
        """Returns the gradients of tangents that our kernels cannot read, as eager PyTorch computes them.

        These are sparse tensors, and those of classes with ``__torch_dispatch__``.  Called while an error is handled,
        which is raised again if there is no such tangent.  Returns None if the captured graph cannot run again.
        """
        if all(t is None or (t.layout is torch.strided and not has_own_kernels(t)) for t in tangents):
            raise  # noqa: PLE0704
        if self._rules.refusal or not inputs_unchanged(ctx):
            return None
        create_graph = torch.is_grad_enabled()
        result = self.gradients(ctx, tangents)
        if not graph_is_retained():
            ctx.maybe_clear_saved_tensors()
            if hasattr(ctx, "per_output"):
                ctx.per_output.mark_passed([t is None for t in tangents])
        return result if create_graph else tuple(g if g is None else g.detach() for g in result)

    def anomaly_gradients(self, ctx: Any, tangents: Sequence[torch.Tensor | None]) -> Gradients:
        """Returns one gradient for each primal while autograd detects anomalies, which checks the gradient of each
        operation."""
        if self._graph is None:
            self._graph = self._outputs_graph()
        found = self._gradients(self._graph, ctx, tangents)
        return tuple(g if g is None else g.detach() for g in found)

    def once_differentiable(self, ctx: Any, gradients: Gradients) -> Gradients:
        """Returns the gradients of the compiled backward so that differentiating them raises an error."""
        why = self._rules.refusal or "an input was written to since the forward, or was freed"
        message = (
            f"a gradient of a compiled function cannot be differentiated again: {why}. "
            "Leave this function uncompiled (compiler_core.disable)"
        )
        if ctx.primals is None or any(ctx.needs_input_grad[i] for i in self._rules.written_inputs):
            raise RuntimeError(message)  # without the inputs, a delayed error cannot be connected to each of them
        reachable = [p for p in ctx.primals if getattr(p, "requires_grad", False)]
        present = [g for g in gradients if g is not None]
        marked = [g.detach().requires_grad_() for g in present]
        raises: Any = DelayedError(message.encode(), len(marked) + len(reachable))
        raising = iter(raises(*marked, *reachable))
        return tuple(g if g is None else next(raising) for g in gradients)

    def _outputs_graph(self) -> fx.GraphModule:
        """Returns the captured graph with the values that have a tangent as its outputs."""
        graph, copied = fx.Graph(), dict[fx.Node, fx.Node]()
        graph.graph_copy(self._captured.graph, copied)
        copies = {node.name: copy for node, copy in copied.items()}
        graph.output(tuple(copies[name] for name in self._rules.captured_outputs))
        return graph_module(self._captured, graph)

    def _gradients(self, graph: fx.GraphModule, ctx: Any, tangents: Sequence[torch.Tensor | None]) -> Gradients:
        needed = ctx.needs_input_grad
        with torch.enable_grad(), DisableTorchFunctionSubclass():
            # aliases, so that an input that is given twice has two gradients
            inputs = [p.view_as(p) if n else p for p, n in zip(ctx.primals, needed, strict=True)]
            with torch.set_grad_enabled(self._rules.grad_enabled):
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
        """Runs the graph without its warnings, which the forward has given."""
        with (
            DisableAutocast(),
            silence_warnings(),
            torch.autograd.set_detect_anomaly(False),
            torch_state.default_device_and_dtype(*self._defaults),
        ):
            return graph(*inputs)


def _refusal(captured: fx.GraphModule, joint: JointGraph) -> str:
    if joint.mutations:
        return "the graph writes to its inputs, and a second run would do so again"
    if draws_random_numbers(captured.graph):
        return "the graph draws random numbers, and a second run would draw others"
    if communicates(captured.graph):
        return "the graph runs collectives, which the other ranks would not repeat"
    if joint.autocast or any(n.target is torch_state.enter_autocast for n in captured.graph.nodes):
        return "the graph ran under autocast"
    return ""
