"""Reads, changes, verifies and writes CPython bytecode (code objects of 3.11 to 3.14).

    disassemble         code object -> list of `Instruction`, with operands resolved, and jumps and handlers as objects
                        (`disassemble_cached`: a shared list, for callers that only read it)
    assemble            the inverse; extends the tables of names, constants and locals as needed
    verify              rejects code that could crash the interpreter, and shows the place (the error is in `invalid`)
    live_locals         the names that may be read from each instruction on
    bound_locals        the locals that are certainly bound at each instruction
    outermost_loops     the outermost loop around each instruction
    reachable           the instructions that can run; these four are in `flow`
    opset               properties of the running Python's instructions that `dis` does not have
    make                constructors of instructions that hide the differences between versions
    bytecode_text       a listing for people (`operand`, `constant_text`: parts of it)

It needs the standard library only.
"""

from compiler_core.bytecode import make, opset
from compiler_core.bytecode.assemble import assemble
from compiler_core.bytecode.flow import (
    bound_locals,
    comprehension_variables,
    live_locals,
    outermost_loops,
    pair_halves,
    reachable,
)
from compiler_core.bytecode.instructions import (
    Handler,
    Instruction,
    argument_names,
    disassemble,
    disassemble_cached,
    instruction_indices,
)
from compiler_core.bytecode.verify import bytecode_text, constant_text, operand, verify
