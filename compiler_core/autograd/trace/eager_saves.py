"""What eager PyTorch's autograd saves in a run for its backward.

A later write makes a difference where eager saved the written tensor: eager then raises an error, or computes with the
new values.  And a second backward raises an error if it reaches a node that saved anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch

from compiler_core.support.interrupts import safe_point
from compiler_core.support.opaque_ops import OpaqueFunction
from compiler_core.support.tensors import tensors_in

_EIGENVECTORS = frozenset({"LinalgEigBackward0", "LinalgEighBackward0", "LinalgSvdBackward0"})
_OF_LISTS = "Foreach"
_OF_LISTS_SAVING_NOTHING = frozenset(
    f"Foreach{name}"
    for name in (
        *("CeilBackward0", "CloneBackward0", "FloorBackward0", "FracBackward0", "NegBackward0", "RoundBackward0"),
        *("SignBackward0", "TruncBackward0", "LerpBackward0Scalar"),
    )
)
"""Of the operators on lists; their nodes do not show what they saved."""


@dataclass(frozen=True)
class EagerSaves:
    """What eager PyTorch saves behind each output that has a tangent."""

    tensors: tuple[tuple[torch.Tensor, ...], ...] = ()
    """For each tangent, the tensors that were saved behind its output."""
    freed_together: tuple[tuple[int, ...], ...] = ()
    """For each tangent, the indices of the tangents (itself included) that cannot start a backward after this one
    has started one."""
    checking: tuple[str, ...] = ()
    """The nodes whose gradient checks values and may raise, which they do not on fake tensors."""

    @staticmethod
    def of(outputs: Sequence[torch.Tensor]) -> EagerSaves:
        """Collects what is saved behind `outputs`; called before a backward frees it."""
        saved: dict[Any, list[torch.Tensor]] = {}
        behind = [_saving_nodes(output, saved) for output in outputs]
        shared = tuple(tuple(j for j, other in enumerate(behind) if not other.isdisjoint(nodes)) for nodes in behind)
        tensors = tuple(tuple(t for node in nodes for t in saved[node]) for nodes in behind)
        return EagerSaves(tensors, shared, tuple(node.name() for node in saved if _checks_values(node, saved[node])))


def _saving_nodes(output: torch.Tensor, saved: dict[Any, list[torch.Tensor]]) -> set[Any]:
    """Returns the autograd nodes behind `output` that saved something, and adds what each node saved to `saved`.

    A node for a write to a part of a tensor (CopySlices) counts, whatever it saves.
    """
    work = [torch.autograd.graph.get_gradient_edge(output).node]
    seen = set(work)
    while work:
        safe_point()
        node = work.pop()
        if node not in saved:
            saved[node] = list(_saved_by(node))
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                work.append(following)
    return {node for node in seen if saved[node] or _saves_unseen(node)}


def _checks_values(node: Any, saved: Sequence[torch.Tensor]) -> bool:
    """Returns whether the gradient raises for a loss that depends on the phase of complex eigenvectors."""
    return node.name() in _EIGENVECTORS and any(t.is_complex() for t in saved)


def _saves_unseen(node: Any) -> bool:
    """Returns whether the node saves something that its attributes do not show."""
    name = node.name()
    is_of_lists = name.startswith(_OF_LISTS) and name not in _OF_LISTS_SAVING_NOTHING
    return is_of_lists or name.endswith("::CopySlices") or _is_opaque(node)


def _is_opaque(node: Any) -> bool:
    """Returns whether the node is a call of an opaque operator, which keeps an autograd graph."""
    return getattr(type(node), "_forward_cls", None) is OpaqueFunction


def _saved_by(node: Any) -> Iterator[torch.Tensor]:
    kind: Any = type(node)
    for name in _saved_attributes(kind):
        try:
            value = getattr(node, name)
        except RuntimeError:  # it was written to since: the backward raises, too
            continue
        yield from tensors_in(value)


_attributes_by_kind: WeakKeyDictionary[Any, tuple[str, ...]] = WeakKeyDictionary()
"""A user's `torch.autograd.Function` has its own type of node, which must be freed with it."""


def _saved_attributes(kind: Any) -> tuple[str, ...]:
    """Returns the attributes through which nodes of this type show what they saved."""
    found = _attributes_by_kind.get(kind)
    if found is None:
        found = tuple(name for name in dir(kind) if name.startswith("_saved_") or name == "saved_tensors")
        _attributes_by_kind[kind] = found
    return found
