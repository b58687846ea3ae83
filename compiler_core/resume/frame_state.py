"""What is to be carried across a graph break, of each frame at work."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import NamedTuple

from compiler_core.bytecode import live_locals
from compiler_core.capture.interpreter import Interpreter
from compiler_core.capture.values import base
from compiler_core.capture.values.base import UNBOUND, Value
from compiler_core.capture.values.exceptions import OUTER
from compiler_core.errors import Unsupported
from compiler_core.resume.resume_functions import HANDLED, NULL, VALUE


class Place(NamedTuple):
    """One place of a frame's stack: what it holds, and the value that is to be carried for it."""

    kind: str
    value: Value


class FrameState:
    """What is to be carried of one frame at work, wherever it may go on."""

    def __init__(self, tx: Interpreter, targets: Sequence[int]) -> None:
        self.tx = tx
        self.code: types.CodeType = tx.code
        self.targets = targets
        self.stack = _places(tx)
        self._live = live_locals(tx.instructions)
        self.first = _first_argument(tx)

    def names(self, target: int) -> list[str]:
        """The locals that are live at an instruction."""
        first = self.first[0] if self.first else None
        live = sorted(self._live[target])
        return [n for n in live if n != first and self.tx.locals.get(n, UNBOUND) is not UNBOUND]

    @property
    def all_names(self) -> list[str]:
        """The locals that are live wherever the frame may go on."""
        return list(dict.fromkeys(n for target in self.targets for n in self.names(target)))

    def values(self, stack: Sequence[Place]) -> list[Value]:
        """All that must be carried, with `stack`."""
        found = [p.value for p in stack if p.kind != NULL] + [self.tx.locals[n] for n in self.all_names]
        return [*found, *([self.first[1]] if self.first else []), *self.tx.cells.values()]


def _places(tx: Interpreter) -> list[Place]:
    handled = iter(tx.handling)
    places = []
    for value in tx.stack:
        if value is OUTER:
            places.append(Place(HANDLED, next(handled)))
        else:
            places.append(Place(NULL if value in (base.NULL, UNBOUND) else VALUE, value))
    return places


def _first_argument(tx: Interpreter) -> tuple[str, Value] | None:
    """The first argument of a method that may call ``super()``, by the name that it has in a resume function."""
    if "__class__" not in tx.code.co_freevars or not tx.code.co_argcount:
        return None
    name = tx.code.co_varnames[0]
    cell = tx.cells.get(name)
    if cell is not None and not any(x.opname == "STORE_DEREF" and x.argval == name for x in tx.instructions):
        return "__self", cell.get(tx)
    value = tx.locals.get(name, UNBOUND)
    if value is UNBOUND:
        raise Unsupported("unsupported operation", "a break in a method that changes its self")
    return name, value
