"""The opcodes of CPython 3.11 to 3.14 over symbolic values: a row of a table or a function for each.

`table` has all of them by name; they are in `variables`, `operators` and `control`.
"""

from compiler_core.capture.opcodes import control, operators, variables
from compiler_core.capture.opcodes.table import OPCODES, UNSUPPORTED

__all__ = ["OPCODES", "UNSUPPORTED", "control", "operators", "variables"]
