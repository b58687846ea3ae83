"""The interface that sources use to emit bytecode; `capture/bytecode_emitter.py` implements it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from compiler_core.guards.sources import Scope, Source


class FrameCapture(Protocol):
    """The capture of a frame, as far as sources use it."""

    @property
    def scope(self) -> Scope: ...


class Emitter(Protocol):
    """Emits bytecode.  Each method adds instructions that push a value or work on the top of the stack."""

    @property
    def capture(self) -> FrameCapture: ...

    def constant(self, obj: Any) -> None: ...

    def load_local(self, name: str) -> None: ...

    def load_cell(self, name: str) -> None: ...

    def load_global(self, name: str) -> None: ...

    def load_attr(self, name: str) -> None: ...

    def subscript(self) -> None: ...

    def source(self, source: Source) -> None: ...

    def call_method(self, name: str, args: Sequence[Any]) -> None: ...

    def call_loaded(self, fn: Any, loads: Sequence[Callable[[], None]]) -> None: ...
