"""Tensors without values, on which capture runs the operations that it meets."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._prims_common import compute_elementwise_output_logical_to_physical_perm, suggest_memory_format
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.fx.experimental.symbolic_shapes import StatefulSymbolicContext

from compiler_core.errors import Unsupported
from compiler_core.support import overlaps
from compiler_core.support.eager_warnings import Heard
from compiler_core.support.operator_facts import OF_FIRST_TYPE, without_reduced
from compiler_core.support.silenced_warnings import unheard

aten = torch.ops.aten
POINTWISE = frozenset(
    {
        *(aten.logical_and.default, aten.logical_or.default, aten.logical_xor.default, aten.copysign.Tensor),
        *(aten.div.Tensor_mode, aten.floor_divide.default, aten.heaviside.default, aten.logaddexp.default),
        *(aten.xlogy.Tensor, aten.native_dropout_backward.default),
    }
)
"""Operators of two tensors whose results PyTorch's fake tensors lay out by a rule that its kernels do not follow."""
BATCH_NORMS = frozenset(
    {
        *(aten.native_batch_norm.default, aten._native_batch_norm_legit.default),
        *(aten._native_batch_norm_legit.no_stats, aten._batch_norm_with_update.default),
    }
)
ROW_MAJOR_ON_CPU = BATCH_NORMS | {aten.log_sigmoid_forward.default, aten.rrelu_with_noise.default}
"""Of these, too, kernels for the CPU make results row-major; batch norms channels-last, where the input is that."""
INDEXING = frozenset({aten.index.Tensor, aten._unsafe_index.Tensor})
DYNAMIC_SHAPES = frozenset({aten._unique.default, aten._unique2.default})
"""The shapes of their results depend on values; PyTorch 2.11 gives fake tensors some shape."""
QUANTISED = {torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4}
"""Types of tensors with a scale.  The fakes of such say that they are of another type, so no graph has any."""


