"""Decompositions that are used while tracing: large operators into a few small ones.

An operator is decomposed if its parts are pointwise, reductions or views: fusion combines them into one kernel, with as
many of their neighbours as possible.  An operator that is essentially a matrix product, a convolution, a sort, an
indexing or a random draw is not decomposed, and PyTorch's kernel is called.

Most decompositions are PyTorch's.  Ours replace those that would draw other random numbers than eager does, round
differently from eager's kernels, or end in a scatter where a comparison with an index is enough.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from compiler_core.autograd.trace import patches
from compiler_core.support.fx_symbols import hint
from compiler_core.support.node_facts import squeeze_reduced_dims
from compiler_core.support.operators import Fact, like_argument, operators_with
from compiler_core.support.tensors import HALF_TYPES
from compiler_core.torch_private import OpOverload, disable_current_modes, get_decompositions, suggest_memory_format

aten = torch.ops.aten
Decomposition = Callable[..., Any]

NONE, MEAN = 0, 1
"""Reductions of losses, as operators number them."""
FLOAT_ONLY = (
    # activations and their gradients
    *("gelu", "gelu_backward", "silu", "silu_backward", "sigmoid_backward"),
    *("elu", "elu_backward", "celu", "selu", "leaky_relu", "leaky_relu_backward", "relu6", "threshold"),
    *("hardtanh", "hardtanh_backward", "hardswish_backward"),
    *("softplus", "softplus_backward", "mish", "mish_backward", "log_sigmoid_forward", "log_sigmoid_backward"),
    *("glu", "_prelu_kernel", "_prelu_kernel_backward", "hardshrink", "softshrink"),
    # rows that are normalised
    *("_softmax", "_safe_softmax", "_log_softmax", "_log_softmax_backward_data", "logsumexp"),
    *("native_layer_norm", "native_layer_norm_backward", "native_group_norm", "native_group_norm_backward"),
    *("_native_batch_norm_legit_functional", "_native_batch_norm_legit_no_training", "_native_batch_norm_legit"),
    *("native_batch_norm", "native_batch_norm_backward", "_fused_rms_norm", "_fused_rms_norm_backward"),
    *("_batch_norm_with_update_functional", "batch_norm_backward", "cudnn_batch_norm", "cudnn_batch_norm_backward"),
    *("norm",),
    # losses
    *("mse_loss", "smooth_l1_loss"),
    # composed arithmetic
    *("addcdiv", "lerp", "frac", "logaddexp", "std", "std_mean"),
)
"""Names in ``torch.ops.aten`` of operators that are decomposed as PyTorch does if an argument has a floating-point
dtype and none a complex one.  Others are left to eager's kernels, most of which raise an error."""

ALL_DTYPES = (
    # composed arithmetic
    *("nan_to_num", "heaviside", "logit", "deg2rad", "rad2deg"),
    *("sinc", "fill", "isneginf", "isposinf", "trace"),
    # parts, and writes to them
    *("unsafe_split", "unsafe_split_with_sizes", "slice_backward", "select_backward"),
)
"""Names of the operators that are decomposed for all dtypes."""

OVERRIDES: dict[OpOverload, Decomposition] = {}
"""Our own decompositions."""


def decomposition_table() -> dict[OpOverload, Decomposition]:
    """Returns the `decomposition_table` argument of `make_fx`."""
    return dict(_table())


@functools.cache
def _table() -> dict[OpOverload, Decomposition]:
    floats = {op: _for_floats_only(rule) for op, rule in _pytorch_decompositions(FLOAT_ONLY).items()}
    return floats | _pytorch_decompositions(ALL_DTYPES) | _of_lists() | OVERRIDES


def _pytorch_decompositions(names: Sequence[str]) -> dict[OpOverload, Decomposition]:
    # this PyTorch needs no decomposition of a name that it does not have
    packets = [getattr(aten, name) for name in names if hasattr(aten, name)]
    return {op: rule for op, rule in get_decompositions(packets).items() if isinstance(op, OpOverload)}


def _for_floats_only(rule: Decomposition) -> Decomposition:
    @functools.wraps(rule)
    def decompose(*args: Any, **kwargs: Any) -> Any:
        given = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
        if any(map(torch.is_complex, given)) or not any(map(torch.is_floating_point, given)):
            return NotImplemented
        return rule(*args, **kwargs)

    return decompose


