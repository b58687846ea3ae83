"""Object trees: what an object holds, which tensors are in it, and where two trees differ.

Two trees are the same where types, plain values, the facts of tensors (`FACTS`, strides) and their elements are, where
the same objects are one, and where the same tensors share memory.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import torch

PLAIN = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device, range, slice)
FACTS = ("dtype", "device", "layout", "shape", "requires_grad", "is_leaf", "retains_grad", "is_conj", "is_neg",
         "is_inference")  # fmt: skip
METHODS = frozenset({"is_conj", "is_neg", "is_inference", "stride"})


class Judge(Protocol):
    """Says whether values are near enough to eager's."""

    exact_strides: bool
    """Whether the strides of dimensions with one element, and of tensors with none, are to be eager's, too."""

    def numbers(self, want: float, got: float) -> bool:
        """Whether a Python number is near enough."""
        ...

    def tensors(self, path: str, want: torch.Tensor, got: torch.Tensor) -> str | None:
        """What is wrong with a tensor of the right type and shape; both are detached."""
        ...


def parts(obj: Any) -> list[tuple[str, Any]]:
    """What an object holds, by name."""
    if isinstance(obj, Mapping):
        return [(f"[{k!r}]", v) for k, v in obj.items()]
    if isinstance(obj, (list, tuple)):
        return [(f"[{i}]", v) for i, v in enumerate(obj)]
    if isinstance(obj, types.FunctionType):
        cells = zip(obj.__code__.co_freevars, obj.__closure__ or (), strict=True)
        return [(f".{name}", _contents(c)) for name, c in cells] + [(".__defaults__", obj.__defaults__)]
    if isinstance(obj, types.MethodType):
        return [(".__self__", obj.__self__), (".__func__", obj.__func__)]
    if isinstance(obj, (type, types.ModuleType, *PLAIN)):
        return []
    if isinstance(obj, torch.optim.Optimizer):  # its state is by parameters, and numbered in the dictionary
        held = [(f".{k}", v) for k, v in vars(obj).items() if k != "state"]
        return [*held, (".state", torch.optim.Optimizer.state_dict(obj)["state"])]
    return [(f".{k}", v) for k, v in vars(obj).items()] if hasattr(obj, "__dict__") else []


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "nothing"


def tensors(obj: Any, path: str = "", seen: set[int] | None = None) -> Iterator[tuple[str, torch.Tensor]]:
    """All tensors that `obj` holds, each once, by their paths."""
    seen = set() if seen is None else seen
    if id(obj) in seen:
        return
    seen.add(id(obj))
    if isinstance(obj, torch.Tensor):
        yield path, obj
        return
    for name, part in parts(obj):
        yield from tensors(part, path + name, seen)


def fact(tensor: torch.Tensor, name: str) -> Any:
    """A fact of a tensor, or why it has none."""
    try:
        value = getattr(tensor, name)
        return value() if name in METHODS else value
    except RuntimeError as error:  # of a view that autograd has lost track of, or of a layout without strides
        return str(error)


def storage(tensor: torch.Tensor) -> int | None:
    """Which memory the elements are in; None where there is none that could be shared."""
    if not tensor.numel() or tensor._is_zerotensor() or tensor.layout is not torch.strided:
        return None  # the gradient of some operations is a tensor of zeros without memory
    try:
        return tensor.untyped_storage().data_ptr() or None
    except (RuntimeError, NotImplementedError):
        return None


class Comparison:
    """One walk through eager's tree and the other's."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._pairs: dict[int, int] = {}
        self._back: dict[int, int] = {}
        self._storages: dict[int, int] = {}
        self._shown: dict[int, int] = {}

    def compare(self, path: str, want: Any, got: Any) -> str | None:
        """The first difference; None if there is none."""
        if isinstance(want, torch.Tensor) and isinstance(got, torch.Tensor):
            return self._tensors(path, want, got)
        if type(want) is not type(got) and not _made_twice(type(want), type(got)):
            return f"{path}: {got!r}, not {want!r}"
        if type(want) is float and self._judge.numbers(want, got):
            return None
        if isinstance(want, (*PLAIN, frozenset, set)):
            same = want == got or (want != want and got != got)
            return None if same and repr(want) == repr(got) else f"{path}: {got!r}, not {want!r}"
        known = self._one_object(path, want, got)
        if known is not None:
            return known or None
        mine, theirs = parts(want), parts(got)
        if [n for n, _ in mine] != [n for n, _ in theirs]:
            return f"{path}: holds {[n for n, _ in theirs]}, not {[n for n, _ in mine]}"
        for (name, a), (_, b) in zip(mine, theirs, strict=True):
            found = self.compare(path + name, a, b)
            if found is not None:
                return found
        return None

    def _one_object(self, path: str, want: Any, got: Any) -> str | None:
        """None for a pair that is new, else the difference or an empty text."""
        if isinstance(want, tuple) and not want:
            return ""
        if id(want) in self._pairs or id(got) in self._back:
            same = self._pairs.get(id(want)) == id(got) and self._back.get(id(got)) == id(want)
            return "" if same else f"{path}: is another object than eager's"
        self._pairs[id(want)], self._back[id(got)] = id(got), id(want)
        return None

    def _tensors(self, path: str, want: torch.Tensor, got: torch.Tensor) -> str | None:
        known = self._one_object(path, want, got)
        if known is not None:
            return known or None
        if type(want) is not type(got):
            return f"{path}: {type(got).__name__}, not {type(want).__name__}"
        for name in FACTS:
            a, b = fact(want, name), fact(got, name)
            if a != b:
                return f"{path}.{name}: {b}, not {a}"
        if (fact(want, "grad_fn") is None) != (fact(got, "grad_fn") is None):
            return f"{path}.grad_fn: {got.grad_fn}, not {want.grad_fn}"
        if self._strides(want) != self._strides(got):
            return f"{path}: strides {self._strides(got)}, not {self._strides(want)}"
        if (problem := self._memory(path, want, got)) or want.is_meta:  # it has no elements
            return problem
        return self._judge.tensors(path, want.detach(), got.detach())

    def _memory(self, path: str, want: torch.Tensor, got: torch.Tensor) -> str | None:
        """Two tensors share memory where eager's do."""
        ours, theirs = storage(want), storage(got)
        if ours is None or theirs is None:
            return None
        if self._storages.setdefault(ours, theirs) == theirs and self._shown.setdefault(theirs, ours) == ours:
            return None
        return f"{path}: does not share memory as eager's does"

    def _strides(self, tensor: torch.Tensor) -> Any:
        """Those that say where elements are; all of them where the judge is strict."""
        stride = fact(tensor, "stride")
        if self._judge.exact_strides or isinstance(stride, str):
            return stride
        return tuple(s for s, n in zip(stride, tensor.shape, strict=True) if n > 1 and tensor.numel())


def _made_twice(one: type, other: type) -> bool:
    """Whether both are the class that a program makes anew in each call, or a cell in each run."""
    name = one.__qualname__
    again = "<locals>" in name or one.__module__ == "__main__"
    return again and (name, one.__module__) == (other.__qualname__, other.__module__)


Walk = Callable[[Any], Iterator[tuple[str, torch.Tensor]]]