class FakeMode(FakeTensorMode):  # type: ignore[no-untyped-call]
    """Makes fake tensors that are as those of eager's kernels, where PyTorch's own are not."""

    heard: Heard | None = None
    """Is told of each operator whose kernel warns."""
    _inside = False
    """Whether an operator is at work: those that it is made of here are none that its kernel calls."""

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _makes_quantised(func, (*args, *(kwargs or {}).values())):
            raise Unsupported("unsupported operation", f"{func} makes a quantised tensor")
        if func in DYNAMIC_SHAPES:
            raise DynamicOutputShapeException(func)
        overlaps.check(func, args, kwargs or {})
        if self.heard is not None and not self._inside:
            self.heard.kernel(func, args, kwargs or {})
        outs = [(t, t.shape, _is_empty(t)) for t in overlaps.outs(func, kwargs)] if kwargs else []
        inside, self._inside = self._inside, True
        try:
            if func in INDEXING:
                with self:
                    args = (args[0], _broadcast(args[1]), *args[2:])
            made: Any = super().dispatch(func, types, args, kwargs or {})
        finally:
            self._inside = inside
        if any(not empty and tensor.shape != before for tensor, before, empty in outs):
            raise Unsupported("unsupported operation", f"{func} gives another shape to a tensor that has elements")
        if func in POINTWISE:
            like: Any = super().dispatch(aten.add.Tensor, types, args[:2], {})
            return self._like(made, like)
        if func in ROW_MAJOR_ON_CPU and args[0].device.type == "cpu":
            order = suggest_memory_format(args[0]) if func in BATCH_NORMS else torch.contiguous_format
            with self:
                like = torch.empty_like(args[0], memory_format=order)
            return self._like(made, like) if isinstance(made, torch.Tensor) else (self._like(made[0], like), *made[1:])
        if func is aten.pow.Scalar:  # row-major on every device, as its kernel says without a look at the exponent
            with self:
                return torch.empty(made.shape, dtype=made.dtype, device=made.device)
        if func is aten.roll.default and _is_rolled_channels_last(*args):
            with self:
                return _rolled(*args)
        if func in INDEXING and (places := _order_of_indexed(args[0], args[1], made.shape)):
            with self:
                return torch.empty_permuted(made.shape, places, dtype=made.dtype, device=made.device)
        if func is aten.linalg_vector_norm.default and made.dim() == args[0].dim():
            with self:
                return without_reduced(made, *args[1:], **(kwargs or {}))
        if func in OF_FIRST_TYPE:
            with self:
                return made.to(args[0].dtype)
        return made

    def _like(self, made: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """`made` with the strides of `like`, which has the same shape."""
        if made.stride() == like.stride():
            return made
        with self:
            return torch.empty_strided(made.shape, like.stride(), dtype=made.dtype, device=made.device)


def _is_empty(tensor: torch.Tensor) -> bool:
    return not tensor.untyped_storage().nbytes()


def _makes_quantised(func: Any, arguments: Sequence[Any]) -> bool:
    if any(type(a) is torch.dtype and a in QUANTISED for a in arguments):
        return True
    return func.namespace == "quantized" or "quantized_tensor" in func.__name__


def _is_rolled_channels_last(x: torch.Tensor, shifts: Sequence[Any], dims: Sequence[int] = ()) -> bool:
    on_cpu, order = x.device.type == "cpu", suggest_memory_format(x)
    return bool(dims) and on_cpu and order is not torch.contiguous_format and bool(x.numel())


def _rolled(x: torch.Tensor, shifts: Sequence[Any], dims: Sequence[int]) -> torch.Tensor:
    """As the kernel for the CPU rolls: it joins two parts of one dimension after the other, in the order of both."""
    for shift, dim in zip(shifts, dims, strict=True):
        start = -shift % x.shape[dim]
        x = torch.cat([x.narrow(dim, start, x.shape[dim] - start), x.narrow(dim, 0, start)], dim)
    return x


def _broadcast(indices: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """Indices of which one alone is a number get a dimension: PyTorch's fake tensors take its shape for that of all."""
    if not any(index is not None and index.dim() for index in indices):
        return list(indices)
    return [index.reshape(1) if index is not None and not index.dim() else index for index in indices]


def _order_of_indexed(x: torch.Tensor, indices: Sequence[torch.Tensor | None], shape: Sequence[Any]) -> list[int]:
    """The order in memory of the dimensions of ``x[indices]``, where the layout of the indices has a say in it."""
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
    order: list[int] = compute_elementwise_output_logical_to_physical_perm(source, *aligned)[0]
    return order


def fake_of(mode: FakeTensorMode, real: torch.Tensor, symbolic: StatefulSymbolicContext | None = None) -> torch.Tensor:
    """`real` without its values.  PyTorch looks at ``grad`` on the way, and warns where that is not kept."""
    source = None if symbolic is None else symbolic.tensor_source
    make = functools.partial(mode.from_tensor, static_shapes=symbolic is None, source=source, symbolic_context=symbolic)
    if real.is_inference():
        with torch.inference_mode(False):
            return make(_plain(real))
    if real.is_leaf:  # what it is a view of, and its gradient, would get symbols of their own
        return make(real if symbolic is None else _plain(real).requires_grad_(real.requires_grad))
    with unheard():
        return make(real)


def _plain(real: torch.Tensor) -> torch.Tensor:
    """A tensor of the same memory, and nothing else."""
    memory = real.untyped_storage(), real.storage_offset(), real.shape, real.stride()
    return torch.empty(0, dtype=real.dtype, device=real.device).set_(*memory)


@contextmanager
def left_to_eager(fn: Callable[..., Any]) -> Iterator[None]:
    """What an operation refuses on fake tensors is left to eager."""
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
        raise Unsupported("exception", f"{type(error).__name__}: {error}") from None


@contextmanager
def quiet() -> Iterator[None]:
    """What goes wrong on fake tensors goes wrong again on real ones, where the user sees it."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
