"""Fake tensors, on which capture runs operations, with the shapes, strides and types that eager's kernels give."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import StatefulSymbolicContext

from compiler_core.capture.tensors import checks
from compiler_core.capture.tensors.checks import runs_eagerly
from compiler_core.capture.tensors.element_order import is_ambiguous, operands_of, result_strides, strides_like
from compiler_core.errors import Unsupported
from compiler_core.support.eager_warnings import WarningCollector, silence_warnings
from compiler_core.support.operator_facts import TYPED_AS_ARGUMENT, squeeze_reduced_dims, written_tensors
from compiler_core.support.torch_state import set_device_guard
from compiler_core.torch_private import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    OpOverload,
    UnsupportedOperatorException,
    mkldnn_layout,
    output_permutation,
    set_conj,
    set_neg,
    suggest_memory_format,
)

set_device_guard()

aten = torch.ops.aten
POINTWISE = frozenset(
    {
        *(aten.logical_and.default, aten.logical_or.default, aten.logical_xor.default, aten.copysign.Tensor),
        *(aten.div.Tensor_mode, aten.floor_divide.default, aten.heaviside.default, aten.logaddexp.default),
        *(aten.xlogy.Tensor, aten.special_xlog1py.default, aten.native_dropout_backward.default, aten.ldexp.Tensor),
        aten.logit_backward.default,
    }
)
"""Operators of two tensors for which PyTorch's fake tensors have other strides than its kernels give."""
BATCH_NORMS = frozenset(
    {
        *(aten.native_batch_norm.default, aten._native_batch_norm_legit.default),
        *(aten._native_batch_norm_legit.no_stats, aten._batch_norm_with_update.default),
    }
)
INTERPOLATIONS = frozenset(
    getattr(getattr(aten, name), overload)
    for name in (
        *("upsample_nearest2d", "_upsample_nearest_exact2d", "upsample_bilinear2d", "upsample_bicubic2d"),
        *("upsample_nearest3d", "_upsample_nearest_exact3d", "upsample_trilinear3d"),
        *("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
    )
    for overload in ("default", "vec")
)
"""Operators that keep the memory format; PyTorch's fake ones on a GPU only if there are many channels."""
CHANNELS_LAST_ON: dict[str, dict[OpOverload, int]] = {
    "cpu": {
        **dict.fromkeys(INTERPOLATIONS | BATCH_NORMS, 0),
        **dict.fromkeys((aten.reflection_pad3d.default, aten.replication_pad3d.default), 0),
        **dict.fromkeys((aten.channel_shuffle.default, aten.native_channel_shuffle.default), 0),
        aten.max_unpool2d.default: 0,
        **dict.fromkeys((aten.reflection_pad3d_backward.default, aten.replication_pad3d_backward.default), 1),
        aten.replication_pad2d_backward.default: 1,
    },
    "cuda": {**dict.fromkeys(INTERPOLATIONS, 0), aten.native_dropout_backward.default: 0},
}
"""Operators whose kernels for a device give channels-last results if the argument with this index is, else row-major
ones."""
ROW_MAJOR_ON: dict[str, frozenset[OpOverload]] = {
    "cpu": frozenset({aten.log_sigmoid_forward.default}),
    "cuda": frozenset({aten.pixel_unshuffle.default, aten._fused_rms_norm_backward.default}),
}
"""Operators whose kernels for a device give row-major results, whatever the strides of the arguments are."""
ROW_MAJOR = frozenset(
    {
        *(aten.pow.Scalar, aten.grid_sampler_2d.default, aten.masked_fill.Scalar, aten.masked_fill.Tensor),
        *(aten.normal.Tensor_Tensor, aten.normal.float_Tensor, aten.normal.Tensor_float),
        *(aten.poisson.default, aten._standard_gamma.default, aten.glu_backward.default),
        *(aten.isin.Tensor_Tensor, aten.isin.Tensor_Scalar, aten._log_softmax_backward_data.default),
        *(aten.rrelu_with_noise.default, aten.native_layer_norm_backward.default, aten.native_layer_norm.default),
        *(aten.triu.default, aten.tril.default),
        *(aten.mse_loss_backward.default, aten.smooth_l1_loss_backward.default, aten.huber_loss_backward.default),
    }
)
"""The same on every device."""
STRIDES_OF_ARGUMENT = {aten.binary_cross_entropy.default: 0, aten.binary_cross_entropy_backward.default: 1}
"""Operators whose results have the strides of one argument, with its index, unless they are reduced."""
SCATTERS = frozenset({aten.diagonal_scatter.default, aten.select_scatter.default, aten.slice_scatter.default})
"""Operators whose results have the strides of the first argument; fake ones of PyTorch 2.11 also if it is expanded."""
LIKE_ARGUMENT = frozenset(
    {
        *(aten.empty_like.default, aten.zeros_like.default, aten.ones_like.default, aten.full_like.default),
        *(aten.rand_like.default, aten.randn_like.default, aten.randint_like.default, aten.flip.default),
        *(aten.clone.default, aten._to_copy.default, aten.sort.default, aten.sort.stable),
    }
)
"""Operators whose results have the strides of ``torch.empty_like`` of the first argument, if no format is asked for."""
OTHER_ORDER = ROW_MAJOR | {aten.clone.default, aten.positive.default}
"""Pointwise operators that do not choose strides as the others do."""
INDEXING = frozenset({aten.index.Tensor, aten._unsafe_index.Tensor})
DYNAMIC_SHAPES = frozenset({aten._unique.default, aten._unique2.default})
"""Operators whose results have data-dependent shapes; PyTorch 2.11 gives their fake results an arbitrary shape."""
INTERPOLATION_GRADIENTS = frozenset(
    {
        *(aten.upsample_nearest1d_backward.default, aten._upsample_nearest_exact1d_backward.default),
        *(aten.upsample_nearest3d_backward.default, aten._upsample_nearest_exact3d_backward.default),
        *(aten.upsample_linear1d_backward.default, aten.upsample_bilinear2d_backward.default),
        *(aten.upsample_trilinear3d_backward.default, aten.upsample_bicubic2d_backward.default),
        *(aten._upsample_bilinear2d_aa_backward.default, aten._upsample_bicubic2d_aa_backward.default),
    }
)
"""Operators that PyTorch cannot run on fake tensors with symbolic sizes."""
INDEXED_WRITES = frozenset({aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default})
CORRECTED = POINTWISE.union(
    *CHANNELS_LAST_ON.values(), *ROW_MAJOR_ON.values(), ROW_MAJOR, STRIDES_OF_ARGUMENT, SCATTERS, INDEXING,
    TYPED_AS_ARGUMENT,
    (aten.angle.default, aten.roll.default, aten.linalg_vector_norm.default),
)  # fmt: skip
"""The operators whose fake results `FakeMode._as_in_eager` changes."""
QUANTISED = {torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4}
"""Types of quantised tensors.  Their fake tensors report another type, so graphs cannot contain them."""


class FakeMode(FakeTensorMode):  # type: ignore[no-untyped-call]
    """Corrects PyTorch's fake tensors where they differ from the results of eager's kernels.

    Each write raises the ``_version`` of a fake tensor, so that it can be found later: autograd does not count those by
    ``out=``, by operators on lists of tensors, and by batch norms to running statistics.
    """

    warnings: WarningCollector | None = None
    """Records the operators whose kernels warn."""
    _in_operator = False
    """Whether an operator is running: the operators that its fake implementation calls are not called by its kernel."""

    def forget_real_tensors(self) -> None:
        """Forgets which real tensors have fake ones.

        Otherwise the callback of a weak reference would run whenever one of them is freed, and Python prints and drops
        an interrupt that arrives there.
        """
        describer = self.fake_tensor_converter.meta_converter.describer
        describer.lookup_tensor.clear()
        describer.lookup_storage.clear()

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _makes_quantised(func, (*args, *(kwargs or {}).values())):
            raise Unsupported("unsupported operation", f"{func} makes a quantised tensor")
        if func in DYNAMIC_SHAPES:
            raise DynamicOutputShapeException(func)
        if func is aten._linalg_check_errors.default:
            raise Unsupported("linear algebra check", f"torch.{args[1].removeprefix('torch.')}")
        if func in INDEXED_WRITES:
            _check_masked_write(*args[1:3])
        if func in checks.CHECKS:
            with self:
                checks.CHECKS[func](*args, **(kwargs or {}))
        checks.check_write(func, args, kwargs or {})
        if self.warnings is not None and not self._in_operator:
            self.warnings.note_kernel(func, args, kwargs or {})
        if not self._in_operator:
            checks.check_types(func, args, kwargs or {})
        outs = [(t, t.shape, _may_be_resized(t)) for t in checks.out_arguments(func, kwargs)] if kwargs else []
        inside, self._in_operator = self._in_operator, True
        try:
            if func in INDEXING:
                with self:
                    args = (args[0], _unsqueeze_scalar_indices(args[1]), *args[2:])
            if func in INTERPOLATION_GRADIENTS and any(isinstance(size, torch.SymInt) for size in args[2]):
                gradient, _, input_sizes = args[:3]
                with self:
                    return gradient.new_empty(input_sizes).to(memory_format=suggest_memory_format(gradient))
            result: Any = super().dispatch(func, types, args, kwargs or {})
        finally:
            self._in_operator = inside
        if isinstance(result, torch.Tensor) and result.layout is mkldnn_layout:
            # the fake results of operators on it have another layout
            raise Unsupported("unsupported operation", f"{func} makes a tensor of layout mkldnn")
        if written := written_tensors(func, args, kwargs or {}):
            torch.autograd.graph.increment_version(written)
        if any(not resizable and tensor.shape != before for tensor, before, resizable in outs):
            raise Unsupported("unsupported operation", f"{func} resizes an out= tensor that has elements or is a view")
        if func in CORRECTED:
            result = self._as_in_eager(result, func, types, args, kwargs or {})
        if isinstance(result, tuple) and func in LIKE_ARGUMENT:
            return tuple(self._in_eagers_order(each, func, args, kwargs or {}) for each in result)
        return self._in_eagers_order(result, func, args, kwargs or {})

    def _as_in_eager(self, result: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Returns the fake result of an operator with the strides and type that eager's kernel gives it."""
        if (order := _memory_format(func, _device_of(result), args)) is not None:
            return self._in_memory_format(result, order)
        if func in POINTWISE:
            first, second = args[:2]
            if func is aten.ldexp.Tensor:  # it multiplies by a row-major power of two
                with self:
                    second = torch.empty_like(second, memory_format=torch.contiguous_format)
            like: Any = super().dispatch(aten.add.Tensor, types, (first, second), {})
            return self._with_strides_of(result, like)
        if func in STRIDES_OF_ARGUMENT:
            argument = args[STRIDES_OF_ARGUMENT[func]]
            if result.dim() != argument.dim():  # a mean or a sum: one element
                return result
            with self:
                return self._with_strides_of(result, torch.empty_like(argument))
        if func in SCATTERS and checks.has_repeated_elements(result):
            with self:
                return torch.empty_like(result)
        if func is aten.roll.default and _is_rolled_channels_last(*args):
            with self:
                return _roll(*args)
        if func in INDEXING and (places := _indexed_dim_order(args[0], args[1], result.shape)):
            with self:
                return torch.empty_permuted(result.shape, places, dtype=result.dtype, device=result.device)
        if func is aten.linalg_vector_norm.default and result.dim() == args[0].dim():
            with self:
                return squeeze_reduced_dims(result, *args[1:], **kwargs)
        if func in TYPED_AS_ARGUMENT:
            with self:
                return result.to(args[TYPED_AS_ARGUMENT[func]].dtype)
        return result

    def _in_eagers_order(self, result: Any, func: Any, args: Any, kwargs: Any) -> Any:
        """Returns a result with eager's strides also for dimensions of size 1, of which PyTorch's fake tensors choose
        others."""
        if not is_ambiguous(result):
            return result
        if func in LIKE_ARGUMENT and kwargs.get("memory_format") in (None, torch.preserve_format):
            strides = strides_like(args[0])
        elif torch.Tag.pointwise in func.tags and func not in OTHER_ORDER and not func._schema.is_mutable:
            operands = operands_of(func, args)
            if any(each.layout is not torch.strided for each in operands):
                return result
            strides = result_strides(operands, result.shape)
        else:
            return result
        return self._with_strides(result, strides)

    def _in_memory_format(self, result: Any, order: torch.memory_format) -> Any:
        """Returns a result in that memory format; of several, those with the shape of the first."""
        if isinstance(result, torch.Tensor):
            with self:
                return self._with_strides_of(result, torch.empty(result.shape, memory_format=order))
        shape = next(r.shape for r in result if r is not None)
        return tuple(self._in_memory_format(r, order) if r is not None and r.shape == shape else r for r in result)

    def _with_strides_of(self, result: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """Returns `result` with the strides of `like`, which has the same shape."""
        return self._with_strides(result, like.stride())

    def _with_strides(self, result: torch.Tensor, strides: Sequence[Any]) -> torch.Tensor:
        if list(result.stride()) == list(strides):
            return result
        with self:
            return torch.empty_strided(result.shape, strides, dtype=result.dtype, device=result.device)


def _device_of(result: Any) -> str:
    """Returns the type of the device of a result, or of the first of several."""
    results = [result] if isinstance(result, torch.Tensor) else result
    return next(r.device.type for r in results if r is not None)


def _memory_format(func: Any, device: str, args: Sequence[Any]) -> torch.memory_format | None:
    """Returns the memory format that eager's kernel gives its results, if the tables say."""
    if func in CHANNELS_LAST_ON.get(device, {}):
        return suggest_memory_format(args[CHANNELS_LAST_ON[device][func]])
    is_complex_angle = func is aten.angle.default and args[0].is_complex()
    is_row_major = func in ROW_MAJOR or func in ROW_MAJOR_ON.get(device, ()) or is_complex_angle
    return torch.contiguous_format if is_row_major else None


def _may_be_resized(tensor: torch.Tensor) -> bool:
    """Returns whether ``out=`` may resize a tensor in a graph: without elements, and no view."""
    return not tensor.untyped_storage().nbytes() and not tensor._is_view()


def _makes_quantised(func: Any, arguments: Sequence[Any]) -> bool:
    if any(type(a) is torch.dtype and a in QUANTISED for a in arguments):
        return True
    return func.namespace == "quantized" or "quantized_tensor" in func.__name__


def _check_masked_write(indices: Sequence[torch.Tensor | None], values: torch.Tensor) -> None:
    """Raises Unsupported if the gradient of the values has as many elements as a mask picks: ``x[mask] = values``."""
    has_mask = any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices)
    if has_mask and values.requires_grad and torch.is_grad_enabled():
        raise Unsupported("tensor value read", "x[mask] = values: their gradient has the size that the mask picks")


def _is_rolled_channels_last(x: torch.Tensor, shifts: Sequence[Any], dims: Sequence[int] = ()) -> bool:
    on_cpu, order = x.device.type == "cpu", suggest_memory_format(x)
    return bool(dims) and on_cpu and order is not torch.contiguous_format and bool(x.numel())


def _roll(x: torch.Tensor, shifts: Sequence[Any], dims: Sequence[int]) -> torch.Tensor:
    """Rolls as the CPU kernel does: one dimension after the other, each by concatenating its two parts."""
    for shift, dim in zip(shifts, dims, strict=True):
        start = -shift % x.shape[dim]
        x = torch.cat([x.narrow(dim, start, x.shape[dim] - start), x.narrow(dim, 0, start)], dim)
    return x


def _unsqueeze_scalar_indices(indices: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """Gives 0-dimensional indices beside others a dimension, because PyTorch's fake tensors use their shape for all."""
    if not any(index is not None and index.dim() for index in indices):
        return list(indices)
    return [index.reshape(1) if index is not None and not index.dim() else index for index in indices]


def _indexed_dim_order(x: torch.Tensor, indices: Sequence[torch.Tensor | None], shape: Sequence[Any]) -> list[int]:
    """Returns the order in memory of the dimensions of ``x[indices]``.

    Returns an empty list if the layout of the indices does not affect it.
    """
    given = [index for index in indices if index is not None and index.dtype not in (torch.bool, torch.uint8)]
    if all(index.is_contiguous() for index in given) or not x.numel():
        return []
    places = [i for i, index in enumerate(indices) if index is not None]
    adjacent = places[-1] - places[0] == len(places) - 1
    before = places[0] if adjacent else 0
    rest = [stride for i, stride in enumerate(x.stride()) if i not in places]
    picked = len(shape) - len(rest)
    after = [1] * (len(rest) - before)
    source = x.as_strided(shape, [*rest[:before], *[0] * picked, *rest[before:]])
    aligned = [i.reshape([1] * (picked - i.dim()) + [*i.shape, *after]).expand(shape) for i in given]
    order: list[int] = output_permutation(source, *aligned)[0]
    return order


def make_fake(mode: FakeMode, real: torch.Tensor, symbolic: StatefulSymbolicContext | None = None) -> torch.Tensor:
    """Returns a fake tensor like `real`, with symbolic sizes as `symbolic` says.

    PyTorch reads ``grad`` on the way, which warns for non-leaf tensors; that warning is silenced.
    """
    source = None if symbolic is None else symbolic.tensor_source
    make = functools.partial(mode.from_tensor, static_shapes=symbolic is None, source=source, symbolic_context=symbolic)
    if real.is_inference():
        with torch.inference_mode(False):
            return make(_alias_of(real))
    if real.is_leaf:  # otherwise its base, if it is a view, and its gradient would get symbols, too
        return make(real if symbolic is None else _alias_of(real).requires_grad_(real.requires_grad))
    mode.forget_real_tensors()  # a fake base of a view has plain sizes; as another input it may not
    with silence_warnings():
        return make(real)


def _alias_of(real: torch.Tensor) -> torch.Tensor:
    """Returns a tensor over the same memory, without a base, gradient or history."""
    memory = real.untyped_storage(), real.storage_offset(), real.shape, real.stride()
    alias = torch.empty(0, dtype=real.dtype, device=real.device).set_(*memory)
    set_conj(alias, real.is_conj())
    set_neg(alias, real.is_neg())
    return alias


_NEEDS_DATA = "its data is not allocated yet"
"""What an operator without a rule for fake tensors says when it reads values."""


@contextmanager
def errors_break_graph(fn: Callable[..., Any], args: Any = (), kwargs: Any = None) -> Iterator[None]:
    """Raises an error of an operation on fake tensors as Unsupported, so that it runs eagerly after a graph break.

    If eager PyTorch runs the operation on other tensors like these, the reason is not that the program raises here.
    """
    name = getattr(fn, "__name__", fn)
    try:
        yield
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise Unsupported("tensor value read", f"{name}: {error}") from None
    except (UnsupportedOperatorException, NotImplementedError) as error:
        raise Unsupported("unsupported call", f"{name}: {error}") from None
    except Unsupported:
        raise
    except Exception as error:
        if _NEEDS_DATA in str(error):
            raise Unsupported("tensor value read", f"{name} reads the values of its arguments") from None
        text = f"{type(error).__name__}: {error}"
        if runs_eagerly(fn, args, kwargs or {}):
            raise Unsupported("unsupported call", f"PyTorch cannot run {name} on fake tensors: {text}") from None
        raise Unsupported("exception", text) from None


@contextmanager
def muted_fake_log() -> Iterator[None]:
    """Mutes PyTorch's log of errors on fake tensors: the user sees the same error on real tensors."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
