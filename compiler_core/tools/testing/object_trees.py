"""Walks object trees: the children of an object, the tensors in it, and the first difference of two trees.

Two trees are equal if types, plain values, properties of tensors (`TENSOR_PROPERTIES`, strides) and their elements are
equal, if the same objects are identical, and if the same tensors share memory.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import torch

PLAIN_TYPES = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device, range, slice)
TENSOR_PROPERTIES = (
    "dtype", "device", "layout", "shape", "requires_grad", "is_leaf", "retains_grad", "is_conj", "is_neg",
    "is_inference",
)  # fmt: skip
_METHODS = frozenset({"is_conj", "is_neg", "is_inference", "stride"})


class ValueCheck(Protocol):
    """Decides whether values are close enough to eager's."""

    exact_strides: bool
    """Whether strides of dimensions with one element, and of empty tensors, are compared as well."""

    def numbers(self, want: float, got: float) -> bool:
        """Whether a Python float is close enough."""
        ...

    def tensors(self, path: str, want: torch.Tensor, got: torch.Tensor) -> str | None:
        """Returns how two detached tensors of equal type and shape differ, or None."""
        ...


def children(obj: Any) -> list[tuple[str, Any]]:
    """Returns the objects that an object holds, with their access paths such as ``.name`` or ``[0]``."""
    if isinstance(obj, Mapping):
        return [(f"[{k!r}]", v) for k, v in obj.items()]
    if isinstance(obj, (list, tuple)):
        return [(f"[{i}]", v) for i, v in enumerate(obj)]
    if isinstance(obj, types.FunctionType):
        cells = zip(obj.__code__.co_freevars, obj.__closure__ or (), strict=True)
        return [(f".{name}", _contents(c)) for name, c in cells] + [(".__defaults__", obj.__defaults__)]
    if isinstance(obj, types.MethodType):
        return [(".__self__", obj.__self__), (".__func__", obj.__func__)]
    if isinstance(obj, (type, types.ModuleType, *PLAIN_TYPES)):
        return []
    if isinstance(obj, torch.optim.Optimizer):  # its state has parameters as keys; state_dict numbers them
        held = [(f".{k}", v) for k, v in vars(obj).items() if k != "state"]
        return [*held, (".state", torch.optim.Optimizer.state_dict(obj)["state"])]
    return [(f".{k}", v) for k, v in vars(obj).items()] if hasattr(obj, "__dict__") else []


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "nothing"


def tensors(obj: Any, path: str = "", seen: set[int] | None = None) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields all tensors in the tree of `obj`, each once, with their paths."""
    seen = set() if seen is None else seen
    if id(obj) in seen:
        return
    seen.add(id(obj))
    if isinstance(obj, torch.Tensor):
        yield path, obj
        return
    for name, child in children(obj):
        yield from tensors(child, path + name, seen)


def tensor_property(tensor: torch.Tensor, name: str) -> Any:
    """Returns an attribute of a tensor or the result of a method; the error message if PyTorch raises."""
    try:
        value = getattr(tensor, name)
        return value() if name in _METHODS else value
    except RuntimeError as error:  # a view that autograd no longer tracks, or a layout without strides
        return str(error)


def storage(tensor: torch.Tensor) -> int | None:
    """Returns the address of the tensor's storage; None if there is none that could be shared."""
    if not tensor.numel() or tensor._is_zerotensor() or tensor.layout is not torch.strided:
        return None  # the gradient of some operations is a tensor of zeros without memory
    try:
        return tensor.untyped_storage().data_ptr() or None
    except (RuntimeError, NotImplementedError):
        return None


