"""The function around a compiled forward and backward: autograd, writes to inputs, views in outputs.

`source/` writes it as Python source for each graph.  This module binds the source to the objects that it names, and
defines those that are the same for all graphs.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.fx as fx

from compiler_core.autograd.eager_runs import (
    DoubleBackward,
    RerunRules,
    graph_is_retained,
    inputs_unchanged,
    undoing_writes,
    unrepeatable,
)
from compiler_core.autograd.function_class import FunctionClass
from compiler_core.autograd.partition import Partitioned
from compiler_core.autograd.source_writer import CallFunction, SourceWriter
from compiler_core.codegen.wrapper.executable import CannotDraw, IndexOutOfRange
from compiler_core.hook.failures import report_failure
from compiler_core.records import Compile
from compiler_core.support.eager_warnings import silence_warnings, warn_always, warning_emitter
from compiler_core.support.opaque_ops import SECOND_BACKWARD_MESSAGE
from compiler_core.support.recorded_calls import begin_record, open_record
from compiler_core.support.tensors import has_own_kernels, without_class, writes_reach_others
from compiler_core.support.texts import keep_source
from compiler_core.torch_private import (
    AutoDispatchBelowADInplaceOrView,
    DisableAutocast,
    DisableTorchFunctionSubclass,
    are_functorch_transforms_active,
    disable_current_modes,
    has_storage,
    top_saved_tensors_default_hooks,
)

BoxedGraph = Callable[[list[Any]], Sequence[Any]]
"""A compiled forward or backward graph: takes a flat list of tensors, which it may empty, and returns a flat
sequence."""

CompiledCall = Callable[..., tuple[torch.Tensor, ...]]

_numbers = itertools.count()


@dataclass(frozen=True)
class AutogradSource:
    """The source around one graph, and what it names, as plain data that can be stored."""

    text: str
    operator_nodes: dict[str, str]
    """From the name of each eager operator in the source to a captured node that calls it."""
    rerun_rules: RerunRules


def write_source(
    parts: Partitioned, forward: BoxedGraph, backward: BoxedGraph | None, captured: fx.GraphModule, compile_: Compile
) -> tuple[AutogradSource, dict[str, Any]]:
    """Returns the source for a partitioned graph, and the objects that it names and that cannot be stored as text.

    Adds the source to the record of `compile_`.

    Args:
        parts: the partitioned joint graph.
        forward: the compiled forward.
        backward: the compiled backward, if there is one.
        captured: the captured graph.
        compile_: the record of the compile.
    """
    rules = RerunRules.of(captured, parts.joint)
    graphs = {"forward": forward, "backward": backward}
    executables = {name: g.executable for name, g in graphs.items() if g and hasattr(g, "executable")}
    writer = SourceWriter(parts, executables, warns=warning_emitter(captured.graph) is not None)
    if parts.backward is not None:
        FunctionClass(writer, rules.refusal).write()
    call = CallFunction(writer)
    call.write()
    artifact = compile_.artifact("wrapper", "autograd", "python", writer.text, writer.spans)
    for key, nodes in writer.nodes.items():
        compile_.link(artifact.item(key), [n.meta["item"] for n in nodes if "item" in n.meta], "autograd")
    return AutogradSource(writer.text, call.operator_nodes, rules), writer.constants


class GraphCallables(NamedTuple):
    """The captured graph and its compiled parts, which the source calls."""

    captured: fx.GraphModule
    """Run eagerly if a written input shares memory with another one, and for gradients of gradients."""
    forward: BoxedGraph
    backward: BoxedGraph | None
    backward_graph: Callable[..., Any] | None
    """The backward as operations of PyTorch, for tangents and saved tensors that `backward` cannot take."""


def bind_source(
    source: AutogradSource, constants: Mapping[str, Any], graphs: GraphCallables, compile_: Compile
) -> CompiledCall:
    """Executes the source and returns its function ``call``.

    Args:
        source: the source.
        constants: the objects that `write_source` returned.
        graphs: the graphs that the source runs.
        compile_: the record of the compile.
    """
    captured, forward, backward, backward_graph = graphs
    targets = {node.name: node.target for node in captured.graph.nodes}
    warn = warning_emitter(captured.graph)
    scope = {
        **_globals_of_inlined(forward),
        **_globals_of_inlined(backward),
        **_SOURCE_GLOBALS,
        **{name: targets[node] for name, node in source.operator_nodes.items()},
        **constants,
        **_with_kept_zeros(backward),
        "double_backward": DoubleBackward(captured, source.rerun_rules, compile_),
        "forward_graph": forward,
        "backward_graph": backward,
        "eager_backward": backward_graph and functools.partial(_run_eager_backward, backward_graph),
        "run_eagerly": undoing_writes(captured),
        "rerun_eagerly": functools.partial(rerun_eagerly, compile_, warn is not None),
        "warn": warn,
    }
    filename = f"<cutaway {compile_.id}:autograd {next(_numbers)}>"
    exec(compile(source.text, filename, "exec"), scope)
    call: CompiledCall = scope["call"]
    keep_source(call, filename, source.text)
    return call


def _with_kept_zeros(backward: BoxedGraph | None) -> dict[str, Any]:
    """Returns the globals of a backward that keeps the zeros which it gets for absent tangents, for its replays.

    No gradient shares memory with them: a gradient that comes only from absent tangents is None.
    """
    zeros = getattr(backward, "zeros", None)
    return {} if zeros is None else {"match_layout": functools.partial(match_layout, zeros=zeros)}


def _run_eager_backward(graph: Callable[..., Any], inputs: Sequence[Any]) -> Any:
    with DisableTorchFunctionSubclass():  # autograd calls no __torch_function__ either
        return graph(*inputs)


def _globals_of_inlined(graph: BoxedGraph | None) -> dict[str, Any]:
    """Returns the globals of a graph whose statements are inlined into the source."""
    run: Any = graph
    if not hasattr(run, "executable") or run.executable.inline_body is None:
        return {}
    return {name: run.__globals__[name] for name in run.__code__.co_names if name in run.__globals__}


def share_memory(written: Sequence[torch.Tensor], others: Sequence[torch.Tensor], has_backward: bool = True) -> bool:
    """Returns whether a write to a tensor in `written` may change another one in either list or, with a backward, its
    version."""
    return share_storage(written, others) and writes_reach_others(written, others, has_backward)


def share_storage(written: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Returns whether a tensor in `written` has the same storage as another one in either list."""
    storages = set(_storages(written))
    return len(storages) < len(written) or not storages.isdisjoint(_storages(others))


