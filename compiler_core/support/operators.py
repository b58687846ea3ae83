"""What operators of PyTorch are, one row an operator: what the stages have to know and PyTorch does not tell.

PyTorch's own tags and schemas say which operators are pointwise, random, views or writes: they are asked, and no row
repeats them.  A row with the name of an operator holds for all its overloads that write no ``out=``; one with the name
of an overload adds to it.

Rules that are functions (lowerings, decompositions, checks of arguments) are in their stages.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from enum import Flag, auto
from typing import Any

import torch

from compiler_core.torch_private import OpOverload


class Fact(Flag):
    """Something that may hold for an operator."""

    # errors
    CHECKS_VALUES = auto()
    """Raises an error for some values of its arguments, as an index out of range."""
    CHECKS_ON_REQUEST = auto()
    """Raises one for a matrix without a result if its argument ``check_errors`` is True."""
    DIVIDES = auto()
    """Its CPU kernel raises one for a division of integers by zero."""
    NEEDS_ONE_DTYPE = auto()
    """Raises one for tensors of several dtypes, for which fake tensors do not."""
    NORM = auto()
    """Its CPU kernel raises one for some mixtures of dtypes, for which fake tensors do not."""
    WRITES_STATISTICS = auto()
    """A batch norm whose schema does not say that it updates the running statistics in training."""

    # what eager's kernels return where PyTorch's fake tensors have another layout or dtype
    DTYPE_OF_SELF = auto()
    """The dtype of one argument (`like_argument`), not that which all are promoted to."""
    STRIDES_OF_SELF = auto()
    """The strides of one argument (`like_argument`), unless the result is reduced."""
    CHANNELS_LAST_ON_CPU = auto()
    """On a CPU, channels last if that argument is, else row-major.  Fake interpolations on a GPU also ask whether there
    are many channels."""
    CHANNELS_LAST_ON_CUDA = auto()
    ROW_MAJOR = auto()
    """Row-major, whatever the strides of the arguments are."""
    ROW_MAJOR_ON_CPU = auto()
    ROW_MAJOR_ON_CUDA = auto()
    POINTWISE_STRIDES = auto()
    """The strides that a pointwise operator of its first two arguments has."""
    SCATTER = auto()
    """The strides of the first argument, but dense ones if it is expanded, as fake ones of PyTorch 2.11 are not."""
    LIKE_FIRST = auto()
    """Those of ``torch.empty_like`` of the first argument, if no format is asked for."""
    OWN_ORDER = auto()
    """It is pointwise, and does not choose strides as others do."""
    INDEXED_READ = auto()
    INDEXED_WRITE = auto()
    INTERPOLATION = auto()
    """Its decomposition in Python rounds otherwise than eager's kernels."""
    INTERPOLATION_GRADIENT = auto()
    """PyTorch cannot run it on fake tensors with symbolic sizes."""

    # costs, besides those of pointwise operators and views, which are cheap
    CHEAP = auto()
    """Costs little to compute again, inside of its reader's kernel."""
    REDUCTION = auto()
    EXPENSIVE = auto()
    """A matrix product, convolution or attention."""

    # what it reads
    READS_METADATA = auto()
    """Reads only the size, dtype and strides of its argument."""
    IGNORES_SELF = auto()
    """A gradient that reads only the size and strides of its second argument."""
    READS_ELEMENTS = auto()
    """Reads its argument in a loop over the elements that may contain what makes them, as pointwise operators do."""
    TAKES_CPU_TENSORS = auto()
    """On a GPU it takes some arguments on the CPU, and gives the same result for those on the GPU."""
    TAKES_CPU_NUMBERS = auto()
    """On a GPU it takes a tensor of no dimensions on the CPU as it takes a number: it is not rounded to the type of the
    result first, as one on the GPU is."""

    # what it returns
    CREATION = auto()
    """A tensor made of numbers."""
    UNINITIALISED = auto()
    """A tensor that depends only on the size and dtype of its argument."""
    ZERO_OF_ZEROS = auto()
    """Zeros if all tensors that it takes are zeros."""
    ALIAS = auto()
    """Its argument, in a functional graph."""
    SAME_START = auto()
    """A view with the same first element as its argument."""
    VIEW_IN_ANY_LAYOUT = auto()
    """A view of the same elements for any layout of its argument in which it is valid."""
    ANY_LAYOUT = auto()
    """The same values for any layout of its arguments, as pointwise operators do (but for
    `gpu_rewrites.is_wrong_in_channels_last`)."""


