"""The opcodes of CPython 3.11 to 3.13 over symbolic values: a method for each, named like the opcode.

`stack` has the state that all share; the other files have one group of opcodes each: `calls`, `containers`, `control`
(jumps, loops, with), `exceptions`, `match`, `names` and `operators`.  The interpreter inherits from `Opcodes`.  Opcodes
without a method break the graph, for the reason in `UNSUPPORTED`.
"""

from compiler_core.capture.opcodes.calls import CallOpcodes
from compiler_core.capture.opcodes.containers import ContainerOpcodes
from compiler_core.capture.opcodes.control import ControlOpcodes
from compiler_core.capture.opcodes.exceptions import ExceptionOpcodes
from compiler_core.capture.opcodes.match import MatchOpcodes
from compiler_core.capture.opcodes.names import NameOpcodes
from compiler_core.capture.opcodes.operators import OperatorOpcodes
from compiler_core.capture.opcodes.stack import StackOpcodes


class Opcodes(
    StackOpcodes,
    NameOpcodes,
    OperatorOpcodes,
    ContainerOpcodes,
    ControlOpcodes,
    CallOpcodes,
    ExceptionOpcodes,
    MatchOpcodes,
):
    """All opcodes that capture supports."""


_COROUTINE = "a coroutine or asynchronous generator"
_NAMESPACE = "code of a class body or module, which keeps its names in a dict"
_GROUP = "except* and exception groups"
UNSUPPORTED = {
    **dict.fromkeys(("GET_AWAITABLE", "GET_AITER", "GET_ANEXT", "BEFORE_ASYNC_WITH", "END_ASYNC_FOR"), _COROUTINE),
    "ASYNC_GEN_WRAP": _COROUTINE,
    **dict.fromkeys(("LOAD_NAME", "STORE_NAME", "DELETE_NAME", "LOAD_LOCALS", "SETUP_ANNOTATIONS"), _NAMESPACE),
    **dict.fromkeys(("LOAD_FROM_DICT_OR_GLOBALS", "LOAD_FROM_DICT_OR_DEREF", "IMPORT_STAR"), _NAMESPACE),
    **dict.fromkeys(("CHECK_EG_MATCH", "PREP_RERAISE_STAR"), _GROUP),
    "CALL_INTRINSIC_2": "type parameters, or except*",
    "PRINT_EXPR": "a statement typed at a prompt",
}
"""The opcodes that always break the graph, and why.  Every other opcode has a method."""

__all__ = ["BREAKS", "Opcodes"]