def _storages(tensors: Sequence[torch.Tensor]) -> Iterator[int]:
    """Yields the `storage_id` of each tensor.  It is inlined, since a Python call for each of hundreds of tensors is
    slow."""
    return map(operator.attrgetter("_cdata"), map(torch.Tensor.untyped_storage, tensors))


def as_plain(tangent: torch.Tensor | None) -> torch.Tensor | None:
    """Returns a tensor of a subclass as a plain one; None for None.

    Raises RuntimeError if the subclass computes with its own kernels, by ``__torch_dispatch__``.
    """
    if tangent is None:
        return None
    if has_own_kernels(tangent):
        raise RuntimeError("a gradient of a class with __torch_dispatch__")
    return without_class(tangent)


def new_zeros(shape: Sequence[int], stride: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    """Returns zeros with these strides."""
    return torch.empty_strided(shape, stride, dtype=dtype, device=device).zero_()


def match_layout(
    tangent: torch.Tensor | None,
    shape: Sequence[int],
    stride: tuple[int, ...],
    dtype: torch.dtype,
    device: str,
    zeros: Callable[..., torch.Tensor] = new_zeros,
) -> torch.Tensor:
    """Returns the gradient of an output with the strides that the backward was compiled for; `zeros` of these if
    `tangent` is None.

    Raises RuntimeError for a sparse tensor, which has no strides.
    """
    if tangent is None:
        return zeros(shape, stride, dtype, device)
    if tangent.layout is not torch.strided:
        raise RuntimeError("a sparse gradient")
    if not has_storage(tangent) or has_own_kernels(tangent):
        order = sorted(range(len(stride)), key=lambda d: -stride[d])
        return tangent.permute(order).contiguous().permute([order.index(d) for d in range(len(stride))])
    return torch.empty_strided(shape, stride, dtype=dtype, device=device).copy_(tangent)


@functools.cache
def flag(value: bool, device: torch.device | str) -> torch.Tensor:
    """Returns a bool as a 0-dimensional tensor, which all callers share."""
    with torch.inference_mode(False), disable_current_modes():
        return torch.tensor(value, device=device)


def as_dense(tangent: torch.Tensor | None) -> torch.Tensor | None:
    """Returns a sparse tensor as a dense one, and other values unchanged."""
    return tangent if tangent is None or tangent.layout is torch.strided else tangent.to_dense()


def tensor_kinds(tensors: Sequence[torch.Tensor]) -> list[tuple[Any, ...]]:
    """Returns what kernels assume about saved tensors: dtype, device, shape, strides and offset."""
    return [_tensor_kind(tensor) for tensor in tensors]


def _tensor_kind(tensor: torch.Tensor) -> tuple[Any, ...]:
    if has_own_kernels(tensor):
        return (type(tensor),)
    if tensor.layout is not torch.strided:
        return (tensor.layout,)
    extents = tensor.shape, tensor.stride(), tensor.storage_offset()
    return tensor.dtype, tensor.device, *extents, tensor.is_neg(), tensor.is_conj()


def rerun_eagerly(compile_: Compile, has_warned: bool, run: Callable[..., Any], inputs: Sequence[Any]) -> Any:
    """Runs the graph eagerly after a kernel raised IndexOutOfRange or CannotDraw; called while that is handled.

    For an index out of range, eager PyTorch raises an error that names the index; if it does not, the kernel is wrong,
    and a failure is recorded.  Random numbers that our kernels may not draw are drawn by eager PyTorch.

    Custom operators that ran already do not run again; see `recorded_calls.py`.

    `has_warned`: the graph's warnings were given already.
    """
    cause, calls = sys.exception(), open_record()
    try:
        with contextlib.ExitStack() as stack:
            if has_warned:
                stack.enter_context(silence_warnings())
            if calls:
                begin_record()
                stack.enter_context(calls.replayed())
            result = run(*inputs)
    except Exception as error:
        error.__context__ = None
        raise
    if isinstance(cause, IndexOutOfRange) and not any(f.stage == "run" for f in compile_.failures):
        report_failure(compile_, "run", cause, meaning=RAN_EAGERLY_MEANING)
    return result


RAN_EAGERLY_MEANING = (
    "The graph ran again as plain PyTorch: the results are right, but such calls are slower than uncompiled."
)


def raise_freed() -> Any:
    """Raises eager PyTorch's error for a second backward through a freed graph."""
    raise RuntimeError(SECOND_BACKWARD_MESSAGE)


def with_spent_history(graph: Callable[..., Any], spent: Sequence[int]) -> Callable[..., Any]:
    """Returns the function of a graph whose results at the positions `spent` require gradients, but raise in a
    backward: an earlier one has freed their history."""

    def run(*inputs: Any) -> tuple[Any, ...] | None:
        if (found := graph(*inputs)) is None:  # it has failed
            return None
        results = list(found)
        for i in spent:
            results[i] = _SpentHistory.apply(results[i], torch.empty(0, requires_grad=True))  # type: ignore[no-untyped-call]
        return tuple(results)

    return run


class _SpentHistory(torch.autograd.Function):
    """The history of a tensor from which a backward has gone already."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, *tangents: torch.Tensor) -> Any:
        raise_freed()


class SavedPerOutput:
    """What a graph with several differentiable outputs saved, for backwards that go through the outputs one by one.

    Eager PyTorch has separate nodes behind each output.  Here, one node is behind all of them, and PyTorch frees what
    it saved after the first backward.

    Args:
        saved: the saved tensors.
        needed: for each output, the indices of the saved tensors that its gradient reads.  They must not have been
            written to since.
        freed_together: for each output, the outputs (itself included) that no backward can go through after one through
            it.
    """

    def __init__(
        self,
        saved: Sequence[torch.Tensor],
        needed: Sequence[Sequence[int]],
        freed_together: Sequence[Sequence[int]],
    ) -> None:
        self._saved: Sequence[torch.Tensor] | None = saved
        self._versions = [t._version for t in saved]
        self._needed, self._freed_together = needed, freed_together
        self._freed: set[int] = set()

    def check_not_freed(self, absent: Sequence[bool]) -> None:
        """Raises an error if a backward goes through an output whose graph an earlier backward has freed.

        `absent` says for each output whether it has no tangent.
        """
        if self._saved is None or not self._freed.isdisjoint(_present(absent)):
            raise RuntimeError(SECOND_BACKWARD_MESSAGE)

    @property
    def is_exhausted(self) -> bool:
        """Whether no backward can follow."""
        return self._saved is None

    def saved_after_free(self, absent: Sequence[bool], error: RuntimeError) -> Sequence[torch.Tensor]:
        """Returns the saved values after PyTorch has raised `error` because it freed them.

        `absent` says for each output whether it has no tangent.
        """
        given = _present(absent)
        if self._saved is None or not self._freed.isdisjoint(given):
            raise error
        for index in {index for output in given for index in self._needed[output]}:
            if self._saved[index]._version != self._versions[index]:
                raise RuntimeError(_changed_message(self._saved[index], self._versions[index])) from error
        return self._saved

    def mark_passed(self, absent: Sequence[bool]) -> None:
        """Notes a backward, which does not retain the graph, through the outputs that are not `absent`.  Frees the
        saved values once no backward can follow."""
        self._freed.update(*(self._freed_together[i] for i in _present(absent)))
        if len(self._freed) == len(self._freed_together):
            self._saved = None


def _changed_message(saved: torch.Tensor, version: int) -> str:
    """Returns PyTorch's message about a tensor that was saved with this `version` and has been written to since."""
    kind, shape, node = saved.type(), list(saved.shape), saved.grad_fn
    output = "" if node is None else f", which is output {saved.output_nr} of {node.name()},"
    if torch.is_anomaly_enabled():
        hint = (
            "the backtrace further above shows the operation that failed to compute its gradient. "
            "The variable in question was changed in there or anywhere later. Good luck!"
        )
    else:
        hint = (
            "enable anomaly detection to find the operation that failed to compute its gradient, "
            "with torch.autograd.set_detect_anomaly(True, check_nan=False)."
        )
    return (
        f"one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{kind} {shape}]{output} is at version {saved._version}; expected version {version} instead. Hint: {hint}"
    )


def _present(absent: Sequence[bool]) -> list[int]:
    return [i for i, is_absent in enumerate(absent) if not is_absent]


_SOURCE_GLOBALS: dict[str, Any] = {
    "torch": torch,
    "math": math,
    "below_autograd": AutoDispatchBelowADInplaceOrView,
    "without_autocast": DisableAutocast,
    "transforms_are_active": are_functorch_transforms_active,
    "forward_ad": torch.autograd.forward_ad,
    "is_grad_enabled": torch.is_grad_enabled,
    "is_anomaly_enabled": torch.is_anomaly_enabled,
    "has_memory": has_storage,
    "graph_is_retained": graph_is_retained,
    "inputs_unchanged": inputs_unchanged,
    "silence_warnings": silence_warnings,
    "warn_always": warn_always,
    "share_memory": share_memory,
    "share_storage": share_storage,
    "share_elements": functools.partial(share_memory, has_backward=False),
    "Tensor": torch.Tensor,
    "all_plain": {torch.Tensor}.issuperset,
    "as_plain": as_plain,
    "match_layout": match_layout,
    "new_zeros": new_zeros,
    "as_dense": as_dense,
    "flag": flag,
    "tensor_kinds": tensor_kinds,
    "saved_tensors_hooks": top_saved_tensors_default_hooks,
    "SavedPerOutput": SavedPerOutput,
    "raise_freed": raise_freed,
    "IndexOutOfRange": IndexOutOfRange,
    "CannotDraw": CannotDraw,
    "unrepeatable": unrepeatable,
}
"""What the source may name besides its graphs, eager operators and constants."""
