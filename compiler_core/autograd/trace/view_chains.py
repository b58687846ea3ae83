"""The views that an operation is made of: ``einsum("ij->ji", x)`` shows the memory of `x` by ``x.permute([1, 0])``.

An operation of several tensors may return views of one of them (`broadcast_tensors`, `meshgrid`, `expand_as`).  To make
such an output again from the tensor alone, the operation is run once on tensors without values, while each of PyTorch's
own operators that it calls is written down; those that lead from the tensor to the output are its chain of views.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map_only

aten: Any = torch.ops.aten


@dataclass(frozen=True)
class Step:
    """One view: ``operator(base, *args, **kwargs)``, and which of its results where it gives several."""

    operator: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    index: int | None = None

    def text(self, base: str, literal: Callable[[Any], str]) -> str:
        """As Python source: a method of tensors where there is one of that name, which is quicker to call."""
        name = self.operator._schema.name.removeprefix("aten::")
        rest = [*map(literal, self.args), *(f"{k}={literal(v)}" for k, v in self.kwargs.items())]
        if hasattr(torch.Tensor, name):
            call = f"{base}.{name}({', '.join(rest)})"
        else:
            call = f"torch.ops.aten.{name}.{self.operator._overloadname}({', '.join([base, *rest])})"
        return call if self.index is None else f"{call}[{self.index}]"


class _Log(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes down, for each tensor that a view gave, the view and its base; both are kept alive for their ids."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.made_by: dict[int, tuple[torch.Tensor, Step]] = {}
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
            for i, made in enumerate(result if several else [result]):
                self.made_by[id(made)] = args[0], Step(func, tuple(args[1:]), dict(kwargs), i if several else None)
        return result


def chain(
    run: Callable[..., Any], args: Any, kwargs: Any, pick: int | None, mode: FakeTensorMode
) -> tuple[torch.Tensor, tuple[Step, ...]] | None:
    """Which tensor among the arguments of ``run(*args, **kwargs)`` its result (or item `pick` of it) is a view of, and
    by which views; None where views alone do not lead there."""
    with _disable_current_modes(), mode, torch._C._AutoDispatchBelowAutograd():
        fresh: dict[int, torch.Tensor] = {}
        given = {id(t): t for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor)}
        for key, tensor in given.items():
            place = tensor.shape, tensor.stride()
            fresh[key] = torch.empty_strided(*place, dtype=tensor.dtype, device=tensor.device)
        args, kwargs = tree_map_only(torch.Tensor, lambda t: fresh[id(t)], (args, kwargs))
        with _Log() as log:
            result = run(*args, **kwargs)
    origin = {id(made): given[key] for key, made in fresh.items()}
    return _path(result if pick is None else result[pick], origin, log)


def _path(at: Any, origin: dict[int, torch.Tensor], log: _Log) -> tuple[torch.Tensor, tuple[Step, ...]] | None:
    steps: list[Step] = []
    while id(at) not in origin:
        if id(at) not in log.made_by:
            return None
        at, step = log.made_by[id(at)]
        if any(isinstance(leaf, torch.Tensor) for leaf in _leaves(step)):
            return None
        steps.append(step)
    return origin[id(at)], tuple(s for s in reversed(steps) if s.operator is not aten.alias.default)


def _leaves(step: Step) -> Sequence[Any]:
    return tree_flatten((step.args, step.kwargs))[0]