OPERATORS: dict[str, Fact] = {
    # matrix products, convolutions and attention
    "addbmm": Fact.NEEDS_ONE_DTYPE,
    "addmm": Fact.NEEDS_ONE_DTYPE | Fact.EXPENSIVE,
    "_addmm_activation": Fact.EXPENSIVE,
    "addmv": Fact.NEEDS_ONE_DTYPE,
    "baddbmm": Fact.NEEDS_ONE_DTYPE | Fact.EXPENSIVE,
    "bmm": Fact.NEEDS_ONE_DTYPE | Fact.EXPENSIVE,
    "convolution": Fact.NEEDS_ONE_DTYPE | Fact.EXPENSIVE,
    "convolution_backward": Fact.EXPENSIVE,
    "dot": Fact.NEEDS_ONE_DTYPE,
    "linear": Fact.NEEDS_ONE_DTYPE,
    "mm": Fact.NEEDS_ONE_DTYPE | Fact.EXPENSIVE,
    "mv": Fact.NEEDS_ONE_DTYPE,
    "_scaled_dot_product_cudnn_attention": Fact.EXPENSIVE,
    "_scaled_dot_product_efficient_attention": Fact.EXPENSIVE,
    "_scaled_dot_product_flash_attention": Fact.EXPENSIVE,
    "_scaled_dot_product_flash_attention_for_cpu": Fact.EXPENSIVE,
    "vdot": Fact.NEEDS_ONE_DTYPE,
    # linear algebra
    "cholesky_inverse": Fact.CHECKS_VALUES,
    "linalg_cholesky_ex": Fact.CHECKS_ON_REQUEST,
    "linalg_eig": Fact.CHECKS_VALUES,
    "_linalg_eigh": Fact.CHECKS_VALUES,
    "_linalg_eigvals": Fact.CHECKS_VALUES,
    "linalg_inv_ex": Fact.CHECKS_ON_REQUEST,
    "linalg_ldl_factor_ex": Fact.CHECKS_ON_REQUEST,
    "linalg_ldl_solve": Fact.CHECKS_VALUES,
    "linalg_lstsq": Fact.CHECKS_VALUES,
    "linalg_lu_factor_ex": Fact.CHECKS_ON_REQUEST,
    "linalg_lu_solve": Fact.CHECKS_VALUES,
    "linalg_pinv": Fact.CHECKS_VALUES,
    "_linalg_solve_ex": Fact.CHECKS_ON_REQUEST,
    "linalg_solve_ex": Fact.CHECKS_ON_REQUEST,
    "_linalg_svd": Fact.CHECKS_VALUES,
    "lu_unpack": Fact.CHECKS_VALUES,
    # norms and softmax
    "batch_norm_gather_stats": Fact.WRITES_STATISTICS,
    "batch_norm_gather_stats_with_counts": Fact.WRITES_STATISTICS,
    "batch_norm_update_stats": Fact.WRITES_STATISTICS,
    "_batch_norm_with_update": Fact.CHANNELS_LAST_ON_CPU | Fact.NORM,
    "cudnn_batch_norm": Fact.WRITES_STATISTICS,
    "_fused_rms_norm_backward": Fact.ROW_MAJOR_ON_CUDA,
    "_log_softmax_backward_data": Fact.ROW_MAJOR,
    "miopen_batch_norm": Fact.WRITES_STATISTICS,
    "native_batch_norm": Fact.WRITES_STATISTICS | Fact.CHANNELS_LAST_ON_CPU | Fact.NORM,
    "_native_batch_norm_legit": Fact.CHANNELS_LAST_ON_CPU | Fact.NORM,
    "native_group_norm": Fact.NORM,
    "native_layer_norm": Fact.ROW_MAJOR | Fact.NORM,
    "native_layer_norm_backward": Fact.ROW_MAJOR,
    # reductions
    "all": Fact.REDUCTION,
    "amax": Fact.REDUCTION | Fact.READS_ELEMENTS | Fact.ANY_LAYOUT,
    "amin": Fact.REDUCTION | Fact.ANY_LAYOUT,
    "any": Fact.REDUCTION,
    "argmax": Fact.REDUCTION,
    "max": Fact.REDUCTION,
    "mean": Fact.REDUCTION | Fact.ANY_LAYOUT,
    "mean.dim": Fact.READS_ELEMENTS,
    "min": Fact.REDUCTION,
    "prims.sum": Fact.REDUCTION,
    "prims.var": Fact.REDUCTION,
    "std": Fact.REDUCTION,
    "sum": Fact.REDUCTION | Fact.ZERO_OF_ZEROS | Fact.ANY_LAYOUT,
    "sum.dim_IntList": Fact.READS_ELEMENTS,
    "var": Fact.REDUCTION,
    "var_mean": Fact.REDUCTION,
    # pooling, padding and images
    "_adaptive_avg_pool2d": Fact.ANY_LAYOUT,
    "_adaptive_avg_pool2d_backward": Fact.ANY_LAYOUT | Fact.IGNORES_SELF,
    "_adaptive_avg_pool3d_backward": Fact.IGNORES_SELF,
    "adaptive_max_pool2d_backward": Fact.IGNORES_SELF,
    "adaptive_max_pool3d_backward": Fact.IGNORES_SELF,
    "avg_pool2d": Fact.ANY_LAYOUT,
    "avg_pool2d_backward": Fact.ANY_LAYOUT | Fact.IGNORES_SELF,
    "avg_pool3d_backward": Fact.IGNORES_SELF,
    "channel_shuffle": Fact.CHANNELS_LAST_ON_CPU,
    "constant_pad_nd": Fact.ANY_LAYOUT,
    "grid_sampler_2d": Fact.ROW_MAJOR,
    "max_pool2d_with_indices": Fact.ANY_LAYOUT,
    "max_pool2d_with_indices_backward": Fact.ANY_LAYOUT | Fact.IGNORES_SELF,
    "max_pool3d_with_indices_backward": Fact.IGNORES_SELF,
    "max_unpool2d": Fact.CHECKS_VALUES | Fact.CHANNELS_LAST_ON_CPU,
    "max_unpool3d": Fact.CHECKS_VALUES,
    "native_channel_shuffle": Fact.CHANNELS_LAST_ON_CPU,
    "pixel_unshuffle": Fact.ROW_MAJOR_ON_CUDA,
    "reflection_pad3d": Fact.CHANNELS_LAST_ON_CPU,
    "reflection_pad3d_backward": Fact.CHANNELS_LAST_ON_CPU,
    "replication_pad2d_backward": Fact.CHANNELS_LAST_ON_CPU,
    "replication_pad3d": Fact.CHANNELS_LAST_ON_CPU,
    "replication_pad3d_backward": Fact.CHANNELS_LAST_ON_CPU,
    # interpolations
    "upsample_bicubic2d": Fact.CHANNELS_LAST_ON_CPU | Fact.CHANNELS_LAST_ON_CUDA | Fact.INTERPOLATION,
    "_upsample_bicubic2d_aa": Fact.CHANNELS_LAST_ON_CPU | Fact.CHANNELS_LAST_ON_CUDA,
    "_upsample_bicubic2d_aa_backward": Fact.INTERPOLATION_GRADIENT,
    "upsample_bicubic2d_backward": Fact.INTERPOLATION_GRADIENT,
    "upsample_bilinear2d": Fact.CHANNELS_LAST_ON_CPU | Fact.CHANNELS_LAST_ON_CUDA | Fact.INTERPOLATION,
    "upsample_bilinear2d.default": Fact.ANY_LAYOUT,
    "_upsample_bilinear2d_aa": Fact.CHANNELS_LAST_ON_CPU | Fact.CHANNELS_LAST_ON_CUDA,
    "_upsample_bilinear2d_aa_backward": Fact.INTERPOLATION_GRADIENT,
    "upsample_bilinear2d_backward": Fact.INTERPOLATION_GRADIENT | Fact.ANY_LAYOUT,
    "upsample_linear1d": Fact.INTERPOLATION,
    "upsample_linear1d_backward": Fact.INTERPOLATION_GRADIENT,
    "upsample_nearest1d": Fact.INTERPOLATION,
    "upsample_nearest1d_backward": Fact.INTERPOLATION_GRADIENT,
    "upsample_nearest2d": Fact.CHANNELS_LAST_ON_CPU | Fact.CHANNELS_LAST_ON_CUDA | Fact.INTERPOLATION,
    "upsample_nearest2d.default": Fact.ANY_LAYOUT,
    "upsample_nearest2d_backward": Fact.ANY_LAYOUT,
    "upsample_nearest3d": Fact.CHANNELS_LAST_ON_CPU | Fact.CHANNELS_LAST_ON_CUDA | Fact.INTERPOLATION,
    "upsample_nearest3d_backward": Fact.INTERPOLATION_GRADIENT,
    "_upsample_nearest_exact1d": Fact.INTERPOLATION,
    "_upsample_nearest_exact1d_backward": Fact.INTERPOLATION_GRADIENT,
    "_upsample_nearest_exact2d": Fact.CHANNELS_LAST_ON_CPU | Fact.CHANNELS_LAST_ON_CUDA | Fact.INTERPOLATION,
    "_upsample_nearest_exact3d": Fact.CHANNELS_LAST_ON_CPU | Fact.CHANNELS_LAST_ON_CUDA | Fact.INTERPOLATION,
    "_upsample_nearest_exact3d_backward": Fact.INTERPOLATION_GRADIENT,
    "upsample_trilinear3d": Fact.CHANNELS_LAST_ON_CPU | Fact.CHANNELS_LAST_ON_CUDA | Fact.INTERPOLATION,
    "upsample_trilinear3d_backward": Fact.INTERPOLATION_GRADIENT,
    # losses
    "binary_cross_entropy": Fact.CHECKS_VALUES | Fact.STRIDES_OF_SELF,
    "binary_cross_entropy_backward": Fact.STRIDES_OF_SELF,
    "huber_loss": Fact.DTYPE_OF_SELF,
    "huber_loss_backward": Fact.ROW_MAJOR,
    "mse_loss_backward": Fact.DTYPE_OF_SELF | Fact.ROW_MAJOR,
    "multi_margin_loss": Fact.CHECKS_VALUES,
    "multilabel_margin_loss_forward": Fact.CHECKS_VALUES,
    "nll_loss2d_forward": Fact.CHECKS_VALUES,
    "nll_loss_forward": Fact.CHECKS_VALUES,
    "smooth_l1_loss_backward": Fact.DTYPE_OF_SELF | Fact.ROW_MAJOR,
    "soft_margin_loss": Fact.DTYPE_OF_SELF,
    "soft_margin_loss_backward": Fact.DTYPE_OF_SELF,
    # creation
    "arange": Fact.CHEAP | Fact.CREATION,
    "empty": Fact.CHEAP,
    "empty_like": Fact.LIKE_FIRST | Fact.CHEAP | Fact.READS_METADATA | Fact.UNINITIALISED,
    "empty_permuted": Fact.CHEAP,
    "empty_strided": Fact.CHEAP,
    "full": Fact.CHEAP | Fact.CREATION,
    "full_like": Fact.LIKE_FIRST | Fact.CHEAP | Fact.READS_METADATA,
    "linspace": Fact.CHECKS_VALUES,
    "logspace": Fact.CHECKS_VALUES,
    "new_empty": Fact.CHEAP | Fact.READS_METADATA | Fact.UNINITIALISED,
    "new_empty_strided": Fact.CHEAP | Fact.READS_METADATA | Fact.UNINITIALISED,
    "new_full": Fact.CHEAP | Fact.READS_METADATA,
    "new_ones": Fact.CHEAP | Fact.READS_METADATA,
    "new_zeros": Fact.CHEAP | Fact.READS_METADATA,
    "ones": Fact.CHEAP | Fact.CREATION,
    "ones_like": Fact.LIKE_FIRST | Fact.CHEAP | Fact.READS_METADATA,
    "prims.iota": Fact.CHEAP | Fact.CREATION,
    "scalar_tensor": Fact.CHEAP | Fact.CREATION,
    "zeros": Fact.CHEAP | Fact.CREATION,
    "zeros_like": Fact.LIKE_FIRST | Fact.CHEAP | Fact.READS_METADATA,
    # random numbers
    "bernoulli": Fact.CHECKS_VALUES,
    "multinomial": Fact.CHECKS_VALUES,
    "native_dropout_backward": Fact.CHANNELS_LAST_ON_CUDA | Fact.POINTWISE_STRIDES,
    "normal.Tensor_Tensor": Fact.CHECKS_VALUES | Fact.ROW_MAJOR,
    "normal.Tensor_float": Fact.CHECKS_VALUES | Fact.ROW_MAJOR,
    "normal.float_Tensor": Fact.CHECKS_VALUES | Fact.ROW_MAJOR,
    "poisson": Fact.CHECKS_VALUES | Fact.ROW_MAJOR,
    "rand_like.default": Fact.LIKE_FIRST,
    "randint_like.default": Fact.LIKE_FIRST,
    "randn_like.default": Fact.LIKE_FIRST,
    "rrelu_with_noise": Fact.ROW_MAJOR,
    "_standard_gamma": Fact.ROW_MAJOR,
    # copies and views
    "alias": Fact.ALIAS,
    "as_strided": Fact.CHECKS_VALUES,
    "cat": Fact.ANY_LAYOUT,
    "clone": Fact.LIKE_FIRST | Fact.OWN_ORDER | Fact.ZERO_OF_ZEROS,
    "copy": Fact.CHEAP | Fact.TAKES_CPU_TENSORS,
    "detach": Fact.ALIAS,
    "diagonal_scatter": Fact.SCATTER,
    "expand": Fact.ANY_LAYOUT | Fact.SAME_START,
    "flip": Fact.LIKE_FIRST,
    "lift_fresh_copy": Fact.ALIAS,
    "permute": Fact.VIEW_IN_ANY_LAYOUT | Fact.SAME_START,
    "select": Fact.VIEW_IN_ANY_LAYOUT,
    "select_scatter": Fact.SCATTER,
    "slice": Fact.VIEW_IN_ANY_LAYOUT,
    "slice_scatter": Fact.SCATTER,
    "split.Tensor": Fact.VIEW_IN_ANY_LAYOUT,
    "split_with_sizes": Fact.VIEW_IN_ANY_LAYOUT,
    "squeeze": Fact.SAME_START,
    "squeeze.dim": Fact.VIEW_IN_ANY_LAYOUT,
    "squeeze.dims": Fact.ANY_LAYOUT,
    "t": Fact.VIEW_IN_ANY_LAYOUT | Fact.SAME_START,
    "_to_copy": Fact.LIKE_FIRST
    | Fact.CHEAP
    | Fact.READS_ELEMENTS
    | Fact.ZERO_OF_ZEROS
    | Fact.ANY_LAYOUT
    | Fact.TAKES_CPU_TENSORS,
    "transpose": Fact.VIEW_IN_ANY_LAYOUT | Fact.SAME_START,
    "tril": Fact.ROW_MAJOR | Fact.CHEAP,
    "triu": Fact.ROW_MAJOR | Fact.CHEAP,
    "_unsafe_view": Fact.CHEAP | Fact.VIEW_IN_ANY_LAYOUT | Fact.SAME_START,
    "unsqueeze": Fact.ANY_LAYOUT | Fact.SAME_START,
    "view.default": Fact.VIEW_IN_ANY_LAYOUT | Fact.SAME_START,
    # indexing
    "embedding": Fact.CHECKS_VALUES,
    "_embedding_bag": Fact.CHECKS_VALUES,
    "_embedding_bag_forward_only": Fact.CHECKS_VALUES,
    "gather": Fact.CHECKS_VALUES | Fact.CHEAP,
    "index": Fact.CHECKS_VALUES | Fact.INDEXED_READ | Fact.CHEAP | Fact.TAKES_CPU_TENSORS,
    "index_add": Fact.CHECKS_VALUES,
    "index_copy": Fact.CHECKS_VALUES,
    "index_fill": Fact.CHECKS_VALUES,
    "index_put": Fact.CHECKS_VALUES | Fact.INDEXED_WRITE | Fact.TAKES_CPU_TENSORS,
    "index_put_": Fact.INDEXED_WRITE,
    "_index_put_impl_": Fact.INDEXED_WRITE,
    "index_reduce": Fact.CHECKS_VALUES,
    "index_select": Fact.CHECKS_VALUES,
    "masked_fill": Fact.ROW_MAJOR,
    "masked_scatter": Fact.CHECKS_VALUES,
    "one_hot": Fact.CHECKS_VALUES,
    "put": Fact.CHECKS_VALUES,
    "scatter": Fact.CHECKS_VALUES,
    "scatter_add": Fact.CHECKS_VALUES,
    "scatter_reduce": Fact.CHECKS_VALUES,
    "searchsorted": Fact.CHECKS_VALUES,
    "segment_reduce": Fact.CHECKS_VALUES,
    "sort": Fact.LIKE_FIRST,
    "take": Fact.CHECKS_VALUES,
    "_unsafe_index": Fact.INDEXED_READ | Fact.TAKES_CPU_TENSORS,
    "_unsafe_index_put": Fact.TAKES_CPU_TENSORS,
    # arithmetic, histograms and assertions
    "add.Tensor": Fact.ZERO_OF_ZEROS | Fact.TAKES_CPU_NUMBERS,
    "_assert_async": Fact.CHECKS_VALUES,
    "_assert_scalar": Fact.CHECKS_VALUES,
    "copysign.Tensor": Fact.POINTWISE_STRIDES,
    "div": Fact.DIVIDES,
    "div.Tensor": Fact.ZERO_OF_ZEROS | Fact.TAKES_CPU_NUMBERS,
    "div.Tensor_mode": Fact.POINTWISE_STRIDES,
    "floor_divide": Fact.DIVIDES,
    "floor_divide.default": Fact.POINTWISE_STRIDES,
    "fmod": Fact.DIVIDES,
    "_functional_assert_async": Fact.CHECKS_VALUES,
    "glu_backward": Fact.ROW_MAJOR,
    "heaviside": Fact.POINTWISE_STRIDES,
    "histc": Fact.CHECKS_VALUES,
    "histogram": Fact.CHECKS_VALUES,
    "_histogramdd_bin_edges": Fact.CHECKS_VALUES,
    "_histogramdd_from_bin_cts": Fact.CHECKS_VALUES,
    "_histogramdd_from_bin_tensors": Fact.CHECKS_VALUES,
    "isin.Tensor_Scalar": Fact.ROW_MAJOR,
    "isin.Tensor_Tensor": Fact.ROW_MAJOR,
    "istft": Fact.CHECKS_VALUES,
    "ldexp.Tensor": Fact.POINTWISE_STRIDES,
    "log_sigmoid_forward": Fact.ROW_MAJOR_ON_CPU,
    "logaddexp": Fact.POINTWISE_STRIDES,
    "logical_and": Fact.POINTWISE_STRIDES,
    "logical_or": Fact.POINTWISE_STRIDES,
    "logical_xor": Fact.POINTWISE_STRIDES,
    "logit_backward": Fact.POINTWISE_STRIDES,
    "mul.Tensor": Fact.ZERO_OF_ZEROS | Fact.TAKES_CPU_NUMBERS,
    "neg.default": Fact.ZERO_OF_ZEROS,
    "positive": Fact.OWN_ORDER,
    "pow.Scalar": Fact.ROW_MAJOR,
    "remainder": Fact.DIVIDES,
    "special_xlog1py.default": Fact.POINTWISE_STRIDES,
    "sub.Tensor": Fact.ZERO_OF_ZEROS | Fact.TAKES_CPU_NUMBERS,
    "where.self": Fact.TAKES_CPU_TENSORS,
    "xlogy.Tensor": Fact.POINTWISE_STRIDES,
}
"""The rows.  Names are those of ``torch.ops.aten``; others begin with their namespace."""
_NOTHING = Fact(0)


