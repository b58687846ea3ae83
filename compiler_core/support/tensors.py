"""The tensors in a nested value, and which of them share memory."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from compiler_core.support.fx_symbols import hint
from compiler_core.support.size_expr import are_dense, span
from compiler_core.support.transform_levels import unwrapped
from compiler_core.torch_private import DisableTorchFunctionSubclass

HALF_TYPES = (torch.bfloat16, torch.float16)
MASK_TYPES = (torch.bool, torch.uint8)
"""The types of an index that picks elements, how many depends on its values."""


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Returns the tensors in a value, or in nested lists and tuples of values, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


def new_like(tensor: torch.Tensor) -> torch.Tensor:
    """Returns an uninitialised tensor like `tensor`, also with its gaps in memory."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def without_repeats(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a view with one element of each dimension that `expand` made, whose elements share memory."""
    for d, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(d, 0, 1)
    return tensor


def is_dense(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor has neither gaps nor elements that share memory."""
    return are_dense(tensor.shape, tensor.stride(), hint)


def storage_id(tensor: torch.Tensor) -> int:
    """Returns a number that is equal for tensors, fake ones and those of transforms included, that share their storage.

    It is valid while the storage is alive.
    """
    storage: Any = unwrapped(tensor).untyped_storage()
    return int(storage._cdata)


def extent(tensor: torch.Tensor) -> tuple[Any, Any]:
    """Returns the first byte of the tensor in its storage, and the one after its last."""
    size = tensor.element_size()
    start = tensor.storage_offset() * size
    if is_dense(tensor):
        return start, start + tensor.numel() * size
    return start, start + span(tensor.shape, tensor.stride()) * size


def writes_reach_others(
    written: Sequence[torch.Tensor], others: Sequence[torch.Tensor], has_backward: bool = True
) -> bool:
    """Returns whether a write to a tensor in `written` may change another one in either list.

    Tensors may have parts of one storage that are apart, as flat parameters, the weights of a recurrent layer on a GPU,
    and caches of keys and values.  If something is saved for a backward, a view is changed together with what it is a
    view of, since they have one version.  Symbolic sizes are not compared.
    """
    by_storage: dict[int, list[tuple[torch.Tensor, int, bool]]] = {}
    for at, tensor in enumerate((*written, *others)):
        by_storage.setdefault(storage_id(tensor), []).append((unwrapped(tensor), at, at < len(written)))
    for uses in by_storage.values():
        if len(uses) > 1 and any(is_written for *_, is_written in uses):
            parts = [(*extent(tensor), at, is_written) for tensor, at, is_written in uses if tensor.numel()]
            if has_backward and any(t._is_view() for t, *_ in uses):
                return True
            if not all(type(start) is int and type(end) is int for start, end, *_ in parts):
                return True
            if parts_overlap(parts):
                return True
    return False


def parts_overlap(parts: Iterable[tuple[Any, Any, int, bool]]) -> bool:
    """Returns whether parts of a storage overlap at two positions of which one is written.

    A part is its first byte, the one after its last, its position, and whether it is written.
    """
    parts = sorted(parts)
    for number, (_, end, at, is_written) in enumerate(parts):
        for start, _, other, other_is_written in (parts[i] for i in range(number + 1, len(parts))):
            if start >= end:
                break
            if at != other and (is_written or other_is_written):
                return True
    return False


def without_class(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a plain tensor over the same memory, with the same autograd history, for one of a subclass."""
    with DisableTorchFunctionSubclass():
        return tensor.as_subclass(torch.Tensor)


def has_own_kernels(tensor: torch.Tensor) -> bool:
    """Returns whether the tensor's class computes operators itself, by ``__torch_dispatch__``: its memory may be
    elsewhere."""
    return type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


# ---------------------------------------------------------------- wrapper subclasses


def is_wrapper(value: Any) -> bool:
    """Returns whether a value is a tensor of a class that computes with inner tensors, which it names."""
    cls = type(value)  # an attribute of the tensor itself could run code of the program
    is_named = hasattr(cls, "__tensor_flatten__") and hasattr(cls, "__tensor_unflatten__")
    return is_named and isinstance(value, torch.Tensor) and not cls.__module__.startswith("torch.distributed.")


def fake_wrapper(real: Any, fake_of: Callable[[str], torch.Tensor], mode: Any) -> torch.Tensor:
    """Returns a wrapper like `real` of the fake inner tensors that `fake_of` gives by name."""
    names, context = real.__tensor_flatten__()
    inner = {name: fake_of(name) for name in names}
    with mode, DisableTorchFunctionSubclass(), torch.no_grad():
        fake: torch.Tensor = type(real).__tensor_unflatten__(inner, context, real.size(), real.stride())
        return fake.requires_grad_(real.requires_grad)


def context_text(tensor: Any) -> str | None:
    """Returns what else ``__tensor_flatten__`` says of a wrapper, as text; None if it is more than plain data."""
    try:
        return _plain_text(tensor.__tensor_flatten__()[1])
    except TypeError:
        return None


def _plain_text(value: Any) -> str:
    """Returns a text that is equal for equal values only; raises TypeError for what may have another state."""
    cls = type(value)
    if value is None or cls in _PLAIN_TYPES or isinstance(value, enum.Enum):
        return repr(value)
    if cls is dict:
        items = [each for pair in value.items() for each in pair]
    elif dataclasses.is_dataclass(value):
        items = [getattr(value, field.name) for field in dataclasses.fields(value)]
    elif cls is list or isinstance(value, tuple):
        items = list(value)
    else:
        raise TypeError
    return f"{cls.__qualname__}({', '.join(map(_plain_text, items))})"


_PLAIN_TYPES = (
    int, float, bool, complex, str, bytes, torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip


def is_ragged_size(size: Any) -> bool:
    """Returns whether a size is that of the ragged dimension of a jagged tensor, which is no number."""
    return isinstance(size, torch.SymInt) and bool(size.node.is_nested_int())


def gradient_function(tensor: torch.Tensor) -> Any:
    """Returns ``tensor.grad_fn``; None for a view made under ``no_grad`` that was written to, which refuses to tell."""
    try:
        return tensor.grad_fn
    except RuntimeError:
        return None


def history(fake: torch.Tensor) -> Iterator[Any]:
    """Yields the functions of autograd behind a tensor."""
    waiting, seen = [gradient_function(fake)], set[Any]()
    while waiting:
        step = waiting.pop()
        if step is not None and step not in seen:
            seen.add(step)
            yield step
            waiting += [before for before, _ in step.next_functions]


def is_freed(step: Any) -> bool:
    """Whether a backward has freed what a function of autograd had saved: reading it raises."""
    for name in (each for each in dir(step) if each.startswith("_raw_saved_")):
        try:
            saved = getattr(step, name)  # one of a user's function raises here
            # only those without data are read: None was saved, or it was freed; others could call a user's hooks
            if any(each.data is None for each in (saved if isinstance(saved, tuple) else (saved,))):
                getattr(step, name.removeprefix("_raw"), None)
        except RuntimeError:
            return True
    return False


def compute_gradients(*args: Any, **kwargs: Any) -> tuple[torch.Tensor | None, ...]:
    """``torch.autograd.grad`` in this thread: modes that trace, and fake tensors of a GPU, need that."""
    with torch.autograd.set_multithreading_enabled(False):
        found: tuple[torch.Tensor | None, ...] = torch.autograd.grad(*args, **kwargs)
        return found
