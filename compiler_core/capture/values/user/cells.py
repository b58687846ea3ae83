"""The cells of closures."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import UNBOUND, Value
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import CellContents, FreeCell, Local, Source

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter


class CellValue(Value):
    """A cell: made in the frame, or (with a source) of a closure outside."""

    def __init__(self, contents: Value | None = None, source: Source | None = None, real: Any = None) -> None:
        self._contents = contents
        self.source = source
        self.real = real

    def get(self, tx: Interpreter) -> Value:
        if self._contents is None:
            assert self.source is not None
            try:
                obj = self.real.cell_contents
            except ValueError:
                raise Unsupported("exception", "a free variable is used before it is assigned") from None
            self._contents = tx.capture.wrap(obj, self.contents_source())
        if self._contents is UNBOUND:
            raise Unsupported("exception", "a free variable is used before it is assigned")
        return self._contents

    def is_empty(self) -> bool:
        """Whether the frame left it so; of one from outside that is not known without a guard."""
        return self._contents is UNBOUND

    @property
    def is_looked_at(self) -> bool:
        return self._contents is not None

    def contents_source(self) -> Source:
        assert self.source is not None
        return Local(self.source.name) if isinstance(self.source, FreeCell) else CellContents(self.source)

    def set(self, tx: Interpreter, value: Value) -> None:
        if self.source is not None:
            tx.capture.effects.mutated(self)
        self._contents = value

    def children(self) -> Sequence[Value]:
        if self.source is not None or self._contents is None or self._contents is UNBOUND:
            return ()
        return [self._contents]

    def rebuild(self, emit: Emitter) -> None:
        contents = self.contents
        at_once = contents is not None and (contents.source is not None or not contents.children())
        emit.call_object(types.CellType, [contents] if at_once and contents is not None else [])
        if contents is not None and not at_once:
            emit.fill_later(self)

    @property
    def contents(self) -> Value | None:
        """What is known to lie in it; None for nothing."""
        return None if self._contents is UNBOUND else self._contents
