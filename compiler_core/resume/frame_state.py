"""The state of each active frame that is needed after a graph break."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import NamedTuple

from compiler_core.bytecode import live_locals
from compiler_core.capture.interpreter import Interpreter
from compiler_core.capture.values import base
from compiler_core.capture.values.base import UNBOUND, Value
from compiler_core.capture.values.user.exceptions import OUTER
from compiler_core.errors import Unsupported
from compiler_core.resume.resume_functions import HANDLED, NULL, VALUE


class StackSlot(NamedTuple):
    """A slot of a frame's stack: its kind (see `resume_functions`), and the value to rebuild for it."""

    kind: str
    value: Value


class FrameState:
    """The state of one active frame that is needed at any instruction where the frame may continue (`targets`)."""

    def __init__(self, tx: Interpreter, targets: Sequence[int]) -> None:
        self.tx = tx
        self.code: types.CodeType = tx.code
        self.targets = targets
        self.stack = _stack_slots(tx)
        self._live = live_locals(tx.instructions)
        self.first = _first_argument(tx)

    def names(self, target: int) -> list[str]:
        """Returns the locals that are live at an instruction."""
        first = self.first[0] if self.first else None
        live = sorted(self._live[target])
        return [n for n in live if n != first and self.tx.locals.get(n, UNBOUND) is not UNBOUND]

    @property
    def all_names(self) -> list[str]:
        """The locals that are live at any of the targets."""
        return list(dict.fromkeys(n for target in self.targets for n in self.names(target)))

    def values(self, stack: Sequence[StackSlot]) -> list[Value]:
        """Returns all values that are needed after the break, if the stack is then `stack`."""
        found = [p.value for p in stack if p.kind != NULL] + [self.tx.locals[n] for n in self.all_names]
        return [*found, *([self.first[1]] if self.first else []), *self.tx.cells.values()]


def _stack_slots(tx: Interpreter) -> list[StackSlot]:
    handled = iter(tx.handled_exceptions)
    places = []
    for value in tx.stack:
        if value is OUTER:
            places.append(StackSlot(HANDLED, next(handled)))
        else:
            places.append(StackSlot(NULL if value in (base.NULL, UNBOUND) else VALUE, value))
    return places


def _first_argument(tx: Interpreter) -> tuple[str, Value] | None:
    """Returns the first argument of a method that may call ``super()``, with the name of it in a resume function."""
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
