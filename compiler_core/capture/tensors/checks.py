"""Checks of arguments that eager's kernels make and PyTorch's fake ones do not: types, numbers, writes to memory.

Without them a kernel of ours could read behind a tensor that is smaller than the operator's other arguments.  What they
raise breaks the graph, and eager's kernel raises its own error.
"""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from compiler_core.errors import Unsupported
from compiler_core.support.eager_warnings import silence_warnings, warn_always
from compiler_core.support.fx_symbols import hint
from compiler_core.support.node_facts import custom_operator
from compiler_core.support.operators import Fact, facts, is_pointwise
from compiler_core.support.tensors import MASK_TYPES, extent, is_dense, parts_overlap, storage_id, tensors_in
from compiler_core.torch_private import (
    OpOverload,
    OpOverloadPacket,
    disable_current_modes,
    tree_leaves,
    tree_map_only,
    unset_fake_temporarily,
)

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
    if all(index is None or index.dtype not in MASK_TYPES for index in indices):
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


# ------------------------------------------------------------ writes to memory that overlaps itself or what is read
#
# Eager PyTorch raises an error for most of these, warns about some and runs others, by rules of each kernel.
# Functionalization runs them all, and computes wrong values for writes to elements that share memory.  So none of them
# is captured, and eager PyTorch runs them.

MOST_ELEMENTS_COMPARED = 1 << 22


