"""Parts of the state that a program changes: one class for each kind of object, which saves and restores it."""

from __future__ import annotations

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


class DictState:
    """The items of a dict, in order."""

    def __init__(self, value: dict[Any, Any]) -> None:
        self._value, self._saved = value, list(dict.items(value))

    def restore(self) -> bool:
        current = dict.items(self._value)
        pairs = zip(current, self._saved, strict=False)
        if len(current) == len(self._saved) and all(k is a and v is b for (k, v), (a, b) in pairs):
            return False
        dict.clear(self._value)
        dict.update(self._value, self._saved)
        return True


class ListState:
    """The items of a list or a deque."""

    def __init__(self, value: Any) -> None:
        self._value, self._saved = value, list(value)

    def restore(self) -> bool:
        if len(self._value) == len(self._saved) and all(a is b for a, b in zip(self._value, self._saved, strict=True)):
            return False
        self._value.clear()
        self._value.extend(self._saved)
        return True


class SetState:
    """The elements of a set."""

    def __init__(self, value: set[Any]) -> None:
        self._value, self._saved = value, set(value)

    def restore(self) -> bool:
        if self._value == self._saved:
            return False
        self._value.clear()
        self._value.update(self._saved)
        return True


_MISSING: Any = object()


class GlobalNames:
    """The global names that a function uses."""

    def __init__(self, namespace: dict[str, Any], names: set[str]) -> None:
        self._namespace = namespace
        self._saved = {name: namespace.get(name, _MISSING) for name in names}

    def values(self) -> list[Any]:
        return [value for value in self._saved.values() if value is not _MISSING]

    def restore(self) -> bool:
        changed = [(n, v) for n, v in self._saved.items() if self._namespace.get(n, _MISSING) is not v]
        for name, value in changed:
            if value is _MISSING:
                del self._namespace[name]
            else:
                self._namespace[name] = value
        return bool(changed)


class SlotState:
    """Attributes that are read and written by name."""

    def __init__(self, owner: Any, names: Sequence[str]) -> None:
        self._owner = owner
        self._saved = {name: getattr(owner, name, _MISSING) for name in names}

    def values(self) -> list[Any]:
        return [value for value in self._saved.values() if value is not _MISSING]

    def restore(self) -> bool:
        changed = [(n, v) for n, v in self._saved.items() if getattr(self._owner, n, _MISSING) is not v]
        for name, value in changed:
            if value is _MISSING:
                object.__delattr__(self._owner, name)
            else:
                object.__setattr__(self._owner, name, value)
        return bool(changed)


class ClassState:
    """The attributes of a class, except descriptors."""

    def __init__(self, cls: type) -> None:
        self._cls = cls
        self._saved = self._read()

    def _read(self) -> dict[str, Any]:
        kept = {n: v for n, v in vars(self._cls).items() if not n.startswith(("__", "_abc_"))}
        return {
            n: v for n, v in kept.items() if not isinstance(v, (*_DESCRIPTORS, property, classmethod, staticmethod))
        }

    def values(self) -> list[Any]:
        return list(self._saved.values())

    def restore(self) -> bool:
        current = self._read()
        for name in current.keys() - self._saved.keys():
            type.__delattr__(self._cls, name)
        changed = [(n, v) for n, v in self._saved.items() if current.get(n, _MISSING) is not v]
        for name, value in changed:
            type.__setattr__(self._cls, name, value)
        return bool(changed) or current.keys() != self._saved.keys()


class CellState:
    """The content of a closure's cell, or that it has none."""

    def __init__(self, cell: types.CellType) -> None:
        self._cell = cell
        self._saved = cell.cell_contents if has_value(cell) else _MISSING

    def restore(self) -> bool:
        current = self._cell.cell_contents if has_value(self._cell) else _MISSING
        if current is self._saved:
            return False
        if self._saved is _MISSING:
            del self._cell.cell_contents
        else:
            self._cell.cell_contents = self._saved
        return True


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


class ArrayState:
    """The elements of a NumPy array."""

    def __init__(self, array: Any) -> None:
        self._array, self._saved = array, array.copy()

    def restore(self) -> bool:
        if self._array.tobytes() == self._saved.tobytes():
            return False
        self._array[...] = self._saved
        return True


class GeneratorState:
    """The state of a random number generator."""

    def __init__(self, read: Callable[[], Any], write: Callable[[Any], Any]) -> None:
        self._write, self._saved = write, read()

    def restore(self) -> bool:
        self._write(self._saved)
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
