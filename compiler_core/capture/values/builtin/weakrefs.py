"""Weak references."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import Value
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import Source, WeakRefCallSource

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


class WeakRefValue(Value):
    """A ``weakref.ref`` from outside."""

    always_true = True

    def __init__(self, real: weakref.ref[Any], source: Source) -> None:
        self.real = real
        self.source = source

    def __repr__(self) -> str:
        return self.source.text if self.source else "a weak reference"

    def python_type(self) -> type:
        return type(self.real)

    def install_guards(self, tx: Interpreter) -> None:
        assert self.source is not None
        tx.capture.guards.add("TYPE_MATCH", self.source, self.real)

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        """Returns the referent."""
        self.install_guards(tx)
        if args or kwargs:
            raise Unsupported("exception", "a weak reference takes no arguments")
        assert self.source is not None
        return tx.capture.outside.wrap(self.real(), WeakRefCallSource(self.source))
