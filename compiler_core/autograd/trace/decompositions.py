"""Decompositions used while tracing: big operations into few small ones.

An operation is taken apart when its parts are pointwise, reductions or views: fusion puts them
together again into one kernel, over as many of their neighbours as it can.  What is at heart a
matrix product, a convolution, a sort, an index or a random draw stays whole and is called.

Most are PyTorch's own.  Ours replace those that would draw other random numbers than eager
does, or that end in a scatter where a comparison with an index will do.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import get_decompositions

from compiler_core.support.operator_facts import OF_FIRST_TYPE, without_reduced

aten = torch.ops.aten
Decomposition = Callable[..., Any]

OF_FLOATS = (
    # activations and their gradients
    *("gelu", "gelu_backward", "silu", "silu_backward", "sigmoid_backward", "tanh_backward"),
    *("elu", "elu_backward", "celu", "selu", "leaky_relu", "leaky_relu_backward", "relu6", "threshold"),
    *("hardtanh", "hardtanh_backward", "hardsigmoid", "hardsigmoid_backward", "hardswish", "hardswish_backward"),
    *("softplus", "softplus_backward", "mish", "mish_backward", "log_sigmoid_forward", "log_sigmoid_backward"),
    *("glu", "glu_backward", "_prelu_kernel", "_prelu_kernel_backward", "hardshrink", "softshrink"),
    # rows that are normalised
    *("_softmax", "_softmax_backward_data", "_log_softmax", "_log_softmax_backward_data", "logsumexp"),
    *("native_layer_norm", "native_layer_norm_backward", "native_group_norm", "native_group_norm_backward"),
    *("_native_batch_norm_legit_functional", "_native_batch_norm_legit_no_training", "_native_batch_norm_legit"),
    *("native_batch_norm", "native_batch_norm_backward", "_fused_rms_norm", "_fused_rms_norm_backward"),
    *("_batch_norm_with_update_functional", "batch_norm_backward", "cudnn_batch_norm", "cudnn_batch_norm_backward"),
    *("norm",),
    # losses
    *("mse_loss", "smooth_l1_loss", "nll_loss_forward"),
    # arithmetic in several steps
    *("addcdiv", "lerp", "frac", "logaddexp", "std", "std_mean"),
)
"""Names of operations of ``torch.ops.aten`` for which PyTorch's decomposition is taken where a tensor is of floats;
whole numbers are left to eager's kernels, most of which raise."""

OF_ALL = (
    # arithmetic in several steps
    *("addcmul", "nan_to_num", "heaviside", "logit", "deg2rad", "rad2deg"),
    *("sinc", "fill", "isneginf", "isposinf", "trace"),
    # writes to a part
    *("slice_backward", "select_backward"),
)
"""Names of those for which it is always taken."""

OURS: dict[torch._ops.OpOverload, Decomposition] = {}


def table() -> dict[torch._ops.OpOverload, Decomposition]:
    """What `make_fx` takes as its `decomposition_table`."""
    return dict(_table())


@functools.cache
def _table() -> dict[torch._ops.OpOverload, Decomposition]:
    floats = {op: _of_floats(rule) for op, rule in _pytorchs(OF_FLOATS).items()}
    return floats | _pytorchs(OF_ALL) | OURS


def _pytorchs(names: Sequence[str]) -> dict[torch._ops.OpOverload, Decomposition]:
    # a name that this PyTorch does not have is no decomposition that it needs
    packets = [getattr(aten, name) for name in names if hasattr(aten, name)]
    return {op: rule for op, rule in get_decompositions(packets).items() if isinstance(op, torch._ops.OpOverload)}


def _of_floats(rule: Decomposition) -> Decomposition:
    @functools.wraps(rule)
    def decompose(*args: Any, **kwargs: Any) -> Any:
        given = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
        return rule(*args, **kwargs) if any(map(torch.is_floating_point, given)) else NotImplemented

    return decompose


def decomposes(*targets: torch._ops.OpOverload) -> Callable[[Decomposition], Decomposition]:
    """Take the decorated function for `targets`; NotImplemented from it leaves the call whole."""

    def register(rule: Decomposition) -> Decomposition:
        OURS.update(dict.fromkeys(targets, rule))
        return rule

    return register


