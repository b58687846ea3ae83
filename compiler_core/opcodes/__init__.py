"""The opcodes of CPython 3.11 to 3.13 over symbolic values, a method each."""

from compiler_core.opcodes.calls import CallOpcodes
from compiler_core.opcodes.containers import ContainerOpcodes
from compiler_core.opcodes.control import ControlOpcodes
from compiler_core.opcodes.exceptions import ExceptionOpcodes
from compiler_core.opcodes.names import NameOpcodes
from compiler_core.opcodes.operators import OperatorOpcodes
from compiler_core.opcodes.stack import StackOpcodes


class Opcodes(
    StackOpcodes, NameOpcodes, OperatorOpcodes, ContainerOpcodes, ControlOpcodes, CallOpcodes, ExceptionOpcodes
):
    """All of them."""


__all__ = ["Opcodes"]
