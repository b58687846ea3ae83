"""Sparse tensors from outside, which a graph cannot hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.methods import NamedMethodValue
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.values.interfaces import Interpreter
    from compiler_core.guards.sources import Source

SPARSE_LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


class SparseTensorValue(Value):
    """A sparse tensor: it can be passed on, and its methods are called by Python after a graph break."""

    def __init__(self, real: torch.Tensor, source: Source) -> None:
        self.real = real
        self.source = source

    def __repr__(self) -> str:
        return f"{self.source.text if self.source else ''} (a tensor of layout {str(self.real.layout)[6:]})"

    def python_type(self) -> type:
        return type(self.real)

    def install_guards(self, tx: Interpreter) -> None:
        assert self.source is not None
        tx.capture.guard("TYPE_MATCH", self.source, self.real)

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
