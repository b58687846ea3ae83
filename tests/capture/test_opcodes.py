"""Every opcode of the running CPython has a method, or a reason why it breaks the graph."""

from __future__ import annotations

import opcode

from compiler_core.bytecode import opset
from compiler_core.capture.opcodes import BREAKS, Opcodes

WRITTEN = {name for name in opcode.opmap if opset.exists(name)} - {"EXTENDED_ARG"}  # it is no instruction of its own


def test_every_opcode_is_handled_or_breaks_with_a_reason() -> None:
    handled = {name for name in WRITTEN if hasattr(Opcodes, name)}
    assert handled | BREAKS.keys() >= WRITTEN
    assert not handled & BREAKS.keys()