def _of_lists() -> dict[OpOverload, Decomposition]:
    """Returns decompositions of the ``_foreach`` operators: one operation for each tensor of the lists."""
    names = [n for n in dir(torch) if n.startswith("_foreach_") and not n.endswith("_")]
    packets = [getattr(aten, name) for name in (*names, "_foreach_copy", "_foreach_zero")]
    operators = (getattr(p, overload) for p in packets for overload in p.overloads() if not overload.endswith("out"))
    return {op: functools.partial(_for_each, op) for op in operators}


def _for_each(op: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Calls the function of `op` for each tensor; arguments that are no lists are the same for all."""
    name = op._opname.removeprefix("_foreach_")
    function = _OF_LISTS.get((name, op._overloadname)) or _OF_LISTS.get(name) or getattr(torch, name, None)
    if function is None:
        return NotImplemented
    given = dict(zip((a.name for a in op._schema.arguments), args, strict=False)) | kwargs
    count = next(len(value) for value in given.values() if isinstance(value, list | tuple))
    by_name = {"scalars": "value", "value": "value", "alpha": "alpha", "dtype": "dtype"}
    named = {n: v for n, v in given.items() if n in by_name and ("addc" in name or n in ("alpha", "dtype"))}
    if any(isinstance(value, torch.Tensor) and value.dim() for value in named.values()):
        return NotImplemented  # numbers in a tensor

    def column(value: Any) -> Sequence[Any]:
        return value if isinstance(value, list | tuple) else [value] * count

    rows = zip(*(column(value) for name, value in given.items() if name not in named), strict=True)
    keywords = {by_name[name]: column(value) for name, value in named.items()}
    return [function(*row, **{name: values[i] for name, values in keywords.items()}) for i, row in enumerate(rows)]


_OF_LISTS: dict[Any, Callable[..., Any]] = {
    "norm": torch.linalg.vector_norm,
    "zero": torch.zeros_like,
    "copy": aten.copy.default,
    "max": torch.amax,
    **{("maximum", overload): torch.clamp_min for overload in ("Scalar", "ScalarList")},
    **{("minimum", overload): torch.clamp_max for overload in ("Scalar", "ScalarList")},
}
"""The functions of ``_foreach`` operators that are not called like them, by name, or by name and overload."""


def register_decomposition(*targets: OpOverload) -> Callable[[Decomposition], Decomposition]:
    """Registers the decorated function as decomposition of `targets`.  It returns NotImplemented for calls that it does
    not decompose."""

    def register(rule: Decomposition) -> Decomposition:
        OVERRIDES.update(dict.fromkeys(targets, rule))
        return rule

    return register


@register_decomposition(aten.linalg_vector_norm.default)
def vector_norm(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Removes the reduced dimensions, which PyTorch 2.11 keeps if they have one element."""
    if not x.is_floating_point():
        return NotImplemented
    result = _pytorch_decomposition(aten.linalg_vector_norm.default, x, *args, **kwargs)
    return squeeze_reduced_dims(result, *args, **kwargs) if result.dim() == x.dim() else result


@register_decomposition(aten._weight_norm_interface.default)
def weight_norm(v: torch.Tensor, g: torch.Tensor, dim: int = 0) -> Any:
    """Returns `v` scaled to the norms `g`, and its norms before; computed in float32 for half types, as by eager's
    kernel.  The kernel for the last dimension takes fifty times as long as one of ours on a GPU."""
    if not v.is_floating_point() or not v.dim() == g.dim() > 1 or not _same_dtype(v, g):
        return NotImplemented
    wide = v.float() if v.dtype in HALF_TYPES else v
    norm = wide.square().sum([d for d in range(v.dim()) if d != dim], keepdim=True).sqrt()
    return (wide * (g / norm)).to(v.dtype).contiguous(), norm


@register_decomposition(aten._weight_norm_interface_backward.default)
def weight_norm_backward(gradient: torch.Tensor, v: torch.Tensor, g: torch.Tensor, norm: torch.Tensor, dim: int) -> Any:
    """Returns the gradients of `v` and `g`."""
    if not v.is_floating_point() or not v.dim() == g.dim() > 1 or not _same_dtype(gradient, v, g):
        return NotImplemented
    wide = v.float() if v.dtype in HALF_TYPES else v
    along = (gradient * wide).sum([d for d in range(v.dim()) if d != dim], keepdim=True)
    of_v = g / norm * (gradient - wide * (along / norm.square()))
    return of_v.to(v.dtype).contiguous(), (along / norm).to(g.dtype)


register_decomposition(aten.convolution.default)(patches.convolution)
register_decomposition(aten.convolution_backward.default)(patches.convolution_backward)


@register_decomposition(aten.native_dropout.default)
def native_dropout(x: torch.Tensor, p: float, train: bool | None) -> Any:
    """Draws what eager's CPU kernel draws.  The CUDA kernel draws in another order, and is called."""
    if x.device.type != "cpu":
        return NotImplemented
    if train is False or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    if p == 1:
        return torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool)
    kept = torch.bernoulli(x, 1 - p)
    return x * kept * (1 / (1 - p)), kept.to(torch.bool)


