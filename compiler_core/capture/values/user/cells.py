"""The cells of closures."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import UNBOUND, Value
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import CellContentsSource, FreeCellSource, LocalSource, Source

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter


class CellValue(Value):
    """A cell that the frame made, or, with a source, a cell of an outside closure."""

    def __init__(self, contents: Value | None = None, source: Source | None = None, real: Any = None) -> None:
        self._contents = contents
        self.source = source
        self.real = real

    def get(self, tx: Interpreter) -> Value:
        """Returns the contents."""
        if self._contents is None:
            assert self.source is not None
            try:
                obj = self.real.cell_contents
            except ValueError:
                raise Unsupported("exception", "a free variable is used before it is assigned") from None
            self._contents = tx.capture.outside.wrap(obj, self.contents_source())
        if self._contents is UNBOUND:
            raise Unsupported("exception", "a free variable is used before it is assigned")
        return self._contents

    def is_empty(self) -> bool:
        """Whether the frame left it empty.  For a cell from outside it is not known without a guard."""
        return self._contents is UNBOUND

    @property
    def is_read(self) -> bool:
        """Whether capture has read or written the contents."""
        return self._contents is not None

    def contents_source(self) -> Source:
        assert self.source is not None
        return (
            LocalSource(self.source.name)
            if isinstance(self.source, FreeCellSource)
            else CellContentsSource(self.source)
        )

    def set(self, tx: Interpreter, value: Value) -> None:
        if self.source is not None:
            tx.capture.effects.note_mutation(self)
        self._contents = value

    def children(self) -> Sequence[Value]:
        if self.source is not None or self._contents is None or self._contents is UNBOUND:
            return ()
        return [self._contents]

    def reconstruct(self, emit: Emitter) -> None:
        contents = self.contents
        if contents is not None and (contents.source is not None or not contents.children()):
            emit.call_object(types.CellType, [contents])
            return
        emit.call_object(types.CellType, [])
        if contents is not None:  # they may contain the cell
            emit.fill_cell_later(self)

    @property
    def contents(self) -> Value | None:
        """The contents as far as they are known; None if the cell is empty or was not read."""
        return None if self._contents is UNBOUND else self._contents