@decomposes(aten.linalg_vector_norm.default)
def vector_norm(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    if not x.is_floating_point():
        return NotImplemented
    made = _as_pytorch(aten.linalg_vector_norm.default, x, *args, **kwargs)
    return without_reduced(made, *args, **kwargs) if made.dim() == x.dim() else made


@decomposes(aten.native_dropout.default)
def native_dropout(x: torch.Tensor, p: float, train: bool | None) -> Any:
    """Draws what eager's kernel for the CPU draws; CUDA's draws in another order, so stays."""
    if x.device.type != "cpu":
        return NotImplemented
    if train is False or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    if p == 1:
        return torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool)
    kept = torch.bernoulli(x, 1 - p)
    return x * kept * (1 / (1 - p)), kept.to(torch.bool)


@decomposes(aten.native_dropout_backward.default)
def native_dropout_backward(gradient: torch.Tensor, mask: torch.Tensor, scale: float) -> Any:
    """Rounded once, as in eager's kernel."""
    wide = gradient.float() if gradient.dtype in (torch.bfloat16, torch.float16) else gradient
    return (wide * mask * scale).to(gradient.dtype)


@decomposes(aten.var_mean.correction)
def var_mean(
    x: torch.Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Any:
    """In two passes, the second over the distances from the mean, which loses no digits."""
    if not x.is_floating_point():
        return NotImplemented
    half = x.dtype in (torch.bfloat16, torch.float16)
    wide = x.float() if half else x
    dims = list(range(x.dim())) if not dim else [d % max(x.dim(), 1) for d in dim]
    count = math.prod(x.shape[d] for d in dims if x.dim())
    mean = wide.mean(dims, keepdim=True)
    squares = (wide - mean).square().sum(dims, keepdim=keepdim)
    variance = squares / max(count - (1 if correction is None else correction), 0)
    mean = mean if keepdim or not x.dim() else mean.squeeze(dims)
    return variance.to(x.dtype), mean.to(x.dtype)


@decomposes(aten.var.correction)
def var(
    x: torch.Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Any:
    both = var_mean(x, dim, correction=correction, keepdim=keepdim)
    return both if both is NotImplemented else both[0]


@decomposes(aten._to_copy.default)
def to_copy(x: torch.Tensor, *, dtype: torch.dtype | None = None, **rest: Any) -> Any:
    """The real part of complex numbers that become real; the kernel takes the same, and would warn of it."""
    if dtype is None or not x.is_complex() or dtype.is_complex or dtype is torch.bool:
        return NotImplemented
    return aten._to_copy(torch.real(x), dtype=dtype, **rest)


@decomposes(aten.copy.default)
def copy(x: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> Any:
    """The same."""
    if not source.is_complex() or x.is_complex() or x.dtype is torch.bool:
        return NotImplemented
    return aten.copy(x, torch.real(source), non_blocking)


def _as_pytorch(op: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """`op` taken apart as PyTorch does."""
    return get_decompositions([op])[op](*args, **kwargs)


def in_type_of_first(op: torch._ops.OpOverload) -> None:
    """Take `op`, a loss, as PyTorch takes it apart, but for the type of the result."""

    @decomposes(op)
    def loss(x: torch.Tensor, target: torch.Tensor, *args: Any) -> Any:
        wide = torch.result_type(x, target)
        if not _fits(wide, x.dtype):
            return NotImplemented
        return _as_pytorch(op, x.to(wide), target.to(wide), *args).to(x.dtype)


for _loss in OF_FIRST_TYPE:
    in_type_of_first(_loss)


def _fits(dtype: torch.dtype, result: torch.dtype) -> bool:
    """Whether eager's kernel, which is left to raise where it has to, makes a `result` from what is of `dtype`."""
    return dtype.is_floating_point and torch.can_cast(dtype, result)


def _of_one_type(*tensors: torch.Tensor) -> bool:
    return len({t.dtype for t in tensors}) == 1


def where_types_agree(op: torch._ops.OpOverload) -> None:
    """Tensors of several types are left to eager's kernel, which raises."""

    def rule(gradient: torch.Tensor, x: torch.Tensor, target: torch.Tensor, *args: Any) -> Any:
        if not (_of_one_type(gradient, x, target) and gradient.is_floating_point()):
            return NotImplemented
        return _as_pytorch(op, gradient, x, target, *args)

    decomposes(op)(rule)


where_types_agree(aten.huber_loss_backward.default)
where_types_agree(aten.mse_loss_backward.default)


@decomposes(aten.smooth_l1_loss_backward.default)
def smooth_l1_loss_backward(gradient: torch.Tensor, x: torch.Tensor, target: torch.Tensor, *args: Any) -> Any:
    """Where the distance is NaN, so is the gradient; PyTorch's takes its sign, which is 0."""
    made = _as_pytorch(aten.smooth_l1_loss_backward.default, gradient, x, target, *args)
    return torch.where((x - target).isnan(), math.nan, made)


@decomposes(aten.binary_cross_entropy.default)
def binary_cross_entropy(x: torch.Tensor, target: torch.Tensor, *args: Any) -> Any:
    """Eager's kernel raises where an element lies beyond 0 and 1 (on a CPU), which only a look at it tells, and where
    the two are not of one type."""
    if x.device.type == "cpu" or not (_of_one_type(x, target) and x.dtype.is_floating_point):
        return NotImplemented
    return _as_pytorch(aten.binary_cross_entropy.default, x, target, *args)


@decomposes(aten.binary_cross_entropy_backward.default)
def binary_cross_entropy_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = 1,
) -> Any:
    """Every step in the type of the tensors, as in eager's kernel."""
    if not _of_one_type(gradient, x, target):
        return NotImplemented
    least = 0.0 if x.dtype is torch.float16 else 1e-12  # as a float16
    each = gradient * (x - target) / ((1 - x) * x).clamp(min=least)
    if weight is not None:
        each = each * weight
    return (each / x.numel() if reduction == 1 else each).to(x.dtype)


@decomposes(aten.binary_cross_entropy_with_logits.default)
def binary_cross_entropy_with_logits(x: torch.Tensor, target: torch.Tensor, *args: Any) -> Any:
    """As PyTorch takes it apart; eager, which writes into 1 - target, raises for some types."""
    if not x.dtype.is_floating_point or not _fits(torch.result_type(x, target), target.dtype):
        return NotImplemented
    return _as_pytorch(aten.binary_cross_entropy_with_logits.default, x, target, *args)


@decomposes(aten.xlogy.Tensor, aten.xlogy.Scalar_Self, aten.xlogy.Scalar_Other)
def xlogy(x: Any, y: Any) -> Any:
    """Rounded to the common type before, between and after, as in eager's kernel."""
    dtype = torch.result_type(x, y)
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    device = x.device if isinstance(x, torch.Tensor) else y.device
    x, y = (
        each.to(dtype) if isinstance(each, torch.Tensor) else torch.full((), each, dtype=dtype, device=device)
        for each in (x, y)
    )
    return torch.where(y.isnan(), math.nan, torch.where(x == 0, 0, x * y.log()))


@decomposes(aten.max.dim)
def max_dim(x: torch.Tensor, dim: int, keepdim: bool = False) -> Any:
    """The first of the greatest elements, or of the NaNs; on an empty tensor eager raises."""
    return (x.amax(dim, keepdim), x.argmax(dim, keepdim)) if x.numel() and x.dtype is not torch.bool else NotImplemented


@decomposes(aten.min.dim)
def min_dim(x: torch.Tensor, dim: int, keepdim: bool = False) -> Any:
    return (x.amin(dim, keepdim), x.argmin(dim, keepdim)) if x.numel() and x.dtype is not torch.bool else NotImplemented


@decomposes(aten.nll_loss_backward.default)
def nll_loss_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: torch.Tensor,
) -> Any:
    """The gradient reaches one class of each row: the one whose index equals the target."""
    if x.dim() != 2:
        return NotImplemented
    mean, none = reduction == 1, reduction == 0
    each = gradient / total_weight if mean else gradient
    column = each.unsqueeze(1) if none else each
    target = target.unsqueeze(1)
    if weight is not None:
        column = column * weight.unsqueeze(0)
    hit = (torch.arange(x.shape[1], device=x.device) == target) & (target != ignore_index)
    return torch.where(hit, -column, torch.zeros((), dtype=x.dtype, device=x.device))


def in_float(op: torch._ops.OpOverload, places: Sequence[int]) -> None:
    """Take `op`, which adds to memory, in float32 where its tensors at `places` are of a half type."""

    @decomposes(op)
    def add_in_float(*args: Any, **kwargs: Any) -> Any:
        dtype = args[places[0]].dtype
        if dtype not in (torch.bfloat16, torch.float16):
            return NotImplemented
        wide = [a.float() if at in places else a for at, a in enumerate(args)]
        return op(*wide, **kwargs).to(dtype)


in_float(aten.embedding_dense_backward.default, [0])
in_float(aten.scatter_add.default, [0, 3])
in_float(aten.index_add.default, [0, 3])


@decomposes(aten.index_put.default, aten._unsafe_index_put.default)
def index_put(x: torch.Tensor, indices: Sequence[Any], values: torch.Tensor, accumulate: bool = False) -> Any:
    if not accumulate or x.dtype not in (torch.bfloat16, torch.float16):
        return NotImplemented
    return aten.index_put(x.float(), indices, values.float(), True).to(x.dtype)