@register_decomposition(aten.rrelu_with_noise_functional.default)
def rrelu(x: torch.Tensor, *args: Any) -> Any:
    """Makes the result row-major, as that of the operator which it stands for; later draws depend on its order."""
    return NotImplemented if x.is_contiguous() else aten.rrelu_with_noise_functional(x.contiguous(), *args)


@register_decomposition(aten.native_dropout_backward.default)
def native_dropout_backward(gradient: torch.Tensor, mask: torch.Tensor, scale: float) -> Any:
    """Rounds once, as eager's kernel does, which on a GPU keeps the memory format."""
    wide = gradient.float() if gradient.dtype in HALF_TYPES else gradient
    result = (wide * mask * scale).to(gradient.dtype)
    is_cpu = gradient.device.type == "cpu"
    return result if is_cpu else result.contiguous(memory_format=suggest_memory_format(gradient))


@register_decomposition(aten.tanh_backward.default)
def tanh_backward(gradient: torch.Tensor, y: torch.Tensor) -> Any:
    """Rounds half types after each operation on a GPU, as eager's kernel does there."""
    if y.is_complex():
        return NotImplemented
    if y.device.type == "cuda" and y.dtype in HALF_TYPES:
        return gradient * (1 - y * y)
    return _pytorch_decomposition(aten.tanh_backward.default, gradient, y)


@register_decomposition(aten.glu_backward.default)
def glu_backward(gradient: torch.Tensor, x: torch.Tensor, dim: int) -> Any:
    """Rounds the gates of half types on the CPU, as eager's kernel does there."""
    if not x.is_floating_point():
        return NotImplemented
    if x.device.type != "cpu" or x.dtype not in HALF_TYPES:
        return _pytorch_decomposition(aten.glu_backward.default, gradient, x, dim)
    values, gates = x.chunk(2, dim)
    opened = gates.sigmoid()
    wide = opened.float()
    of_gates = ((1 - wide) * wide * values * gradient.float()).to(x.dtype)
    return torch.cat([opened * gradient, of_gates], dim)


@register_decomposition(aten.div.Tensor_mode)
def div_mode(x: torch.Tensor, y: Any, *, rounding_mode: str | None = None) -> Any:
    """Rounds the quotient of half types before it is truncated, as eager's kernels do if the divisor is no number."""
    if rounding_mode != "trunc" or not isinstance(y, torch.Tensor) or torch.result_type(x, y) not in HALF_TYPES:
        return NotImplemented
    is_number = y.device.type == "cpu" and all(size == 1 for size in y.shape)
    return NotImplemented if is_number else torch.trunc(x / y)


