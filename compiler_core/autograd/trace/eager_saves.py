"""What eager PyTorch's autograd keeps of a run for its backward.

A later write can tell what was saved: eager raises, or computes with the new values, where it saved what is written
to, and only there.  And a second backward raises where it comes through a node that saved anything.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from compiler_core.support.opaque_ops import Whole


@dataclass(frozen=True)
class EagerSaves:
    """By eager PyTorch, behind the outputs that have a tangent."""

    tensors: tuple[tuple[torch.Tensor, ...], ...] = ()
    """For each tangent, the tensors that were saved behind its output."""
    shared: tuple[tuple[int, ...], ...] = ()
    """For each tangent, the places of those that no backward can come from after one from it, its own among them."""

    @staticmethod
    def of(outputs: Sequence[torch.Tensor]) -> EagerSaves:
        """To be asked before a backward frees what was saved."""
        saved: dict[Any, list[torch.Tensor]] = {}
        behind = [_saving(output, saved) for output in outputs]
        shared = tuple(tuple(j for j, other in enumerate(behind) if not other.isdisjoint(nodes)) for nodes in behind)
        return EagerSaves(tuple(tuple(t for node in nodes for t in saved[node]) for nodes in behind), shared)


def _saving(output: torch.Tensor, saved: dict[Any, list[torch.Tensor]]) -> set[Any]:
    """The nodes behind `output` that saved something; `saved` gets what each node behind it did.

    A write to a part of a tensor keeps the node of the write, whatever that saves.
    """
    work = [torch.autograd.graph.get_gradient_edge(output).node]
    seen = set(work)
    while work:
        node = work.pop()
        if node not in saved:
            saved[node] = list(_saved_by(node))
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                work.append(following)
    return {node for node in seen if saved[node] or _is_whole(node) or node.name().endswith("::CopySlices")}


def _is_whole(node: Any) -> bool:
    """A call of an operator that stays whole keeps autograd's graph of it."""
    return getattr(type(node), "_forward_cls", None) is Whole


def _saved_by(node: Any) -> Iterator[torch.Tensor]:
    kind: Any = type(node)
    for name in _names(kind):
        try:
            value = getattr(node, name)
        except RuntimeError:  # it was written to since: the backward raises, too
            continue
        for each in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(each, torch.Tensor):
                yield each


@functools.cache
def _names(kind: Any) -> tuple[str, ...]:
    """The attributes in which nodes of this kind show what they saved."""
    return tuple(name for name in dir(kind) if name.startswith("_saved_") or name == "saved_tensors")
