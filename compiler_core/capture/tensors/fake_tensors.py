"""Fake tensors, on which capture runs operations, with the shapes, strides and types that eager's kernels give."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch.fx.experimental.symbolic_shapes import StatefulSymbolicContext, free_unbacked_symbols, guard_or_false

from compiler_core.capture.tensors import checks
from compiler_core.capture.tensors.checks import runs_eagerly
from compiler_core.errors import Unsupported
from compiler_core.support.eager_warnings import VARIANCES, WarningCollector, silence_warnings
from compiler_core.support.fx_symbols import hint
from compiler_core.support.node_facts import custom_operator, squeeze_reduced_dims, written_tensors
from compiler_core.support.operators import Fact, facts, is_pointwise, like_argument
from compiler_core.support.subgraphs import OPERATORS
from compiler_core.support.tensors import MASK_TYPES, storage_id, tensors_in
from compiler_core.support.torch_state import has_ranks, set_device_guard
from compiler_core.torch_private import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    HigherOrderOperator,
    NestedIntNode,
    OpOverload,
    UnsupportedOperatorException,
    is_non_overlapping_and_dense_or_false,
    mkldnn_layout,
    output_permutation,
    set_conj,
    set_neg,
    suggest_memory_format,
    unsafe_preserve_version_counter,
)

set_device_guard()

aten = torch.ops.aten
CORRECTED = (
    Fact.DTYPE_OF_SELF | Fact.STRIDES_OF_SELF | Fact.CHANNELS_LAST_ON_CPU | Fact.CHANNELS_LAST_ON_CUDA
    | Fact.ROW_MAJOR | Fact.ROW_MAJOR_ON_CPU | Fact.ROW_MAJOR_ON_CUDA
    | Fact.POINTWISE_STRIDES | Fact.SCATTER | Fact.INDEXED_READ
)  # fmt: skip
CORRECTED_FOR_SOME = frozenset({aten.angle.default, aten.roll.default, aten.linalg_vector_norm.default})
"""The operators whose fake results `FakeMode._as_in_eager` changes: those of these facts, and these for some
arguments."""
OTHER_ORDER = Fact.ROW_MAJOR | Fact.OWN_ORDER
"""Of pointwise operators that do not choose strides as the others do."""


class FormatsOnDevice(NamedTuple):
    """The facts about the memory format of results of a device's kernels."""

    channels_last: Fact
    row_major: Fact