@register_decomposition(aten.var_mean.correction)
def var_mean(
    x: torch.Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Any:
    """Computes the variance in two passes, the second over the distances from the mean, which loses no precision."""
    if not x.is_floating_point():
        return NotImplemented
    half = x.dtype in HALF_TYPES
    wide = x.float() if half else x
    dims = list(range(x.dim())) if not dim else [d % max(x.dim(), 1) for d in dim]
    count = math.prod(x.shape[d] for d in dims if x.dim())
    mean = wide.mean(dims, keepdim=True)
    squares = (wide - mean).square().sum(dims, keepdim=keepdim)
    variance = squares / max(count - (1 if correction is None else correction), 0)
    mean = mean if keepdim or not x.dim() else mean.squeeze(dims)
    return variance.to(x.dtype), mean.to(x.dtype)


@register_decomposition(aten.var.correction)
def var(*args: Any, **kwargs: Any) -> Any:
    """Returns the variance that `var_mean` computes."""
    both = var_mean(*args, **kwargs)
    return both if both is NotImplemented else both[0]


@register_decomposition(aten._to_copy.default)
def to_copy(x: torch.Tensor, *, dtype: torch.dtype | None = None, **rest: Any) -> Any:
    """Casts the real part of complex numbers to a real dtype, as the kernel does, but without its warning."""
    if not isinstance(x, torch.Tensor):  # torch.func casts Python numbers so
        return torch.tensor(x, dtype=dtype, device=rest.get("device"))
    if dtype is None or not x.is_complex() or dtype.is_complex or dtype is torch.bool:
        return NotImplemented
    return aten._to_copy(torch.real(x), dtype=dtype, **rest)


@register_decomposition(aten.copy.default)
def copy(x: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> Any:
    """Copies the real part of complex numbers to a real tensor, as the kernel does, but without its warning."""
    if not source.is_complex() or x.is_complex() or x.dtype is torch.bool:
        return NotImplemented
    return aten.copy(x, torch.real(source), non_blocking)


@register_decomposition(aten.cat.default)
def cat(tensors: Sequence[torch.Tensor], dim: int = 0) -> Any:
    """Leaves out empty tensors, such as a cache before its first tokens: our kernels read none."""
    full = [t for t in tensors if not any(isinstance(size, int) and size == 0 for size in t.shape)]
    if len(full) in (0, len(tensors)) or not _same_dtype(*tensors):
        return NotImplemented
    if any(suggest_memory_format(t) is not torch.contiguous_format for t in tensors):
        return NotImplemented  # the empty ones take part in the choice of the result's format
    return aten.cat(full, dim)


@register_decomposition(aten.repeat.default)
def repeat(x: torch.Tensor, repeats: Sequence[int]) -> Any:
    """Copies a view with a dimension of stride 0 before each."""
    shape = [1] * (len(repeats) - x.dim()) + list(x.shape)
    for _ in range(len(repeats) - x.dim()):
        x = x.unsqueeze(0)
    for d in reversed(range(len(repeats))):
        x = x.unsqueeze(d)
    spread = x.expand([size for pair in zip(repeats, shape, strict=True) for size in pair])
    sizes = [count * size for count, size in zip(repeats, shape, strict=True)]
    return spread.clone(memory_format=torch.contiguous_format).view(sizes)


@register_decomposition(aten.pixel_shuffle.default)
def pixel_shuffle(x: torch.Tensor, factor: int) -> Any:
    """Copies a permuted view."""
    if not _is_filled_in_order(x):
        return NotImplemented
    *batch, channels, height, width = x.shape
    divided = x.reshape(*batch, channels // factor**2, factor, factor, height, width)
    moved = divided.movedim((-4, -3), (-3, -1)).clone(memory_format=torch.contiguous_format)
    return moved.view(*batch, channels // factor**2, height * factor, width * factor)


@register_decomposition(aten.pixel_unshuffle.default)
def pixel_unshuffle(x: torch.Tensor, factor: int) -> Any:
    """The inverse of `pixel_shuffle`."""
    if not _is_filled_in_order(x):
        return NotImplemented
    *batch, channels, height, width = x.shape
    divided = x.reshape(*batch, channels, height // factor, factor, width // factor, factor)
    moved = divided.movedim((-3, -1), (-4, -3)).clone(memory_format=torch.contiguous_format)
    return moved.view(*batch, channels * factor**2, height // factor, width // factor)


def _is_filled_in_order(x: torch.Tensor) -> bool:
    """Whether the result has the usual layout; of empty tensors, eager returns another shape."""
    is_empty = any(isinstance(size, int) and size == 0 for size in x.shape)
    return not is_empty and suggest_memory_format(x) is torch.contiguous_format


@register_decomposition(aten.im2col.default)
def im2col(
    x: torch.Tensor, kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> Any:
    """Copies a view of the windows of the padded images."""
    if not x.is_floating_point():
        return NotImplemented
    (high, wide), (down, across) = kernel, dilation
    if any(padding):
        x = aten.constant_pad_nd(x, [padding[1], padding[1], padding[0], padding[0]])
    windows = x.unfold(-2, (high - 1) * down + 1, stride[0]).unfold(-2, (wide - 1) * across + 1, stride[1])
    windows = windows[..., ::down, ::across].movedim((-2, -1), (-4, -3)).clone(memory_format=torch.contiguous_format)
    *batch, channels, _, _, rows, columns = windows.shape
    return windows.view(*batch, channels * high * wide, rows * columns)


@register_decomposition(aten.slice_scatter.default)
def slice_scatter(
    x: torch.Tensor, source: torch.Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    """Writes to one of `step` elements of a dimension that is divided by `step`, so that a kernel need not divide."""
    dim, first, size = dim % x.dim(), start or 0, x.shape[dim]
    if not all(isinstance(number, int) for number in (first, size, step)) or step == 1 or size % step:
        return NotImplemented
    if not 0 <= first < step or source.shape[dim] != size // step:
        return NotImplemented
    divided = x.view([*x.shape[:dim], size // step, step, *x.shape[dim + 1 :]])
    return aten.select_scatter(divided, source, dim + 1, first).flatten(dim, dim + 1)


def _pytorch_decomposition(op: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Applies PyTorch's decomposition of `op`."""
    return _rule_of(op)(*args, **kwargs)


@functools.cache  # PyTorch goes through its whole registry for each operator
def _rule_of(op: OpOverload) -> Decomposition:
    return get_decompositions([op])[op]


def loss_typed_as_self(op: OpOverload, rule: Decomposition) -> Decomposition:
    """Returns the decomposition `rule` of a loss or its gradient, computed in the dtype that the tensors are promoted
    to, with a result of the dtype of the loss's first argument."""

    def loss(*args: Any) -> Any:
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        promoted = [t.dtype for t in tensors if t.dim()] or [t.dtype for t in tensors]
        wide, result = functools.reduce(torch.promote_types, promoted), like_argument(op, args).dtype
        if not _kernel_casts(wide, result) or not _kernel_takes(op, args):
            return NotImplemented
        return rule(*(a.to(wide) if isinstance(a, torch.Tensor) else a for a in args)).to(result)

    return loss


def _kernel_takes(op: OpOverload, args: Sequence[Any]) -> bool:
    """Returns whether eager's kernel takes arguments of these dtypes.  If not, it is called and raises an error.

    Which mixtures a kernel takes differs between devices and between versions of PyTorch.
    """
    if _same_dtype(*(a for a in args if isinstance(a, torch.Tensor))):
        return True
    small = [(a.dtype, min(a.dim(), 1), a.device.type) if isinstance(a, torch.Tensor) else a for a in args]
    return _takes_small(op, *small)


@functools.cache
def _takes_small(op: OpOverload, *args: Any) -> bool:
    """Calls `op` with tensors of one element, given as their dtypes, dimensions and devices."""
    with disable_current_modes(), torch.no_grad():
        given = [_ones(*a) if isinstance(a, tuple) else a for a in args]
        try:
            op(*given)
        except RuntimeError:
            return False
    return True


def _ones(dtype: torch.dtype, dimensions: int, device: str) -> torch.Tensor:
    """Returns a tensor of one element; on the CPU if the graph is compiled for a device that is not here."""
    try:
        return torch.ones((1,) * dimensions, dtype=dtype, device=device)
    except (AssertionError, RuntimeError):
        return torch.ones((1,) * dimensions, dtype=dtype)


def smooth_l1_loss_backward(gradient: torch.Tensor, x: torch.Tensor, target: torch.Tensor, *args: Any) -> Any:
    """Returns NaN where the distance is NaN.  PyTorch's decomposition takes its sign, which is 0."""
    result = _pytorch_decomposition(aten.smooth_l1_loss_backward.default, gradient, x, target, *args)
    return torch.where((x - target).isnan(), math.nan, result)


for _loss in operators_with(Fact.DTYPE_OF_SELF):
    _rule: Decomposition = functools.partial(_pytorch_decomposition, _loss)
    if _loss is aten.smooth_l1_loss_backward.default:
        _rule = smooth_l1_loss_backward
    register_decomposition(_loss)(loss_typed_as_self(_loss, _rule))


def _kernel_casts(dtype: torch.dtype, result: torch.dtype) -> bool:
    """Returns whether eager's kernel casts a result of `dtype` to the dtype `result`.  If not, it is called and raises
    an error."""
    return dtype.is_floating_point and torch.can_cast(dtype, result)


def _same_dtype(*tensors: torch.Tensor) -> bool:
    return len({t.dtype for t in tensors}) == 1


@register_decomposition(aten.lerp.Scalar)
def lerp(start: torch.Tensor, end: torch.Tensor, weight: Any) -> Any:
    """Has three operations where the weight is small, as in optimizers; PyTorch's decides on that in the kernel.

    A symbolic weight that is small gets a guard.  One that is not, as while an average of weights warms up, gets none.
    """
    of_floats = _same_dtype(start, end) and start.dtype in (torch.float32, torch.float64)
    is_small = of_floats and abs(hint(weight)) < 0.5 and abs(weight) < 0.5
    return start + weight * (end - start) if is_small else _lerp_of_floats(start, end, weight)


_lerp_of_floats = _for_floats_only(functools.partial(_pytorch_decomposition, aten.lerp.Scalar))

DECOMPOSED_IF: dict[OpOverload, Callable[..., bool]] = {
    # eager's kernel rounds tensors of several types to the common type first
    aten.addcmul.default: lambda x, *others: not x.is_complex() and _same_dtype(x, *others),
    # eager's kernels raise an error for other types, that of the loss on a CPU also for elements outside 0 to 1
    aten.huber_loss_backward.default: lambda g, x, target, *_: _same_dtype(g, x, target) and g.is_floating_point(),
    aten.binary_cross_entropy.default: lambda x, target, *_: (
        x.device.type != "cpu" and _same_dtype(x, target) and x.is_floating_point()
    ),
    aten._softmax_backward_data.default: lambda g, result, *_: not g.is_cuda or g.dtype is result.dtype,
    aten.nll_loss_forward.default: lambda x, target, *_: (
        x.is_floating_point() and target.dtype in (torch.int64, torch.uint8)
    ),
}
"""When operators are decomposed as PyTorch does; other calls are left to eager's kernels."""


def _decompose_if(op: OpOverload, holds: Callable[..., bool], *args: Any, **kwargs: Any) -> Any:
    return _pytorch_decomposition(op, *args, **kwargs) if holds(*args) else NotImplemented


for _op, _holds in DECOMPOSED_IF.items():
    register_decomposition(_op)(functools.partial(_decompose_if, _op, _holds))


@register_decomposition(aten.binary_cross_entropy_backward.default)
def binary_cross_entropy_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = 1,
) -> Any:
    """Computes every step in the tensors' dtype, as eager's kernel does."""
    if not _same_dtype(gradient, x, target):
        return NotImplemented
    least = 0.0 if x.dtype is torch.float16 else 1e-12  # as a float16
    each = gradient * (x - target) / ((1 - x) * x).clamp(min=least)
    if weight is not None:
        each = each * weight
    return (each / x.numel() if reduction == 1 else each).to(x.dtype)


@register_decomposition(aten.binary_cross_entropy_with_logits.default)
def binary_cross_entropy_with_logits(x: torch.Tensor, target: torch.Tensor, *args: Any) -> Any:
    """Returns a loss of the target's type, because eager writes into ``1 - target``; not decomposed where that raises.

    PyTorch 2.11's decomposition returns the common type.
    """
    if not x.dtype.is_floating_point or not _kernel_casts(torch.result_type(x, target), target.dtype):
        return NotImplemented
    weights, reduction = args[:2], args[2] if len(args) > 2 else MEAN
    loss = _pytorch_decomposition(aten.binary_cross_entropy_with_logits.default, x, target, *weights, reduction=NONE)
    loss = loss.to(target.dtype)
    return loss if reduction == NONE else loss.mean() if reduction == MEAN else loss.sum()


@register_decomposition(aten.xlogy.Tensor, aten.xlogy.Scalar_Self, aten.xlogy.Scalar_Other)
def xlogy(x: Any, y: Any) -> Any:
    """Rounds to the common dtype before and after the steps, as eager's kernels do; on the CPU also between them."""
    dtype = torch.result_type(x, y)
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    device = x.device if isinstance(x, torch.Tensor) else y.device
    x, y = (
        each.to(dtype) if isinstance(each, torch.Tensor) else torch.full((), each, dtype=dtype, device=device)
        for each in (x, y)
    )
    if device.type != "cpu" and dtype in HALF_TYPES:
        x, y = x.float(), y.float()
    return torch.where(y.isnan(), math.nan, torch.where(x == 0, 0, x * y.log())).to(dtype)


SINGLE_SIXTH = 0.1666666716337204
"""A sixth in float32, by which PyTorch's CUDA kernels of hardsigmoid and hardswish multiply in float64 too."""


def register_with_single_sixth(op: OpOverload, decompose: Decomposition) -> None:
    """Registers a decomposition of `op` for float64 on GPUs; elsewhere it is PyTorch's."""

    @register_decomposition(op)
    def choose(*args: torch.Tensor) -> Any:
        if not all(t.is_floating_point() for t in args):
            return NotImplemented
        single = all(t.is_cuda and t.dtype is torch.float64 for t in args)
        return decompose(*args) if single else _pytorch_decomposition(op, *args)


register_with_single_sixth(aten.hardsigmoid.default, lambda x: (x + 3).clamp(0, 6) * SINGLE_SIXTH)
register_with_single_sixth(aten.hardswish.default, lambda x: x * (x + 3).clamp(0, 6) * SINGLE_SIXTH)
register_with_single_sixth(
    aten.hardsigmoid_backward.default, lambda g, x: torch.where((x > -3) & (x < 3), g * SINGLE_SIXTH, 0.0)
)


def _extreme(which: str, x: torch.Tensor, dim: int, keepdim: bool = False) -> Any:
    """Returns the first of the extreme elements, or of the NaNs; eager raises an error for an empty tensor."""
    if not x.numel() or x.dtype is torch.bool:
        return NotImplemented
    return getattr(x, f"a{which}")(dim, keepdim), getattr(x, f"arg{which}")(dim, keepdim)


for _which in ("max", "min"):
    register_decomposition(getattr(aten, _which).dim)(functools.partial(_extreme, _which))


@register_decomposition(aten.nll_loss_backward.default)
def nll_loss_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: torch.Tensor,
) -> Any:
    """Compares indices with the target: the gradient reaches one class of each row, so no scatter is needed."""
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


def register_float_accumulation(op: OpOverload, places: Sequence[int]) -> None:
    """Computes `op`, which accumulates into memory, in float32 if the tensors at the argument indices `places` have
    half precision."""

    @register_decomposition(op)
    def add_in_float(*args: Any, **kwargs: Any) -> Any:
        dtype = args[places[0]].dtype
        if dtype not in HALF_TYPES or any(args[at].dtype is not dtype for at in places):
            return NotImplemented
        wide = [a.float() if at in places else a for at, a in enumerate(args)]
        return op(*wide, **kwargs).to(dtype)


register_float_accumulation(aten.embedding_dense_backward.default, [0])
register_float_accumulation(aten.scatter_add.default, [0, 3])
register_float_accumulation(aten.index_add.default, [0, 3])


@register_decomposition(aten.index_put.default, aten._unsafe_index_put.default)
def index_put(x: torch.Tensor, indices: Sequence[Any], values: torch.Tensor, accumulate: bool = False) -> Any:
    """Accumulates halves in float32, as PyTorch's kernel does: the sum is rounded once."""
    if not accumulate or x.dtype not in HALF_TYPES or values.dtype is not x.dtype:
        return NotImplemented
    return aten.index_put(x.float(), indices, values.float(), True).to(x.dtype)
