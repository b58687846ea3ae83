"""Sources of sizes and numbers of tensors, and of what is computed from other sources."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.guards.sources.base import Scope, Source
from compiler_core.support.safe_repr import safe_repr
from compiler_core.support.tensors import without_class

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.guards import GuardTree


@dataclass(frozen=True)
class NumpyTensorSource(Source):
    """``torch.from_numpy(base)``: the tensor that capture made of an array as the `number`-th of it."""

    base: Source
    number: int
    loads_new_object = True

    @property
    def text(self) -> str:
        return f"torch.from_numpy({self.base.text})"

    @property
    def shown(self) -> str:
        return self.base.shown

    def fetch(self, scope: Scope) -> Any:
        return torch.from_numpy(self.base.fetch(scope))

    def load(self, emit: Emitter) -> None:
        emit.call_loaded(torch.from_numpy, [lambda: emit.source(self.base)])

    def manager(self, tree: GuardTree) -> Any:
        return tree.manager(self.base).lambda_manager(torch.from_numpy, self.text, tree.value(self), tree.manager_type)


@dataclass(frozen=True)
class PlainTensorSource(Source):
    """The tensor of a subclass at `base` as a plain one: reading its sizes calls no ``__torch_function__``."""

    base: Source
    loads_new_object = True

    @property
    def text(self) -> str:
        return self.base.text

    @property
    def shown(self) -> str:
        return self.base.shown

    def fetch(self, scope: Scope) -> Any:
        return without_class(self.base.fetch(scope))

    def load(self, emit: Emitter) -> None:
        emit.call_loaded(without_class, [lambda: emit.source(self.base)])

    def manager(self, tree: GuardTree) -> Any:
        name = f"plain {self.text}"
        return tree.manager(self.base).lambda_manager(without_class, name, tree.value(self), tree.manager_type)


@dataclass(frozen=True)
class TensorPropertySource(Source):
    """``base.size()[index]`` or ``base.stride()[index]`` of a tensor; `method` is ``size`` or ``stride``."""

    base: Source
    method: str
    index: int

    @property
    def text(self) -> str:
        return f"{self.base.text}.{self.method}()[{self.index}]"

    @property
    def shown(self) -> str:
        return f"{self.base.shown}.{self.method}({self.index})"

    def fetch(self, scope: Scope) -> Any:
        return getattr(self.base.fetch(scope), self.method)()[self.index]

    def load(self, emit: Emitter) -> None:
        emit.source(self.base)
        emit.call_method(self.method, [])
        emit.constant(self.index)
        emit.subscript()

    def manager(self, tree: GuardTree) -> Any:
        method, index = self.method, self.index
        read = lambda tensor: getattr(tensor, method)()[index]  # noqa: E731
        return tree.manager(self.base).lambda_manager(read, self.text, tree.value(self), tree.manager_type)


@dataclass(frozen=True)
class ComputedSource(Source):
    """``function(*args)`` of sources and constants: a number that Python computes from other numbers, or what it reads
    of an object."""

    name: str
    function: Any
    args: tuple[Any, ...]

    @property
    def text(self) -> str:
        shown_args = [arg.text if isinstance(arg, Source) else safe_repr(arg) for arg in self.args]
        return f"{self.name}({', '.join(shown_args)})"

    @property
    def shown(self) -> str:
        shown_args = [arg.shown if isinstance(arg, Source) else safe_repr(arg) for arg in self.args]
        return f"{self.name}({', '.join(shown_args)})"

    def fetch(self, scope: Scope) -> Any:
        return self.function(*(arg.fetch(scope) if isinstance(arg, Source) else arg for arg in self.args))

    def load(self, emit: Emitter) -> None:
        emit.call_loaded(self.function, [functools.partial(_load_argument, arg, emit) for arg in self.args])

    def manager(self, tree: GuardTree) -> Any:
        base, *constants = self.args
        if not isinstance(base, Source) or any(isinstance(arg, Source) for arg in constants):
            raise NotImplementedError("conditions on computed numbers are checked in Python")
        read = functools.partial(_call_with_first, self.function, constants)
        return tree.manager(base).lambda_manager(read, self.text, tree.value(self), tree.manager_type)


def _call_with_first(function: Any, constants: list[Any], first: Any) -> Any:
    return function(first, *constants)


def _load_argument(arg: Any, emit: Emitter) -> None:
    if isinstance(arg, Source):
        arg.load(emit)
    else:
        emit.constant(arg)
