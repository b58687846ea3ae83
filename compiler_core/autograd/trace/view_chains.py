"""The views that an operation consists of: ``einsum("ij->ji", x)`` is the view ``x.permute([1, 0])``.

An operation of several tensors may return views of one of them (`broadcast_tensors`, `meshgrid`, `expand_as`).  To make
such an output again from that tensor alone, the operation is run once on fake tensors while each ATen operator that it
calls is recorded.  Those that lead from the tensor to the output are its chain of views.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from compiler_core.support.tensors import new_like
from compiler_core.torch_private import (
    AutoDispatchBelowAutograd,
    DataDependentOutputException,
    FakeTensorMode,
    FunctionalTensor,
    TorchDispatchMode,
    disable_current_modes,
    tree_flatten,
    tree_map_only,
)

aten: Any = torch.ops.aten


@dataclass(frozen=True)
class ViewCall:
    """One view: ``operator(base, *args, **kwargs)``, and the index of the result if it returns several."""

    operator: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    index: int | None = None

    def text(self, base: str, literal: Callable[[Any], str]) -> str:
        """Returns Python source.  It calls the tensor method of that name if there is one, which is faster."""
        name = self.operator._schema.name.removeprefix("aten::")
        rest = [*map(literal, self.args), *(f"{k}={literal(v)}" for k, v in self.kwargs.items())]
        if hasattr(torch.Tensor, name):
            call = f"{base}.{name}({', '.join(rest)})"
        else:
            call = f"torch.ops.aten.{name}.{self.operator._overloadname}({', '.join([base, *rest])})"
        return call if self.index is None else f"{call}[{self.index}]"


@dataclass(frozen=True)
class StridedView:
    """A view by its layout, for what a transform of `torch.func` returns: it has views that nothing has outside."""

    size: tuple[Any, ...]
    stride: tuple[Any, ...]
    offset: Any
    """Where it begins, counted from the first element of its base."""
    detached: bool
    """Whether it has no gradient, although its base has one."""

    @classmethod
    def of(cls, base: torch.Tensor, view: torch.Tensor) -> StridedView:
        """Returns the view that leads from `base` to `view` in the same memory."""
        offset = view.storage_offset() - base.storage_offset()
        detached = base.requires_grad and not view.requires_grad
        return cls(tuple(view.shape), view.stride(), offset, detached)

    def text(self, base: str, literal: Callable[[Any], str]) -> str:
        """Returns Python source."""
        viewed = f"{base}.detach()" if self.detached else base
        offset = f"{base}.storage_offset() + {literal(self.offset)}"
        return f"{viewed}.as_strided({literal(self.size)}, {literal(self.stride)}, {offset})"


class _ViewRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records for each tensor that a view returned the view and its base.  Keeps all results alive, so that their ids
    stay valid."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.made_by: dict[int, tuple[torch.Tensor, ViewCall]] = {}
        self._alive: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "aten":
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        result = func(*args, **kwargs)
        self._alive.append(result)
        if func.is_view and isinstance(args[0], torch.Tensor):
            several = isinstance(result, (list, tuple))
            for i, new in enumerate(result if several else [result]):
                self.made_by[id(new)] = args[0], ViewCall(func, tuple(args[1:]), dict(kwargs), i if several else None)
        return result


def view_chain(
    run: Callable[..., Any], args: Any, kwargs: Any, pick: int | None, mode: FakeTensorMode
) -> tuple[torch.Tensor, tuple[ViewCall, ...]] | None:
    """Returns the argument of ``run(*args, **kwargs)`` that its result (or item `pick` of it) is a view of, and the
    views that lead there; None if views alone do not."""
    with disable_current_modes(), mode, AutoDispatchBelowAutograd():
        fresh: dict[int, torch.Tensor] = {}
        given = {id(t): t for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor)}
        for key, tensor in given.items():
            fresh[key] = _fresh(tensor, mode)
        args, kwargs = tree_map_only(torch.Tensor, lambda t: fresh[id(t)], (args, kwargs))
        with _ViewRecorder() as log:
            try:
                result = run(*args, **kwargs)
            except DataDependentOutputException:  # a view at an index that only a run knows
                return None
    origin = {id(new): given[key] for key, new in fresh.items()}
    return _path(result if pick is None else result[pick], origin, log)


def _fresh(tensor: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    """Returns a fake tensor like `tensor`, with its value if that is known, as of an index."""
    inner: Any = tensor.from_functional() if isinstance(tensor, FunctionalTensor) else tensor
    if (constant := getattr(inner, "constant", None)) is not None:
        return mode.fake_tensor_converter.from_real_tensor(mode, constant, make_constant=True)
    return new_like(tensor)


def _path(
    at: Any, origin: dict[int, torch.Tensor], log: _ViewRecorder
) -> tuple[torch.Tensor, tuple[ViewCall, ...]] | None:
    steps: list[ViewCall] = []
    while id(at) not in origin:
        if id(at) not in log.made_by:
            return None
        at, step = log.made_by[id(at)]
        if any(isinstance(leaf, torch.Tensor) for leaf in _leaves(step)):
            return None
        steps.append(step)
    return origin[id(at)], tuple(s for s in reversed(steps) if s.operator is not aten.alias.default)


def _leaves(step: ViewCall) -> Sequence[Any]:
    return tree_flatten((step.args, step.kwargs))[0]
