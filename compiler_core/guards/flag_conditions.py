"""Conditions on a tensor of one number, which a guard computes at each call, such as ``bool(self.n_averaged == 0)``."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from compiler_core.guards.kinds import KINDS, Found, GuardKind
from compiler_core.support.texts import safe_repr
from compiler_core.torch_private import DisableTorchFunction

HOLE: Any = object()
"""Stands for the result of the step before among the arguments of one."""
_SIGNS = {
    operator.eq: "==", operator.ne: "!=", operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=",
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.mod: "%", operator.floordiv: "//",
    operator.truediv: "/",
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """A call of a function or of the tensor's method of this name; its arguments are constants and `HOLE`."""

    function: Callable[..., Any] | str
    args: tuple[Any, ...]

    def __call__(self, value: Any) -> Any:
        args = [value if each is HOLE else each for each in self.args]
        return getattr(args[0], self.function)(*args[1:]) if isinstance(self.function, str) else self.function(*args)

    def text(self, inner: str) -> str:
        args = [inner if each is HOLE else safe_repr(each) for each in self.args]
        if isinstance(self.function, str):
            return f"{args[0]}.{self.function}({', '.join(args[1:])})"
        if self.function in _SIGNS:
            return f"({args[0]} {_SIGNS[self.function]} {args[1]})"
        return f"{getattr(self.function, '__name__', self.function)}({', '.join(args)})"


@dataclass(frozen=True)
class Condition:
    """The truth of what some steps make of a tensor."""

    steps: tuple[Step, ...]

    def holds(self, tensor: torch.Tensor) -> bool:
        found: Any = tensor
        with DisableTorchFunction(), torch.no_grad():
            for step in self.steps:
                found = step(found)
            return bool(found)

    def text(self, source: str) -> str:
        for step in self.steps:
            source = step.text(source)
        return source


def _difference(obj: Any, wanted: tuple[Condition, bool]) -> Found:
    condition, truth = wanted
    if not isinstance(obj, torch.Tensor) or obj.numel() != 1:
        return safe_repr(obj)
    return None if condition.holds(obj) == truth else str(not truth)


KINDS["CONDITION_OF_FLAG"] = GuardKind(
    lambda source, wanted: f"bool({wanted[0].text(source)}) is {wanted[1]}",
    _difference,
    aspect="value",
    expected=lambda wanted: str(wanted[1]),
)
