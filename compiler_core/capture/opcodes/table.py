"""The table of opcodes, and why the others break the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compiler_core.bytecode import Instruction
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.capture.values.base import Value

    Opcode = Callable[[Interpreter, Instruction], None]
    Row = tuple[int | Callable[[int], int], Callable[..., Value | None]]

OPCODES: dict[str, Opcode] = {}
"""What each opcode does to the interpreter; the other modules of this folder enter theirs."""


def opcode(*others: str) -> Callable[[Opcode], Opcode]:
    """Enters a function as the opcode of its name, and as `others`, which do the same."""

    def enter(function: Opcode) -> Opcode:
        OPCODES.update(dict.fromkeys((function.__name__, *others), function))
        return function

    return enter


def opcodes(**rows: Row) -> None:
    """Enters opcodes that only compute: each pops values, and pushes what a function returns for them, if anything.

    A row has how many values it pops, or a function of the instruction's argument that returns it, and the function; it
    gets the interpreter, the instruction and the values, the deepest first.
    """
    OPCODES.update({name: _computing(*row) for name, row in rows.items()})


def _computing(pops: int | Callable[[int], int], compute: Callable[..., Value | None]) -> Opcode:
    def run(tx: Interpreter, instruction: Instruction) -> None:
        count = pops if isinstance(pops, int) else pops(instruction.arg or 0)
        result = compute(tx, instruction, *tx.pop_many(count))
        if result is not None:
            tx.push(result)

    return run


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
    **dict.fromkeys(("BUILD_TEMPLATE", "BUILD_INTERPOLATION"), "a template string"),
}
"""The opcodes that always break the graph, and why.  Every other opcode is in the table."""