class Comparison:
    """A comparison of eager's tree with another; identity of objects and memory is tracked over all calls."""

    def __init__(self, check: ValueCheck) -> None:
        self._check = check
        self._objects: dict[int, int] = {}
        self._objects_back: dict[int, int] = {}
        self._storages: dict[int, int] = {}
        self._storages_back: dict[int, int] = {}

    def compare(self, path: str, want: Any, got: Any) -> str | None:
        """Returns the first difference with its path, or None.  `want` is eager's tree, `path` the path of both."""
        if isinstance(want, torch.Tensor) and isinstance(got, torch.Tensor):
            return self._compare_tensors(path, want, got)
        if type(want) is not type(got) and not _is_same_class(type(want), type(got)):
            return f"{path}: {got!r}, not {want!r}"
        if type(want) is float and self._check.numbers(want, got):
            return None
        if isinstance(want, (*PLAIN_TYPES, frozenset, set)):
            same = want == got or (want != want and got != got)
            texts = [sorted(map(repr, e)) if isinstance(e, (frozenset, set)) else repr(e) for e in (want, got)]
            return None if same and texts[0] == texts[1] else f"{path}: {got!r}, not {want!r}"
        known = self._compare_identity(path, want, got)
        if known is not None:
            return known or None
        wanted, found = children(want), children(got)
        wanted_names, found_names = [name for name, _ in wanted], [name for name, _ in found]
        if wanted_names != found_names:
            if all(child is None or isinstance(child, str) for _, child in (*wanted, *found)):  # warnings, exceptions
                return f"{path}: {got!r}, not {want!r}"
            return f"{path}: holds {found_names}, not {wanted_names}"
        for (name, a), (_, b) in zip(wanted, found, strict=True):
            difference = self.compare(path + name, a, b)
            if difference is not None:
                return difference
        return None

    def _compare_identity(self, path: str, want: Any, got: Any) -> str | None:
        """Returns None for a new pair of objects; for a known one the difference, or an empty text if there is none."""
        if isinstance(want, tuple) and not want:
            return ""
        if id(want) in self._objects or id(got) in self._objects_back:
            same = self._objects.get(id(want)) == id(got) and self._objects_back.get(id(got)) == id(want)
            return "" if same else f"{path}: is another object than eager's"
        self._objects[id(want)], self._objects_back[id(got)] = id(got), id(want)
        return None

    def _compare_tensors(self, path: str, want: torch.Tensor, got: torch.Tensor) -> str | None:
        known = self._compare_identity(path, want, got)
        if known is not None:
            return known or None
        if type(want) is not type(got):
            return f"{path}: {type(got).__name__}, not {type(want).__name__}"
        for name in TENSOR_PROPERTIES:
            a, b = tensor_property(want, name), tensor_property(got, name)
            if a != b:
                return f"{path}.{name}: {b}, not {a}"
        if (tensor_property(want, "grad_fn") is None) != (tensor_property(got, "grad_fn") is None):
            return f"{path}.grad_fn: {got.grad_fn}, not {want.grad_fn}"
        if self._strides(want) != self._strides(got):
            return f"{path}: strides {self._strides(got)}, not {self._strides(want)}"
        difference = self._compare_memory(path, want, got)
        if difference or want.is_meta:  # a meta tensor has no elements
            return difference
        return self._check.tensors(path, want.detach(), got.detach())

    def _compare_memory(self, path: str, want: torch.Tensor, got: torch.Tensor) -> str | None:
        """Checks that a tensor shares memory with the same tensors as eager's."""
        wanted, found = storage(want), storage(got)
        if wanted is None or found is None:
            return None
        is_same = self._storages.setdefault(wanted, found) == found
        if is_same and self._storages_back.setdefault(found, wanted) == wanted:
            return None
        return f"{path}: does not share memory as eager's does"

    def _strides(self, tensor: torch.Tensor) -> Any:
        """Returns the strides that address elements, or all if the check is exact."""
        stride = tensor_property(tensor, "stride")
        if self._check.exact_strides or isinstance(stride, str):
            return stride
        return tuple(s for s, n in zip(stride, tensor.shape, strict=True) if n > 1 and tensor.numel())


def _is_same_class(one: type, other: type) -> bool:
    """Whether both come from one class statement, in a function or a notebook cell that ran twice."""
    name = one.__qualname__
    may_run_twice = "<locals>" in name or one.__module__ == "__main__"
    return may_run_twice and (name, one.__module__) == (other.__qualname__, other.__module__)
