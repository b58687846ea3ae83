"""Tensors from outside that a graph cannot hold: sparse and distributed ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.methods import NamedMethodValue
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.guards.sources import Source

SPARSE_LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


class UncapturedTensorValue(Value):
    """A tensor that a graph cannot hold: it can be passed on."""

    def __init__(self, real: torch.Tensor, source: Source) -> None:
        self.real = real
        self.source = source

    def python_type(self) -> type:
        return type(self.real)

    def install_guards(self, tx: Interpreter) -> None:
        assert self.source is not None
        tx.capture.guards.add("TYPE_MATCH", self.source, self.real)


class SparseTensorValue(UncapturedTensorValue):
    """A sparse tensor, whose methods are called by Python after a graph break."""

    def __repr__(self) -> str:
        return f"{self.source.text if self.source else ''} (a tensor of layout {str(self.real.layout)[6:]})"

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if callable(getattr(type(self.real), name, None)):
            return NamedMethodValue(self, name)
        raise self._refusal(f".{name}")

    def call_method(self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> NoReturn:
        raise self._refusal(f".{name}()")

    def get_item(self, tx: Interpreter, key: Value) -> NoReturn:
        raise self._refusal("[...]")

    def _refusal(self, use: Any) -> Unsupported:
        return Unsupported("sparse tensor", f"{self}{use}")


class DistributedTensorValue(UncapturedTensorValue):
    """A `DTensor`, or the pending result of a collective, from outside.  Operations on it break the graph."""

    def __repr__(self) -> str:
        return f"{self.source.text if self.source else ''} ({type(self.real).__name__})"

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        raise Unsupported("distributed tensor", f"{self}.{name}")


def is_distributed_tensor(obj: Any) -> bool:
    """Whether an object is an instance of one of the tensor classes of ``torch.distributed``."""
    return isinstance(obj, torch.Tensor) and type(obj).__module__.startswith("torch.distributed.")
