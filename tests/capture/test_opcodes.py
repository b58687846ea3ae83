"""Every opcode of the running CPython is in the table, or a reason why it breaks the graph."""

from __future__ import annotations

import opcode

from compiler_core.bytecode import opset
from compiler_core.capture.opcodes import OPCODES, UNSUPPORTED

EXISTING = {name for name in opcode.opmap if opset.is_supported(name)} - {
    "EXTENDED_ARG"
}  # a prefix, not an instruction


def test_every_opcode_is_handled_or_breaks_with_a_reason() -> None:
    handled = EXISTING & OPCODES.keys()
    assert handled | UNSUPPORTED.keys() >= EXISTING
    assert not handled & UNSUPPORTED.keys()