FORMATS_ON = {
    "cpu": FormatsOnDevice(Fact.CHANNELS_LAST_ON_CPU, Fact.ROW_MAJOR | Fact.ROW_MAJOR_ON_CPU),
    "cuda": FormatsOnDevice(Fact.CHANNELS_LAST_ON_CUDA, Fact.ROW_MAJOR | Fact.ROW_MAJOR_ON_CUDA),
}
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
    has_drawn = False
    """Whether an operator has drawn random numbers."""
    _called: dict[Any, None] | None = None
    _offsets: dict[tuple[Any, ...], Any] | None = None
    """The offsets of views by indices that data decide, by the tensor's layout and the index."""
    written: set[int]
    """The memory that operators have written to.  The inner tensors of a wrapper share no count of writes with views of
    them, which its class makes below autograd."""
    waits = False
    """Whether an operator has waited for data: they decide a size of its result, or whether it raises an error."""

    def create_symbolic_nested_int(self, *, nt_tensor_id: int | None = None) -> Any:
        """Returns the ragged size of offsets, which is equal to itself only; PyTorch would make it a symbol."""
        if nt_tensor_id is None:
            nt_tensor_id = self.nt_tensor_id_counter
            self.nt_tensor_id_counter += 1
        size: Any = torch.SymInt
        return size(NestedIntNode(nt_tensor_id, 1))

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.written = set()

    def forget_real_tensors(self) -> None:
        """Forgets which real tensors have fake ones.

        Otherwise the callback of a weak reference would run whenever one of them is freed, and Python prints and drops
        an interrupt that arrives there.
        """
        describer = self.fake_tensor_converter.meta_converter.describer
        describer.lookup_tensor.clear()
        describer.lookup_storage.clear()

    @contextmanager
    def noting_operators(self) -> Iterator[Collection[Any]]:
        """Yields the operators that are called in the block, in order."""
        before, self._called = self._called, {}
        try:
            yield self._called.keys()
        finally:
            self._called = before

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if isinstance(func, HigherOrderOperator):
            return super().dispatch(func, types, args, kwargs)  # type: ignore[arg-type]
        if any(hasattr(each, "__tensor_flatten__") for each in types):
            return NotImplemented  # the class calls operators on its inner tensors
        known = facts(func)
        if self._called is not None and not self._in_operator:
            self._called[func] = None
        self.has_drawn |= torch.Tag.nondeterministic_seeded in func.tags
        if _reads_values(func, args, kwargs):
            self.waits = True
        if _makes_quantised(func, (*args, *(kwargs or {}).values())):
            raise Unsupported("unsupported operation", f"{func} makes a quantised tensor")
        if func is aten._linalg_check_errors.default:
            # a graph of the CPU has the check itself (`autograd/trace/writes.py`); if it fails, the frame runs again
            self.waits |= args[0].device.type != "cpu" or has_ranks()
            return None
        if func in checks.CHECKS:
            with self:
                checks.CHECKS[func](*args, **(kwargs or {}))
        checks.check_write(func, args, kwargs or {})
        if self.warnings is not None and not self._in_operator:
            if func in VARIANCES and _has_unbacked_size(args[0]):
                self.waits = True  # data decide whether the kernel warns, so it runs as it is
            else:
                self.warnings.note_kernel(func, args, kwargs or {})
        if not self._in_operator:
            checks.check_types(func, args, kwargs or {})
        outs = [(t, t.shape, _may_be_resized(t)) for t in checks.out_arguments(func, kwargs)] if kwargs else []
        inside, self._in_operator = self._in_operator, True
        try:
            if Fact.INDEXED_READ in known:
                with self:
                    args = (args[0], _unsqueeze_scalar_indices(args[1]), *args[2:])
            if Fact.INTERPOLATION_GRADIENT in known:
                gradient, size, input_size = args[:3]
                if any(isinstance(each, torch.SymInt) for each in (*size, *input_size)):
                    with self:
                        return gradient.new_empty(input_size).to(memory_format=suggest_memory_format(gradient))
            if func is aten.select.int and isinstance(args[-1], torch.SymInt) and free_unbacked_symbols(args[-1]):
                result: Any = self._select(types, args)
            else:
                result = super().dispatch(func, types, args, kwargs or {})
        finally:
            self._in_operator = inside
        if isinstance(result, torch.Tensor) and result.layout is mkldnn_layout:
            # the fake results of operators on it have another layout
            raise Unsupported("unsupported operation", f"{func} makes a tensor of layout mkldnn")
        if custom_operator(func) is not None and any(map(_has_unbacked_size, tensors_in(result))):
            self.waits = True
        if written := written_tensors(func, args, kwargs or {}):
            torch.autograd.graph.increment_version(written)
            self.written.update(storage_id(t) for t in written if t.layout is torch.strided)
        if any(not resizable and tensor.shape != before for tensor, before, resizable in outs):
            raise Unsupported("unsupported operation", f"{func} resizes an out= tensor that has elements or is a view")
        if known & CORRECTED or func in CORRECTED_FOR_SOME:
            result = self._as_in_eager(result, func, types, args, kwargs or {})
        if isinstance(result, tuple) and Fact.LIKE_FIRST in known:
            return tuple(self._in_eagers_order(each, func, args, kwargs or {}) for each in result)
        return self._in_eagers_order(result, func, args, kwargs or {})

    def _select(self, types: Any, args: Any) -> Any:
        """Returns the fake ``tensor.select(dim, index)`` for an index that data decide.

        PyTorch gives each such view another offset.  Of the same index it is the same, so ``y[n] += 1`` can be
        seen to write to the memory that it reads.
        """
        tensor, dim, index = args
        numbers = (tensor.storage_offset(), tensor.stride(dim), tensor.shape[dim], index)
        key = tuple(n.node.expr if isinstance(n, torch.SymInt) else n for n in numbers)
        if self._offsets is None:
            self._offsets = {}
        if key not in self._offsets:
            result: Any = super().dispatch(aten.select.int, types, args, {})
            self._offsets[key] = result.storage_offset()
            return result
        self.waits = True
        shape, strides = list(tensor.shape), list(tensor.stride())
        del shape[dim], strides[dim]
        return super().dispatch(aten.as_strided.default, types, (tensor, shape, strides, self._offsets[key]), {})

    def _as_in_eager(self, result: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Returns the fake result of an operator with the strides and type that eager's kernel gives it."""
        known = facts(func)
        if (order := _memory_format(func, _device_of(result), args)) is not None:
            return self._in_memory_format(result, order)
        if Fact.POINTWISE_STRIDES in known:
            first, second = args[:2]
            if func is aten.ldexp.Tensor:  # it multiplies by a row-major power of two
                with self:
                    second = torch.empty_like(second, memory_format=torch.contiguous_format)
            like: Any = super().dispatch(aten.add.Tensor, types, (first, second), {})
            return self._with_strides(result, like.stride())
        if Fact.STRIDES_OF_SELF in known:
            argument = like_argument(func, args)
            if result.dim() != argument.dim():  # a mean or a sum: one element
                return result
            with self:
                return self._with_strides(result, torch.empty_like(argument).stride())
        if Fact.SCATTER in known and checks.has_repeated_elements(result):
            with self:
                return torch.empty_like(result)
        if func is aten.roll.default and _is_rolled_channels_last(*args):
            with self:
                return _roll(*args)
        if Fact.INDEXED_READ in known and (places := _indexed_dim_order(args[0], args[1], result.shape)):
            with self:
                return torch.empty_permuted(result.shape, places, dtype=result.dtype, device=result.device)
        if func is aten.linalg_vector_norm.default and result.dim() == args[0].dim():
            with self:
                return squeeze_reduced_dims(result, *args[1:], **kwargs)
        if Fact.DTYPE_OF_SELF in known:
            with self:
                return result.to(like_argument(func, args).dtype)
        return result

    def _in_eagers_order(self, result: Any, func: Any, args: Any, kwargs: Any) -> Any:
        """Returns a result with eager's strides also for dimensions of size 1, of which PyTorch's fake tensors choose
        others."""
        if not is_ambiguous(result):
            return result
        known = facts(func)
        if Fact.LIKE_FIRST in known and kwargs.get("memory_format") in (None, torch.preserve_format):
            strides = strides_like(args[0])
        elif is_pointwise(func) and not known & OTHER_ORDER and not func._schema.is_mutable:
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
                return self._with_strides(result, torch.empty(result.shape, memory_format=order).stride())
        shape = next(r.shape for r in result if r is not None)
        # the ranks first: torch.Size would compare a symbolic batch with a number of channels
        return tuple(
            self._in_memory_format(r, order) if r is not None and r.dim() == len(shape) and r.shape == shape else r
            for r in result
        )

    def _with_strides(self, result: torch.Tensor, strides: Sequence[Any]) -> torch.Tensor:
        if all(guard_or_false(a == b) for a, b in zip(result.stride(), strides, strict=True)):
            return result
        with self:
            return torch.empty_strided(result.shape, strides, dtype=result.dtype, device=result.device)


for _operator in OPERATORS.values():  # PyTorch looks for the rule of exactly this class, for backends of others
    _operator.py_impl(FakeMode)(_operator.python_key_table[FakeTensorMode])


def _device_of(result: Any) -> str:
    """Returns the type of the device of a result, or of the first of several."""
    results = [result] if isinstance(result, torch.Tensor) else result
    return next(r.device.type for r in results if r is not None)


def _memory_format(func: Any, device: str, args: Sequence[Any]) -> torch.memory_format | None:
    """Returns the memory format that eager's kernel gives its results, if the tables say."""
    known, on_device = facts(func), FORMATS_ON.get(device)
    if on_device and on_device.channels_last in known:
        return suggest_memory_format(like_argument(func, args))
    is_row_major = bool(known & (on_device.row_major if on_device else Fact.ROW_MAJOR))
    is_row_major |= func is aten.angle.default and args[0].is_complex()
    return torch.contiguous_format if is_row_major else None


def _may_be_resized(tensor: torch.Tensor) -> bool:
    """Returns whether ``out=`` may resize a tensor in a graph: without elements, and no view."""
    return not tensor.untyped_storage().nbytes() and not tensor._is_view()


def _makes_quantised(func: Any, arguments: Sequence[Any]) -> bool:
    if any(type(a) is torch.dtype and a in QUANTISED for a in arguments):
        return True
    return func.namespace == "quantized" or "quantized_tensor" in func.__name__


def _reads_values(func: Any, args: Sequence[Any], kwargs: Any) -> bool:
    """Whether the result of an operator, or the gradient of its values, has a size that data decide, or is a number."""
    known = facts(func)
    if Fact.INDEXED_READ in known:
        return any(index is not None and index.dtype in MASK_TYPES for index in args[1])
    if Fact.INDEXED_WRITE in known:
        return _needs_picked_size(*args[1:3])
    if torch.Tag.dynamic_output_shape in func.tags:
        return (kwargs or {}).get("output_size") is None
    return torch.Tag.data_dependent_output in func.tags


def _has_unbacked_size(tensor: torch.Tensor) -> bool:
    """Returns whether data decide a size of a fake tensor."""
    return any(isinstance(size, torch.SymInt) and free_unbacked_symbols(size) for size in tensor.shape)


def _needs_picked_size(indices: Sequence[torch.Tensor | None], values: torch.Tensor) -> bool:
    """Whether the gradient of the values has as many elements as a mask picks: ``x[mask] = values``."""
    has_mask = any(index is not None and index.dtype in MASK_TYPES for index in indices)
    return has_mask and values.requires_grad and torch.is_grad_enabled()


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
    given = [index for index in indices if index is not None and index.dtype not in MASK_TYPES]
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
    if real.is_leaf and symbolic is None:
        return make(real)
    is_of_nested = real._is_view() and cast(torch.Tensor, real._base).is_nested  # PyTorch 2.11 has no symbols for it
    if real.is_leaf or is_of_nested:  # otherwise its base, if it is a view, and its gradient would get symbols, too
        return make(_alias_of(real).requires_grad_(real.requires_grad))
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
"""What an operator without a rule for fake tensors says when it reads values: a RuntimeError of C++, of which only the
text says that it is this one."""
_NO_FAKE = "no fake impl"
"""What the RuntimeError of a custom operator without a fake implementation says."""


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
        if operator := custom_operator(fn):
            raise Unsupported("custom operator", f"{operator} has no fake implementation") from None
        raise Unsupported("unsupported call", f"{name}: {error}") from None
    except Unsupported:
        raise
    except Exception as error:
        if _NEEDS_DATA in str(error):
            raise Unsupported("tensor value read", f"{name} reads the values of its arguments") from None
        if _NO_FAKE in str(error) and (operator := custom_operator(fn)):
            raise Unsupported("custom operator", f"{operator} has no fake implementation") from None
        text = f"{type(error).__name__}: {error}"
        if fn is not torch.autograd.grad and runs_eagerly(fn, args, kwargs or {}):
            raise Unsupported("unsupported call", f"PyTorch cannot run {name} on fake tensors: {text}") from None
        raise Unsupported("exception", text) from None


def batch_norm(*args: Any, **kwargs: Any) -> torch.Tensor:
    """``F.batch_norm`` on fake tensors, which counts the writes to the running statistics after the call.

    Autograd saves the statistics, and eager PyTorch's kernels do not count their writes to them; the decomposition for
    fake tensors does, so that a backward would find them modified.
    """
    given = _BATCH_NORM.bind(*args, **kwargs).arguments
    statistics = {name: given[name] for name in ("running_mean", "running_var")}
    if not given.get("training") or any(t is None for t in statistics.values()):
        return F.batch_norm(**given)
    copies = {name: t.clone() for name, t in statistics.items()}
    with unsafe_preserve_version_counter(tuple(copies.values())):
        result = F.batch_norm(**given | copies)
    torch.autograd.graph.increment_version([*statistics.values()])
    return result


_BATCH_NORM = inspect.signature(F.batch_norm)


@contextmanager
def muted_fake_log() -> Iterator[None]:
    """Mutes PyTorch's log of errors on fake tensors: the user sees the same error on real tensors."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


# ---------------------------------------------------------------- the strides of results
#
# Elementwise operators have the strides that PyTorch's TensorIterator chooses; fake tensors choose others where a
# dimension has size 1.  The rules are those of ``TensorIteratorBase::build``: operands of one shape that are all
# contiguous, or all in one dense order, give their order to the result; otherwise the dimensions are sorted by the
# strides of the operands, of which the first that can tell decides.


Sizes = Sequence[Any]
_NUMBERS = (int, float, complex, torch.SymInt, torch.SymFloat, torch.SymBool)
_NUMBER = torch.empty(())
_WRAPPED = ("self", "other")
"""The names of numbers that kernels take as tensors without a dimension."""


def operands_of(func: OpOverload, args: Sequence[Any]) -> list[torch.Tensor]:
    """Returns what an elementwise operator's kernel reads, in order."""
    found = []
    for argument, value in zip(func._schema.arguments, args, strict=False):
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, _NUMBERS) and (str(argument.type) == "Tensor" or argument.name in _WRAPPED):
            found.append(_NUMBER)
    return found[::-1] if func is torch.ops.aten.threshold_backward.default else found


