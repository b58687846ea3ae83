"""Runs of the captured graph as plain PyTorch: for gradients of gradients, and for calls that kernels cannot take.

Autograd cannot differentiate a compiled backward.  So under ``create_graph=True`` the captured graph runs once more,
eagerly and under autograd, on the inputs of the forward; the gradients of that run can be differentiated any number of
times.  If a second run could differ from the first, the gradients raise an error that says why when they are
differentiated.  These gradients are connected to every input in the autograd graph, so that autograd never takes an
input for unused and returns zero for it.

A graph that fails may run again after what it wrote to its inputs is undone.  Copies of these are made before the run,
since nothing tells beforehand whether an operation will fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from compiler_core.autograd.joint import JointGraph
from compiler_core.records import Compile
from compiler_core.support import torch_state
from compiler_core.support.eager_warnings import silence_warnings
from compiler_core.support.fx_graphs import graph_module
from compiler_core.support.node_facts import communicates, is_random
from compiler_core.support.recorded_calls import with_recorded_calls
from compiler_core.support.tensors import has_own_kernels, is_wrapper, storage_id, tensors_in, without_repeats
from compiler_core.torch_private import (
    DelayedError,
    DisableAutocast,
    DisableTorchFunctionSubclass,
    get_current_graph_task_keep_graph,
    unsafe_set_version_counter,
)

Gradients = tuple[torch.Tensor | None, ...]

graph_is_retained: Any = get_current_graph_task_keep_graph


def unrepeatable(error: Exception) -> Exception:
    """Marks an error of a graph whose kernels may have updated inputs, so that nothing runs it again."""
    error.__dict__["cutaway_updates"] = True
    return error


def is_unrepeatable(error: BaseException) -> bool:
    """Whether an error is marked by `unrepeatable`."""
    return "cutaway_updates" in error.__dict__


def inputs_unchanged(ctx: Any) -> bool:
    """Returns whether the inputs of a run are still there and unchanged.  Its autograd node keeps them until autograd
    frees what was saved."""
    return ctx.primals is not None and (versions_of(tensors_in(ctx.primals)) or ()) == ctx.versions


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

    def gradients(self, ctx: Any, tangents: Sequence[torch.Tensor | None], create_graph: bool = True) -> Gradients:
        """Returns one gradient for each primal, which autograd can differentiate with `create_graph`."""
        if self._graph is not None:
            return self._gradients(self._graph, ctx, tangents, create_graph)
        with self._compile.step("run", "create_graph=True") as event:
            event.detail = (
                "for gradients of gradients, of sparse ones and of ones of a class with __torch_dispatch__, "
                "the captured graph runs again eagerly"
            )
            self._graph = self._outputs_graph()
            return self._gradients(self._graph, ctx, tangents, create_graph)

    def gradients_without_kernels(self, ctx: Any, tangents: Sequence[torch.Tensor | None]) -> Gradients | None:
        """Returns the gradients of tangents that our kernels cannot read, as eager PyTorch computes them.

        These are sparse tensors, and those of classes with ``__torch_dispatch__``.  Called while an error is handled,
        which is raised again if there is no such tangent.  Returns None if the captured graph cannot run again.
        """
        if all(t is None or (t.layout is torch.strided and not has_own_kernels(t)) for t in tangents):
            raise  # noqa: PLE0704
        if self._rules.refusal or not inputs_unchanged(ctx):
            return None
        result = self.gradients(ctx, tangents, create_graph=torch.is_grad_enabled())
        if not graph_is_retained():
            ctx.maybe_clear_saved_tensors()
            if hasattr(ctx, "per_output"):
                ctx.per_output.mark_passed([t is None for t in tangents])
        return result

    def anomaly_gradients(self, ctx: Any, tangents: Sequence[torch.Tensor | None]) -> Gradients:
        """Returns one gradient for each primal while autograd detects anomalies, which checks the gradient of each
        operation."""
        if self._graph is None:
            self._graph = self._outputs_graph()
        return self._gradients(self._graph, ctx, tangents, create_graph=False)

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

    def _gradients(
        self, graph: fx.GraphModule, ctx: Any, tangents: Sequence[torch.Tensor | None], create_graph: bool
    ) -> Gradients:
        needed = ctx.needs_input_grad
        with torch.enable_grad(), DisableTorchFunctionSubclass():
            # aliases, so that an input that is given twice has two gradients
            inputs = [p.view_as(p) if n else p for p, n in zip(ctx.primals, needed, strict=True)]
            with torch.set_grad_enabled(self._rules.grad_enabled):
                outputs = self._run(graph, inputs)
            given = [(o, t) for o, t in zip(outputs, tangents, strict=True) if t is not None]
            wanted = [i for i, n in zip(inputs, needed, strict=True) if n]
            results, seeds = [o for o, _ in given], [t for _, t in given]
            # a sum of a sparse gradient and a dense one has no graph
            found = iter(torch.autograd.grad(results, wanted, seeds, create_graph=create_graph, allow_unused=True))
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
    if any(map(is_random, joint.gm.graph.nodes)):
        return "the graph draws random numbers, and a second run would draw others"
    if communicates(captured.graph):
        return "the graph runs collectives, which the other ranks would not repeat"
    if joint.autocast or any(n.target is torch_state.enter_autocast for n in captured.graph.nodes):
        return "the graph ran under autocast"
    return ""


# ---- undoing writes ------------------------------------------------------------------------


def undoing_writes(graph: torch.fx.GraphModule) -> Callable[..., Any]:
    """Returns a function that runs `graph` eagerly and, if that raises, restores the inputs that it wrote to.

    The caller can then run the frame again, for which calls of custom operators are recorded.
    """
    run: Callable[..., Any] = with_recorded_calls(graph).forward
    written = written_inputs(graph)
    if not written:
        return run

    def run_or_undo(*inputs: Any) -> Any:
        saved = [SavedInput.save(inputs[i]) for i in written]
        try:
            return run(*inputs)
        except Exception:
            restore_inputs(saved)
            raise

    return run_or_undo


def written_inputs(graph: torch.fx.GraphModule) -> list[int]:
    """Returns the indices of the inputs whose memory the graph's operations may change.

    Capture's fake tensors count writes in ``_version``, except those that an operator makes to ``out=`` through a view
    without history.
    """
    placeholders = [n.meta.get("val") for n in graph.graph.nodes if n.op == "placeholder"]
    inputs = [None if is_wrapper(value) else value for value in placeholders]  # its inner tensors are inputs, too
    values = [(n, t) for n in graph.graph.nodes for t in tensors_in(n.meta.get("val"))]
    written = [t for n, t in values if t._version > 0 or "out" in n.kwargs]
    changed = {storage_id(t) for t in written if t.layout is torch.strided}  # a sparse tensor has no storage
    return [i for i, value in enumerate(inputs) for t in tensors_in(value) if storage_id(t) in changed]


@dataclass(frozen=True)
class SavedInput:
    """An input that the graph writes to, and its state before the run."""

    tensor: torch.Tensor
    version: int | None
    """Its ``_version``; None for inference tensors, which have none."""
    location: tuple[Any, ...]
    history: tuple[Any, ...]
    copy: torch.Tensor

    @classmethod
    def save(cls, tensor: torch.Tensor) -> SavedInput:
        version = None if tensor.is_inference() else tensor._version
        history = _autograd_history(tensor)
        return cls(tensor, version, _memory_location(tensor), history, _copy_of(tensor, history))

    def can_be_restored(self) -> bool:
        same_place = _memory_location(self.tensor) == self.location
        return same_place and (_autograd_history(self.tensor) == self.history or not self.tensor._is_view())

    def restore(self) -> None:
        if _autograd_history(self.tensor) != self.history:
            self._restore_history()
        with torch.inference_mode(self.tensor.is_inference()), torch.no_grad():
            without_repeats(self.tensor.detach()).copy_(without_repeats(self.copy.detach()))
        if self.version is not None:
            unsafe_set_version_counter((self.tensor,), (self.version,))

    def _restore_history(self) -> None:
        """Restores ``grad_fn`` and ``requires_grad``, which a differentiable write has replaced."""
        self.tensor.detach_()
        if self.history[0] is None:
            self.tensor.requires_grad_(self.history[1])
        else:
            with torch.enable_grad():
                self.tensor.copy_(self.copy)


def _copy_of(tensor: torch.Tensor, history: tuple[Any, ...]) -> torch.Tensor:
    """Returns a copy of the data, with its autograd history if it has one."""
    if isinstance(history[0], torch.autograd.graph.Node) and not tensor._is_view():
        with torch.enable_grad():
            return tensor.clone()
    return without_repeats(tensor.detach()).clone()


def _memory_location(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.untyped_storage().data_ptr()


def _autograd_history(tensor: torch.Tensor) -> tuple[Any, ...]:
    try:
        return tensor.grad_fn, tensor.requires_grad
    except RuntimeError as error:  # a view whose history autograd has invalidated
        return str(error), None


def restore_inputs(saved: Sequence[SavedInput]) -> bool:
    """Undoes the graph's writes; returns False, and changes nothing, if that is impossible."""
    if not all(each.can_be_restored() for each in saved):
        return False
    for each in saved:
        each.restore()
    return True


def versions_of(tensors: Sequence[torch.Tensor]) -> tuple[int, ...] | None:
    """Returns the ``_version`` of each tensor; None if one is an inference tensor, which has none."""
    try:
        return tuple(tensor._version for tensor in tensors)
    except RuntimeError:
        return None
