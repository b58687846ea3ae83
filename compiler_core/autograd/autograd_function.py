"""The Python around a compiled forward and backward: autograd, writes to inputs, views of outputs.

`glue` writes it as source for each graph; here is what its names mean, and from both the callable.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import linecache
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.fx as fx

from compiler_core.autograd.autograd_source import Writer
from compiler_core.autograd.double_backward import Again, Rules, graph_is_retained, unchanged
from compiler_core.autograd.partition import Partitioned
from compiler_core.codegen.wrapper.executable import BadIndex, NotDrawn
from compiler_core.hook.failures import heard
from compiler_core.records import Compile
from compiler_core.support.eager_warnings import says
from compiler_core.support.opaque_ops import AGAIN
from compiler_core.support.silenced_warnings import unheard

Boxed = Callable[[list[Any]], Sequence[Any]]
"""A forward or backward graph as code: flat list of tensors in (it may be emptied), flat sequence out."""

Call = Callable[..., tuple[torch.Tensor, ...]]

_numbers = itertools.count()


@dataclass(frozen=True)
class Glue:
    """The source, and what it is bound to, as plain data."""

    text: str
    views: dict[str, str]
    """For each name of an eager operator, a captured node that calls it."""
    again: Rules


def written(
    parts: Partitioned, forward: Boxed, backward: Boxed | None, captured: fx.GraphModule, compile_: Compile
) -> tuple[Glue, dict[str, Any]]:
    """The source for these graphs, which goes into the record, and the objects that it names and no text can hold."""
    rules = Rules.of(captured, parts.joint)
    graphs = {"forward": forward, "backward": backward}
    recipes = {name: graph.recipe for name, graph in graphs.items() if graph and hasattr(graph, "recipe")}
    writer = Writer(parts, rules.refused, recipes, says(captured.graph) is not None)
    text, spans = writer.source()
    artifact = compile_.artifact("wrapper", "autograd", "python", text, spans)
    for key, nodes in writer.sources.items():
        compile_.link(artifact.item(key), [n.meta["item"] for n in nodes if "item" in n.meta], "autograd")
    return Glue(text, writer.views, rules), writer.constants


class Graphs(NamedTuple):
    """What a call runs."""

    captured: fx.GraphModule
    """Runs instead when the graph writes to an input that shares memory with another, and once more where the
    gradients are to be differentiated."""
    forward: Boxed
    backward: Boxed | None
    backward_graph: Callable[..., Any] | None
    """The backward as PyTorch's operations, for what `backward` cannot take."""


def bound(glue: Glue, constants: Mapping[str, Any], graphs: Graphs, compile_: Compile) -> Call:
    """The callable that `glue` is the source of."""
    captured, forward, backward, backward_graph = graphs
    targets = {node.name: node.target for node in captured.graph.nodes}
    warn = says(captured.graph)
    scope = {
        **_named_by(forward),
        **_named_by(backward),
        **_NAMES,
        **{name: targets[node] for name, node in glue.views.items()},
        **constants,
        "again": Again(captured, glue.again, compile_),
        "forward_graph": forward,
        "backward_graph": backward,
        "plain_backward": backward_graph and (lambda inputs: backward_graph(*inputs)),
        "run_eagerly": captured.forward,
        "as_eager_says": functools.partial(as_eager_says, compile_, warn is not None),
        "warn": warn,
    }
    filename = f"<cutaway {compile_.id}:autograd {next(_numbers)}>"
    exec(compile(glue.text, filename, "exec"), scope)
    call: Call = scope["call"]
    # so that a traceback shows the lines, for as long as they can run
    linecache.cache[filename] = (len(glue.text), None, glue.text.splitlines(keepends=True), filename)
    weakref.finalize(call, linecache.cache.pop, filename, None)
    return call


def _named_by(graph: Boxed | None) -> dict[str, Any]:
    """What the statements of a short graph name, which the source has in place of a call."""
    run: Any = graph
    if not hasattr(run, "recipe") or run.recipe.short is None:
        return {}
    return {name: run.__globals__[name] for name in run.__code__.co_names if name in run.__globals__}


has_memory: Callable[[torch.Tensor], bool] = vars(torch._C)["_has_storage"]