def strides_like(tensor: torch.Tensor) -> list[Any]:
    """Returns the strides of ``torch.empty_like(tensor)``."""
    if is_non_overlapping_and_dense_or_false(tensor):
        return list(tensor.stride())
    return strides_in_order(_order([tensor], tensor.shape), tensor.shape)


def is_ambiguous(result: Any) -> bool:
    """Whether the result of an operator is a tensor with a dimension of size 1, whose stride is any number."""
    is_strided = isinstance(result, torch.Tensor) and result.layout is torch.strided
    return is_strided and any(isinstance(size, int) and size == 1 for size in result.shape)


def result_strides(operands: Sequence[torch.Tensor], shape: Sizes) -> list[Any]:
    """Returns the strides of a result with this shape; operands that were numbers are tensors without a dimension."""
    if all(list(each.shape) == list(shape) for each in operands):
        if (fast := _strides_of_all(operands)) is not None:
            return fast
    return strides_in_order(_order(operands, shape), shape)


def _strides_of_all(operands: Sequence[torch.Tensor]) -> list[Any] | None:
    first = operands[0]
    if all(each.is_contiguous() for each in operands):
        return strides_in_order(range(first.dim() - 1, -1, -1), first.shape)
    if first.dim() == 4 and all(each.is_contiguous(memory_format=torch.channels_last) for each in operands):
        return strides_in_order([1, 3, 2, 0], first.shape)
    is_dense = all(is_non_overlapping_and_dense_or_false(each) for each in operands)
    return list(first.stride()) if is_dense and all(each.stride() == first.stride() for each in operands) else None


