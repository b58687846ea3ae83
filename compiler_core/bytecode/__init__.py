"""CPython bytecode, 3.11 to 3.13: read, change, check and write code objects.

    disassemble     code object -> list of `Instruction`, operands resolved, jumps and handlers as objects
                    (`disassembled`: the same list for all who only read it)
    assemble        the way back; tables are extended as needed
    verify          refuses code that could crash the interpreter, showing the place
    live_locals     names that may be read from each instruction on
    loops           which instructions lie in a loop
    reachable       which instructions can run
    opset           what ``dis`` does not say of the running Python's instructions
    make            constructors that hide the differences between versions
    bytecode_text   a listing for readers (`operand`, `constant_text`: parts of one)

Standard library only.
"""

from compiler_core.bytecode import make, opset
from compiler_core.bytecode.assemble import assemble
from compiler_core.bytecode.flow import live_locals, loops, reachable
from compiler_core.bytecode.instructions import Handler, Instruction, disassemble, disassembled, index
from compiler_core.bytecode.listing import bytecode_text, constant_text, operand
from compiler_core.bytecode.verify import verify

__all__ = [
    "Handler",
    "Instruction",
    "assemble",
    "bytecode_text",
    "constant_text",
    "disassemble",
    "disassembled",
    "index",
    "live_locals",
    "loops",
    "make",
    "operand",
    "opset",
    "reachable",
    "verify",
]
