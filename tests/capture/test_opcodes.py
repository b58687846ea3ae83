"""Every opcode of the running CPython is in the table, or a reason why it breaks the graph."""

from __future__ import annotations

import opcode

from compiler_core.bytecode import opset
from compiler_core.capture.opcodes import OPCODES, UNSUPPORTED

EXISTING = {opset.SPELLED.get(name, name) for name in opcode.opmap if opset.is_supported(name)} - {
    "EXTENDED_ARG",  # a prefix, not an instruction
    "NOT_TAKEN",  # left out when code is disassembled
}


def test_every_opcode_is_handled_or_breaks_with_a_reason() -> None:
    handled = EXISTING & OPCODES.keys()
    assert handled | UNSUPPORTED.keys() >= EXISTING
    assert not handled & UNSUPPORTED.keys()