def strides_in_order(order: Sequence[int], shape: Sizes) -> list[Any]:
    """Returns the strides of a dense tensor whose dimensions are in this order in memory, the fastest first."""
    strides, reached = [1] * len(shape), 1
    for dim in order:
        strides[dim] = reached
        reached = reached * shape[dim]
    return strides


def _order(operands: Sequence[torch.Tensor], shape: Sizes) -> list[int]:
    sizes = [hint(size) for size in shape]
    strides = [_aligned_strides(each, sizes) for each in operands]
    order = list(range(len(sizes) - 1, -1, -1))
    for i in range(1, len(order)):  # an insertion sort: the comparison may not tell
        at = i
        for before in range(i - 1, -1, -1):
            comparison = _compare(strides, sizes, order[before], order[at])
            if comparison > 0:
                order[before], order[at] = order[at], order[before]
                at = before
            elif comparison < 0:
                break
    return order


def _aligned_strides(operand: torch.Tensor, sizes: Sequence[int]) -> list[int]:
    """Returns an operand's strides by dimension of the result, 0 where it is repeated."""
    new = len(sizes) - operand.dim()
    own = [
        0 if hint(size) == 1 and sizes[new + i] != 1 else hint(stride)
        for i, (size, stride) in enumerate(zip(operand.shape, operand.stride(), strict=True))
    ]
    return [0] * new + own


def _compare(strides: Sequence[Sequence[int]], sizes: Sequence[int], first: int, second: int) -> int:
    """Returns 1 if the first dimension comes after the second one, -1 if before, and 0 if no operand tells."""
    for each in strides:
        if each[first] == 0 or each[second] == 0:
            continue
        if each[first] != each[second]:
            return 1 if each[first] > each[second] else -1
        if sizes[first] > sizes[second]:
            return 1
    return 0
