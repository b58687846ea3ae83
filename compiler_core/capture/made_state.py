"""What the first step of a training makes, made before its graph runs, so that all steps need the same graph.

Capture makes the state of an optimizer, or the scale of a gradient scaler, and notes with `StateMaker` how.  A later
training with another model begins without a state again: where no compile fits a call, the compile's makers make what
is missing, and it may fit then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from compiler_core.capture.values.base import ABSENT
from compiler_core.guards.sources import Scope, Source


class MadeState:
    """Entries of dicts from outside that were made, each with what was there before."""

    def __init__(self) -> None:
        self._entries: list[tuple[dict[Any, Any], Any, Any]] = []

    def __bool__(self) -> bool:
        return bool(self._entries)

    def will_make(self, mapping: dict[Any, Any], key: Any) -> None:
        self._entries.append((mapping, key, mapping.get(key, ABSENT)))

    def drop(self) -> None:
        """Puts back what was there before."""
        while self._entries:
            mapping, key, before = self._entries.pop()
            if before is ABSENT:
                mapping.pop(key, None)
            else:
                mapping[key] = before


@dataclass(frozen=True)
class StateMaker:
    """Makes the state of the object at `source`; ``make(obj, made)`` does nothing for one that has its state."""

    source: Source
    make: Callable[[Any, MadeState], None]

    def make_in(self, scope: Scope, made: MadeState) -> None:
        """Makes the state for a call; does nothing if the call has no such object."""
        try:
            obj = self.source.fetch(scope)
        except Exception:  # whatever the program's own objects raise
            return
        self.make(obj, made)