def share_memory(written: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Whether a tensor in `written` lies in the same storage as another one in either list."""
    storages = {t.untyped_storage()._cdata for t in written}
    return len(storages) < len(written) or any(t.untyped_storage()._cdata in storages for t in others)


def laid_out(
    tangent: torch.Tensor | None, shape: Sequence[int], stride: tuple[int, ...], dtype: torch.dtype, device: str
) -> torch.Tensor:
    """The gradient of an output, which has other strides, with those that the backward was compiled for; zeros where
    there is none.  Of a sparse one, which has no strides, RuntimeError."""
    if tangent is None:
        return torch.empty_strided(shape, stride, dtype=dtype, device=device).zero_()
    if tangent.layout is not torch.strided:
        raise RuntimeError("a sparse gradient")
    if not has_memory(tangent):
        order = sorted(range(len(stride)), key=lambda d: -stride[d])
        return tangent.permute(order).contiguous().permute([order.index(d) for d in range(len(stride))])
    return torch.empty_strided(shape, stride, dtype=dtype, device=device).copy_(tangent)


def dense(tangent: torch.Tensor | None) -> torch.Tensor | None:
    return tangent if tangent is None or tangent.layout is torch.strided else tangent.to_dense()


def kinds(tensors: Sequence[torch.Tensor]) -> list[tuple[Any, ...]]:
    """What kernels take for granted of the tensors that a graph has saved."""
    return [_kind(tensor) for tensor in tensors]


def _kind(tensor: torch.Tensor) -> tuple[Any, ...]:
    if tensor.layout is not torch.strided:
        return (tensor.layout,)
    extents = tensor.shape, tensor.stride(), tensor.storage_offset()
    return tensor.dtype, tensor.device, *extents, tensor.is_neg(), tensor.is_conj()


_saved_tensors_hooks: Callable[[bool], Any] = vars(torch._C._autograd)["_top_saved_tensors_default_hooks"]
"""The hooks that tensors are saved by just now."""


def as_eager_says(compile_: Compile, has_warned: bool, run: Callable[..., Any], inputs: Sequence[Any]) -> Any:
    """What eager PyTorch does where a kernel met an index that is out of range: it raises, and says which; if it does
    not, the kernel is wrong.  Or where no kernel of ours may draw random numbers: it draws them."""
    met = sys.exception()
    try:
        with unheard() if has_warned else contextlib.nullcontext():
            result = run(*inputs)
    except Exception as error:
        error.__context__ = None
        raise
    if isinstance(met, BadIndex) and not any(f.stage == "run" for f in compile_.failures):
        heard(compile_, "run", met, meaning=RAN_EAGERLY)
    return result


RAN_EAGERLY = "The graph ran again as plain PyTorch: the results are right, but such calls are slower than uncompiled."


def freed() -> Any:
    raise RuntimeError(AGAIN)


class Kept:
    """What a graph with several differentiable outputs saved, for backwards that go through them one by one.

    Eager PyTorch has nodes of its own behind each output; here one node is behind all of them, and
    PyTorch frees what it saved after the first backward.  `needed`: for each output the places of
    the saved values that its gradient reads, which must not have been written to since.  `shared`: for each
    output the places of those that no backward can go through after one through it, its own among them.
    """

    def __init__(
        self, saved: Sequence[torch.Tensor], needed: Sequence[Sequence[int]], shared: Sequence[Sequence[int]]
    ) -> None:
        self._saved: Sequence[torch.Tensor] | None = saved
        self._versions = [t._version for t in saved]
        self._needed, self._shared = needed, shared
        self._gone: set[int] = set()

    def check(self, absent: Sequence[bool]) -> None:
        """Raise where a backward goes through an output after another that left nothing for it."""
        if self._saved is None or not self._gone.isdisjoint(_given(absent)):
            raise RuntimeError(AGAIN)

    @property
    def is_over(self) -> bool:
        """Whether no backward can follow."""
        return self._saved is None

    def again(self, absent: Sequence[bool], error: RuntimeError) -> Sequence[torch.Tensor]:
        """The saved values, where PyTorch gave `error` instead, for the outputs that are not `absent`."""
        given = _given(absent)
        if self._saved is None or not self._gone.isdisjoint(given):
            raise error
        for at in {at for i in given for at in self._needed[i]}:
            if self._saved[at]._version != self._versions[at]:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an inplace operation"
                ) from error
        return self._saved

    def passed(self, absent: Sequence[bool]) -> None:
        """A backward that does not retain the graph goes through the outputs that are not `absent`; let go of what
        was saved where none can go through another any more."""
        self._gone.update(*(self._shared[i] for i in _given(absent)))
        if len(self._gone) == len(self._shared):
            self._saved = None


def _given(absent: Sequence[bool]) -> list[int]:
    return [i for i, is_absent in enumerate(absent) if not is_absent]


_NAMES: dict[str, Any] = {
    "torch": torch,
    "below_autograd": torch._C._AutoDispatchBelowADInplaceOrView,
    "without_autocast": torch._C._DisableAutocast,
    "transforms_are_active": torch._C._are_functorch_transforms_active,
    "forward_ad": torch.autograd.forward_ad,
    "is_grad_enabled": torch.is_grad_enabled,
    "is_anomaly_enabled": torch.is_anomaly_enabled,
    "has_memory": has_memory,
    "graph_is_retained": graph_is_retained,
    "unchanged": unchanged,
    "unheard": unheard,
    "share_memory": share_memory,
    "laid_out": laid_out,
    "dense": dense,
    "kinds": kinds,
    "saved_tensors_hooks": _saved_tensors_hooks,
    "Kept": Kept,
    "freed": freed,
    "BadIndex": BadIndex,
    "NotDrawn": NotDrawn,
}
"""What the text may name besides its graphs, eager operators and constants."""
