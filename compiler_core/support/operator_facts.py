"""What is known of PyTorch's operators: which draw random numbers, which write, which show memory of their argument."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx

from compiler_core.support import opaque_ops

aten = torch.ops.aten

OF_FIRST_TYPE = (aten.huber_loss.default, aten.soft_margin_loss.default)
"""Losses of which eager's kernels make results of the first argument's type."""


def without_reduced(
    norm: torch.Tensor, order: Any = 2, dim: Sequence[int] | None = None, keepdim: bool = False, **_: Any
) -> torch.Tensor:
    """A norm without the dimensions that it reduces: PyTorch 2.11 keeps those of one element."""
    return norm if keepdim else norm.squeeze(tuple(dim or range(norm.dim())))


def is_random(node: fx.Node) -> bool:
    """Whether the operator draws numbers; attention without dropout is marked as if it did, and does not."""
    target = node.target
    if opaque_ops.operator_of(node) is not None:
        return opaque_ops.draws(node)
    if not isinstance(target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    names = [a.name for a in target._schema.arguments]
    given: dict[str, fx.node.Argument] = dict(zip(names, node.args, strict=False)) | node.kwargs
    return bool("dropout_p" not in names or given.get("dropout_p", 0.0) != 0.0)


def is_pure(node: fx.Node) -> bool:
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and not target._schema.is_mutable and not is_random(node)


def is_view(node: fx.Node) -> bool:
    """The operator shows memory of its first argument (an element of such a tuple does as well)."""
    target = node.target
    if target is aten._unsafe_view.default:
        return True  # its schema says otherwise: eager may forget that the two share memory, we may not
    if isinstance(target, torch._ops.OpOverload):
        return any(r.alias_info is not None and not r.alias_info.is_write for r in target._schema.returns)
    return getattr(target, "__name__", "") == "getitem" and isinstance(node.args[0], fx.Node) and is_view(node.args[0])


def view_base(node: fx.Node) -> fx.Node:
    """The node that owns the memory that `node` shows."""
    while is_view(node):
        node = view_source(node)
    return node


def view_source(view: fx.Node) -> fx.Node:
    """What a view operation shows memory of."""
    source = view.args[0]
    assert isinstance(source, fx.Node)
    return source
