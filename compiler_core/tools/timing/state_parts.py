"""Parts of the state that a program changes, each of which is saved and restored."""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

_DESCRIPTORS = (types.GetSetDescriptorType, types.MemberDescriptorType)


class Part(Protocol):
    """The state of one object."""

    def restore(self) -> bool:
        """Restores the state; returns whether it had changed."""
        ...


class ValueState:
    """The state that `read` returns and `write` sets, such as the items of a list.

    `same` compares the present state with the saved one.
    """

    def __init__(
        self, read: Callable[[], Any], write: Callable[[Any], Any], same: Callable[[Any, Any], bool] = operator.eq
    ) -> None:
        self._read, self._write, self._same, self._saved = read, write, same, read()

    def restore(self) -> bool:
        if self._same(self._read(), self._saved):
            return False
        self._write(self._saved)
        return True


def items_state(value: dict[Any, Any]) -> Part:
    """Returns the items of a dict, in order."""

    def write(saved: Sequence[Any]) -> None:
        dict.clear(value)
        dict.update(value, zip(saved[::2], saved[1::2], strict=True))

    return ValueState(lambda: [part for item in dict.items(value) for part in item], write, _same_objects)


def elements_state(value: Any) -> Part:
    """Returns the elements of a list or deque, in order, or of a set."""
    is_set = isinstance(value, set)
    add = value.update if is_set else value.extend

    def write(saved: Any) -> None:
        value.clear()
        add(saved)

    return ValueState(lambda: (set if is_set else list)(value), write, operator.eq if is_set else _same_objects)


def array_state(array: Any) -> Part:
    """Returns the elements of a NumPy array."""
    write = functools.partial(operator.setitem, array, ...)
    return ValueState(array.copy, write, lambda one, other: one.tobytes() == other.tobytes())


def generator_state(read: Callable[[], Any], write: Callable[[Any], Any]) -> Part:
    """Returns the state of a random number generator, which is always written."""
    return ValueState(read, write, lambda one, other: False)


def _same_objects(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(map(operator.is_, one, other))


_MISSING: Any = object()


class NamedValues:
    """Values by name, of which some may be missing; `read` returns those that are there."""

    def __init__(
        self, read: Callable[[], dict[str, Any]], write: Callable[[str, Any], Any], delete: Callable[[str], Any]
    ) -> None:
        self._read, self._write, self._delete = read, write, delete
        self.saved = read()

    def restore(self) -> bool:
        current = self._read()
        gone = current.keys() - self.saved.keys()
        changed = {n: v for n, v in self.saved.items() if current.get(n, _MISSING) is not v}
        for name in gone:
            self._delete(name)
        for name, value in changed.items():
            self._write(name, value)
        return bool(gone or changed)


def global_names(namespace: dict[str, Any], names: set[str]) -> NamedValues:
    """Returns the global names that a function uses."""
    read = lambda: {name: namespace[name] for name in names if name in namespace}  # noqa: E731
    return NamedValues(read, namespace.__setitem__, namespace.__delitem__)


def slots_of(owner: Any, names: Sequence[str]) -> NamedValues:
    """Returns attributes that are read and written by name."""
    read = lambda: {name: getattr(owner, name) for name in names if hasattr(owner, name)}  # noqa: E731
    write, delete = (functools.partial(change, owner) for change in (object.__setattr__, object.__delattr__))
    return NamedValues(read, write, delete)


def class_attributes(cls: type) -> NamedValues:
    """Returns the attributes of a class, except descriptors."""

    def read() -> dict[str, Any]:
        kept = {n: v for n, v in vars(cls).items() if not n.startswith(("__", "_abc_"))}
        return {
            n: v for n, v in kept.items() if not isinstance(v, (*_DESCRIPTORS, property, classmethod, staticmethod))
        }

    write, delete = (functools.partial(change, cls) for change in (type.__setattr__, type.__delattr__))
    return NamedValues(read, write, delete)


def cell_content(cell: types.CellType) -> NamedValues:
    """Returns the content of a closure's cell, or that it has none."""
    read = lambda: {"cell_contents": cell.cell_contents} if has_value(cell) else {}  # noqa: E731
    return NamedValues(read, functools.partial(setattr, cell), functools.partial(delattr, cell))


class TensorState:
    """The state of a tensor without the bytes of its storage: the storage, shape, gradient, `requires_grad`."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor, self._grad, self._requires_grad = tensor, grad_of(tensor), tensor.requires_grad
        self._alias = tensor.detach() if storage_of(tensor) is not None else None
        self._layout = self._read_layout()

    def _read_layout(self) -> Any:
        storage = storage_of(self._tensor)
        if storage is None:
            return None
        return storage.data_ptr(), self._tensor.shape, self._tensor.stride(), self._tensor.storage_offset()

    def restore(self) -> bool:
        changed = False
        if self._alias is not None and self._read_layout() != self._layout:
            self._tensor.data = self._alias
            changed = True
        if self._tensor.is_leaf and self._tensor.requires_grad != self._requires_grad:
            self._tensor.requires_grad_(self._requires_grad)
            changed = True
        if grad_of(self._tensor) is not self._grad:
            self._tensor.grad = self._grad
            changed = True
        return changed


class StorageState:
    """The bytes of a storage, which several tensors may share."""

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self._storage = storage
        try:
            self._saved: Any = storage.clone()  # type: ignore[no-untyped-call]
        except torch.OutOfMemoryError:
            self._saved = storage.cpu()  # type: ignore[no-untyped-call]

    def restore(self) -> bool:
        if self._storage.nbytes() != self._saved.nbytes():
            self._storage.resize_(self._saved.nbytes())
        elif _equal_bytes(self._storage, self._saved):
            return False
        self._storage.copy_(self._saved)
        return True


def has_value(cell: types.CellType) -> bool:
    """Returns whether the variable of a closure is bound."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Returns the storage; None if the tensor has none with elements."""
    if tensor.is_meta or tensor.layout is not torch.strided:
        return None
    try:
        storage = tensor.untyped_storage()
        return storage if storage.data_ptr() else None
    except (RuntimeError, NotImplementedError, ValueError):
        return None


def grad_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """Returns the gradient of a leaf or of a tensor that retains it; None for others, for which PyTorch would warn."""
    return tensor.grad if tensor.is_leaf or tensor.retains_grad else None


def _equal_bytes(one: torch.UntypedStorage, other: torch.UntypedStorage) -> bool:
    if one.device != other.device:
        return False
    a, b = (torch.empty(0, dtype=torch.uint8, device=one.device).set_(each) for each in (one, other))
    return torch.equal(a, b)
