"""Undoes what a graph wrote to its inputs, for a graph that failed and runs again.

Copies of the written inputs are made before the run, since nothing tells beforehand whether an operation will fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from compiler_core.support.recorded_calls import with_recorded_calls
from compiler_core.support.tensors import storage_id, tensors_in
from compiler_core.torch_private import unsafe_set_version_counter


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
    inputs = [n.meta.get("val") for n in graph.graph.nodes if n.op == "placeholder"]
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
            _without_repeats(self.tensor).copy_(_without_repeats(self.copy))
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
    return _without_repeats(tensor).clone()


def _without_repeats(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a view of the tensor's memory without the dimensions of stride 0, which only repeat it."""
    part = tensor.detach()
    for dim in range(part.dim()):
        part = part.narrow(dim, 0, 1) if part.stride(dim) == 0 and part.shape[dim] else part
    return part


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


def versions_of(tensors: Sequence[torch.Tensor]) -> list[int] | None:
    """Returns the ``_version`` of each tensor; None if one is an inference tensor, which has none."""
    try:
        return [tensor._version for tensor in tensors]
    except RuntimeError:
        return None
