"""Every opcode of the running CPython has a method, or a reason why it breaks the graph."""

from __future__ import annotations

import opcode

from compiler_core.bytecode import opset
from compiler_core.capture.opcodes import UNSUPPORTED, Opcodes

EXISTING = {name for name in opcode.opmap if opset.is_supported(name)} - {
    "EXTENDED_ARG"
}  # a prefix, not an instruction


def test_every_opcode_is_handled_or_breaks_with_a_reason() -> None:
    handled = {name for name in EXISTING if hasattr(Opcodes, name)}
    assert handled | UNSUPPORTED.keys() >= EXISTING
    assert not handled & UNSUPPORTED.keys()
