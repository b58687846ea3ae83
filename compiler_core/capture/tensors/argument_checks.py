"""Checks of arguments that eager's kernels make and PyTorch's fake ones do not.

Without them a kernel of ours could read behind a tensor that is smaller than the operator's other arguments.  What they
raise breaks the graph, and eager's kernel raises its own error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from compiler_core.torch_private import OpOverload

aten = torch.ops.aten


def _same_shape(written: torch.Tensor, source: torch.Tensor) -> None:
    if written.shape != source.shape:
        raise RuntimeError(f"a tensor of shape {tuple(source.shape)} is written to one of shape {tuple(written.shape)}")


def _select(x: torch.Tensor, dim: int, index: int) -> None:
    size = x.size(dim)
    if isinstance(index, int) and isinstance(size, int) and not -size <= index < size:  # before PyTorch 2.13
        raise IndexError(f"index {index} of a dimension of {size}")


def _select_scatter(x: torch.Tensor, source: torch.Tensor, dim: int, index: int) -> None:
    _select(x, dim, index)
    _same_shape(x.select(dim, index), source)


def _slice_scatter(x: torch.Tensor, source: torch.Tensor, *part: Any, **named: Any) -> None:
    _same_shape(aten.slice.Tensor(x, *part, **named), source)


def _soft_margin_loss(x: torch.Tensor, target: torch.Tensor, *_: Any) -> None:
    _same_shape(x, x + target)


def _softmax_gradient(gradient: torch.Tensor, result: torch.Tensor, *_: Any) -> None:
    _same_shape(gradient, result)
    if gradient.dtype != result.dtype:
        raise RuntimeError(f"a gradient of type {gradient.dtype} for a result of type {result.dtype}")


def _index_select(x: torch.Tensor, dim: int, index: torch.Tensor) -> None:
    if index.dim() > 1 or index.dtype not in (torch.int32, torch.int64):
        raise IndexError(f"an index of {index.dim()} dimensions and type {index.dtype}")


def _index_put(x: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor, *_: Any) -> None:
    if all(index is None or index.dtype not in (torch.bool, torch.uint8) for index in indices):
        values.expand(aten.index.Tensor(x, indices).shape)


def _batch_norm(x: torch.Tensor, weight: Any, bias: Any, mean: Any, variance: Any, *_: Any) -> None:
    if any(isinstance(each, torch.Tensor) and each.dim() != 1 for each in (mean, variance)):
        raise RuntimeError("statistics that are no vectors")


def _dropout_gradient(gradient: torch.Tensor, mask: torch.Tensor, *_: Any) -> None:
    if torch.promote_types(gradient.dtype, mask.dtype) != gradient.dtype:
        raise RuntimeError(f"a mask of type {mask.dtype} for a gradient of type {gradient.dtype}")


def _arange(*_: Any, dtype: torch.dtype | None = None, **named: Any) -> None:
    if dtype is torch.bool:
        raise NotImplementedError("a range of booleans")


def _no_booleans(*args: Any, **_: Any) -> None:
    if any(isinstance(arg, torch.Tensor) and arg.dtype is torch.bool for arg in args):
        raise RuntimeError("a boolean tensor")


CHECKS: dict[OpOverload, Callable[..., None]] = {
    aten.select.int: _select,
    aten.select_copy.int: _select,
    aten.select_scatter.default: _select_scatter,
    aten.slice_scatter.default: _slice_scatter,
    aten.soft_margin_loss.default: _soft_margin_loss,
    aten._softmax_backward_data.default: _softmax_gradient,
    aten._log_softmax_backward_data.default: _softmax_gradient,
    aten.index_select.default: _index_select,
    aten.index_put.default: _index_put,
    aten.index_put_.default: _index_put,
    aten._index_put_impl_.default: _index_put,
    aten.native_batch_norm.default: _batch_norm,
    aten._native_batch_norm_legit.default: _batch_norm,
    aten._native_batch_norm_legit_no_training.default: _batch_norm,
    aten._batch_norm_with_update.default: _batch_norm,
    aten._batch_norm_no_update.default: _batch_norm,
    aten.native_dropout_backward.default: _dropout_gradient,
    aten.arange.default: _arange,
    aten.arange.start: _arange,
    aten.arange.start_step: _arange,
    aten.rsub.Tensor: _no_booleans,
    aten.rsub.Scalar: _no_booleans,
    aten.trace.default: _no_booleans,
}
"""The checks, which are called with fake tensors."""