def facts(target: object) -> Fact:
    """Returns what the rows say about an operator; nothing for what is no overload of one."""
    return _facts_of_overload(target) if isinstance(target, OpOverload) else _NOTHING


@functools.cache
def _facts_of_overload(operator: OpOverload) -> Fact:
    if any(argument.is_out for argument in operator._schema.arguments):
        return _NOTHING
    name = str(operator._schema.name).removeprefix("aten::").replace("::", ".")
    return OPERATORS.get(name, _NOTHING) | OPERATORS.get(f"{name}.{operator._overloadname}", _NOTHING)


@functools.cache
def operators_with(fact: Fact) -> tuple[OpOverload, ...]:
    """Returns the overloads for tensors in this PyTorch for which all of `fact` holds, in the order of the rows."""
    rows = dict.fromkeys(overload for name in OPERATORS for overload in overloads_of(name))
    return tuple(overload for overload in rows if fact in facts(overload) and _is_of_tensors(overload))


def overloads_of(name: str) -> list[OpOverload]:
    """Returns the overloads that a row with this name is about; none if this PyTorch does not have the operator."""
    parts = name.split(".")
    namespace: Any = getattr(torch.ops, parts.pop(0)) if parts[0] == "prims" else torch.ops.aten
    packet = getattr(namespace, parts[0], None)
    if packet is None:
        return []
    return [getattr(packet, overload) for overload in parts[1:] or packet.overloads() if hasattr(packet, overload)]


def _is_of_tensors(operator: OpOverload) -> bool:
    """Returns whether the operator takes or returns a tensor, and no name of a dimension.

    TorchScript's overloads are for numbers, and no graph has those for named tensors, which PyTorch before 2.13 has.
    """
    types: dict[str, str] = {each.name: str(each.type) for each in operator._schema.arguments}
    results = [str(each.type) for each in operator._schema.returns]
    return any("Tensor" in each for each in (*types.values(), *results)) and "str" not in types.get("dim", "")


def like_argument(operator: OpOverload, args: Sequence[Any]) -> Any:
    """Returns the argument whose layout or dtype a result has: ``self``, which a gradient takes second, or else the
    first."""
    names = [argument.name for argument in operator._schema.arguments]
    return args[names.index("self") if "self" in names else 0]


def is_pointwise(target: object) -> bool:
    """Returns whether an operator computes each element of its result from one element of each argument."""
    return torch.Tag.pointwise in getattr(target, "tags", ())