def check_write(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raises `Unsupported` if the operator `func` would write to overlapping memory."""
    places = _written_arguments(func)
    if not places:
        return
    names = [argument.name for argument in func._schema.arguments]
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    if _takes_lists(func):
        if _positions_overlap(given, places):
            raise Unsupported("overlapping write", f"{func} to memory that another position of its lists shares")
        return
    written = [t for name in places for t in _strided_tensors(given.get(name))]
    read = [t for name, value in given.items() if name not in places for t in _strided_tensors(value)]
    for target in written:
        if has_repeated_elements(target):
            raise Unsupported("overlapping write", f"{func} to a tensor whose elements share memory")
        if any(_overlap(target, source, _may_read_itself(func)) for source in read):
            raise Unsupported("overlapping write", f"{func} to memory that it reads as another tensor")


@functools.cache
def _written_arguments(func: Any) -> frozenset[str]:
    """Returns the names of the arguments whose elements an operator of PyTorch writes."""
    if not isinstance(func, OpOverload) or func.namespace != "aten":
        return frozenset()
    if torch.Tag.inplace_view in func.tags or func.__name__.startswith(("set_", "resize")):
        return frozenset()
    arguments = func._schema.arguments
    return frozenset(a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write)


def _takes_lists(func: Any) -> bool:
    """Returns whether the operator changes lists of tensors, one position after the other."""
    return bool(func.__name__.startswith(("_foreach", "_fused")))


def _positions_overlap(given: Mapping[str, Any], places: frozenset[str]) -> bool:
    """Returns whether a position of the lists shares memory with another one that is written.

    Then it matters that eager takes one after the other, and the functional form reads all before it writes.
    """
    by_storage: dict[int, list[tuple[Any, Any, int, bool]]] = {}
    for name, value in given.items():
        for at, tensor in enumerate(value if isinstance(value, (list, tuple)) else ()):
            for each in _strided_tensors(tensor):
                by_storage.setdefault(storage_id(each), []).append((*extent(each), at, name in places))
    for uses in by_storage.values():
        if len({at for _, _, at, _ in uses}) > 1 and any(is_written for *_, is_written in uses):
            if parts_overlap(uses):
                return True
    return False


def out_arguments(func: Any, kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """Returns the tensors that an operator writes to and that are passed by keyword, such as ``out=``."""
    return [t for name in _written_arguments(func) if name in kwargs for t in _strided_tensors(kwargs[name])]


@functools.cache
def _may_read_itself(func: Any) -> bool:
    """Returns whether the written tensor may be a second argument too: each element is read before it is written."""
    return is_pointwise(func) or func is aten.copy_.default


def _strided_tensors(value: Any) -> list[torch.Tensor]:
    return [tensor for tensor in tensors_in(value) if tensor.layout is torch.strided]


def has_repeated_elements(tensor: torch.Tensor) -> bool:
    """Returns whether a dimension has stride 0, so that elements share memory.  Eager does not look for other overlaps,
    either."""
    return any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)) and bool(
        tensor.numel()
    )


def _overlap(written: torch.Tensor, read: torch.Tensor, may_be_same: bool) -> bool:
    """Returns whether two tensors share memory.  Those without gaps are compared by the rules of eager's kernels.  What
    eager's kernels write to those with gaps depends on the order in which they go through the elements.

    `may_be_same`: exactly the same memory in the same order does not count as an overlap.
    """
    if written is read or storage_id(written) != storage_id(read):
        return written is read and not may_be_same
    if not (written.numel() and read.numel()):
        return False
    if not (is_dense(written) and is_dense(read)):
        return not (may_be_same and _same_elements(written, read)) and _share_an_element(written, read)
    (start, end), (other_start, other_end) = extent(written), extent(read)
    if start == other_start and end == other_end:
        return not (may_be_same and written.stride() == read.stride())
    return bool(start < other_end and other_start < end)


def _same_elements(a: torch.Tensor, b: torch.Tensor) -> bool:
    return (a.shape, a.stride(), a.storage_offset()) == (b.shape, b.stride(), b.storage_offset())


def _share_an_element(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Returns whether an element of `a` is one of `b`; False if they are too large to look, or have symbolic sizes."""
    end = max(extent(a)[1], extent(b)[1]) // a.element_size()
    sizes = (end, *a.shape, *b.shape, *a.stride(), *b.stride())
    if a.dtype != b.dtype or not all(isinstance(size, int) for size in sizes) or end > MOST_ELEMENTS_COMPARED:
        return False
    with disable_current_modes():
        memory = torch.zeros(end, dtype=torch.bool, device="cpu")
        memory.as_strided(a.shape, a.stride(), a.storage_offset()).fill_(True)
        return bool(memory.as_strided(b.shape, b.stride(), b.storage_offset()).any())


# ------------------------------------------------------------ types, and numbers that overflow


def check_types(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raises Unsupported if eager's CPU kernel of a pointwise operator or a norm raises for arguments of these types.

    The operator then runs eagerly, after a graph break, and raises there.  A kernel of ours would compute something:
    ``x - mask`` with a float and a bool.
    """
    values = (*args, *kwargs.values())
    types = {value.dtype for value in values if isinstance(value, torch.Tensor)}
    if overflows := _overflows(values, kwargs.get("dtype"), types):
        _check_number(func, args, kwargs, overflows)
        return
    if len(types) == 1 and next(iter(types)).is_floating_point:
        return
    if Fact.NORM in facts(func):
        error = _error_of_norm(args[0], types)
    elif not is_pointwise(func) or torch.Tag.nondeterministic_seeded in func.tags:
        return
    elif all(map(_is_plain, values)):
        error = _error_of_kernel(func, args, kwargs)
    else:
        return
    if error:
        raise Unsupported("unsupported operation", f"{func} raises in eager: {error}")


def _overflows(values: Sequence[Any], dtype: Any, types: set[torch.dtype]) -> str:
    """Returns why a number does not fit the floating-point type of a call, or an empty text."""
    if not any(type(value) is float and _LEAST_LIMIT < abs(value) < math.inf for value in values):
        return ""
    floats = [t for t in ({dtype} if isinstance(dtype, torch.dtype) else types) if t.is_floating_point]
    limit = min((torch.finfo(t).max for t in floats), default=math.inf)
    found = [value for value in values if type(value) is float and limit < abs(value) < math.inf]
    return f"{found[0]} does not fit the type" if found else ""


_LEAST_LIMIT = 400.0
"""No floating-point type's greatest number is less."""


def _check_number(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], overflows: str) -> None:
    """Raises Unsupported unless the kernel takes the number, as that of a sum does, whose result is infinite."""
    values = (*args, *kwargs.values())
    if is_pointwise(func) and all(isinstance(v, torch.Tensor) or _is_plain(v) for v in values):
        overflows = _error_of_kernel(func, args, kwargs) or ""
    if overflows:
        raise Unsupported("unsupported operation", f"{func} may raise in eager: {overflows}")


def _error_of_kernel(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    given = tuple(map(_described, args))
    return _error(func, given, tuple((name, _described(value)) for name, value in kwargs.items()))


def _error_of_norm(x: torch.Tensor, types: set[torch.dtype]) -> str | None:
    """Returns why the CPU kernel refuses these types, or None; half types may have float32 parameters."""
    taken = {x.dtype, torch.float32} if x.dtype in (torch.bfloat16, torch.float16) else {x.dtype}
    return None if x.device.type != "cpu" or types <= taken else "its parameters have other types"


def _is_plain(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.device.type == "cpu" and value.layout is torch.strided
    return value is None or isinstance(value, (int, float, complex, str, torch.dtype, torch.SymInt, torch.SymFloat))


def _described(value: Any) -> tuple[str, Any]:
    """Returns the kind of an argument, and what of it decides whether the kernel takes it."""
    if isinstance(value, torch.Tensor):
        return "tensor", (value.dtype, value.dim() > 0)
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return type(value).__name__, 1 if isinstance(value, torch.SymInt) else 1.0
    return type(value).__name__, value


@functools.lru_cache(maxsize=4096)
def _error(func: Any, args: tuple[tuple[str, Any], ...], kwargs: tuple[tuple[str, tuple[str, Any]], ...]) -> str | None:
    """Calls the operator with tensors of one element; returns the message of its exception, or None."""
    with unset_fake_temporarily(), silence_warnings(), warn_always():
        try:
            func(*map(_value, args), **{name: _value(each) for name, each in kwargs})
        except Exception as error:
            return str(error).partition("\n")[0]
    return None


def _value(described: tuple[str, Any]) -> Any:
    kind, value = described
    if kind != "tensor":
        return value
    dtype, has_dims = value
    return torch.ones((1,) if has_dims else (), dtype=dtype)


# ------------------------------------------------------------ whether an operation that failed on fake tensors runs

MAX_ELEMENTS = 1 << 20
"""Tensors with more elements, in all arguments, are not made for a trial."""


def runs_eagerly(fn: Any, args: Any, kwargs: Any) -> bool:
    """Returns whether eager PyTorch runs ``fn(*args, **kwargs)`` on tensors with the sizes and types of the fake ones.

    Returns False also if that is not known: for a function of the user, for views, to whose base an operation may
    object, and for large tensors.
    """
    tensors = [t for t in tree_leaves((args, kwargs, _owner(fn))) if isinstance(t, torch.Tensor)]
    if not _is_pytorchs(fn) or any(t._is_view() or t.layout is not torch.strided for t in tensors):
        return False
    if sum(hint(t.numel()) for t in tensors) > MAX_ELEMENTS:
        return False
    return any(_runs_on(value, fn, args, kwargs) for value in (0, 1))


def _owner(fn: Any) -> Any:
    return getattr(fn, "__self__", None)


def _is_pytorchs(fn: Any) -> bool:
    if custom_operator(fn) is not None:
        return False
    kinds = (OpOverload, OpOverloadPacket, types.BuiltinFunctionType, types.MethodDescriptorType)
    return isinstance(fn, kinds) or (isinstance(fn, types.FunctionType) and fn.__module__.startswith("torch."))


def _runs_on(value: int, fn: Any, args: Any, kwargs: Any) -> bool:
    """Returns whether `fn` runs on tensors with this value in each element."""
    made: dict[int, torch.Tensor] = {}

    def real(fake: torch.Tensor) -> torch.Tensor:
        if id(fake) not in made:
            size, stride = list(map(hint, fake.shape)), list(map(hint, fake.stride()))
            plain = torch.empty_strided(size, stride, dtype=fake.dtype, device=fake.device).fill_(value)
            made[id(fake)] = plain.requires_grad_() if fake.requires_grad else plain
            if fake.requires_grad and not fake.is_leaf:
                made[id(fake)] = made[id(fake)].clone()
        return made[id(fake)]

    initialised: Any = torch.cuda.is_initialized  # asking for a state initialises CUDA
    gpus = range(torch.cuda.device_count()) if initialised() else ()
    try:
        with disable_current_modes(), silence_warnings(), torch.random.fork_rng(gpus):
            if isinstance(owner := _owner(fn), torch.Tensor):
                fn = getattr(real(owner), fn.__name__)
            given, named = tree_map_only(torch.Tensor, real, (args, kwargs))
            given, named = tree_map_only((torch.SymInt, torch.SymFloat, torch.SymBool), hint, (given, named))
            fn(*given, **named)
    except Exception:
        return False
    return True
