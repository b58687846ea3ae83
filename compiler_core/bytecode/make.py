"""Constructors of instructions that are the same for every CPython version.

A constructor returns an `Instruction` if one is enough in all versions, else a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import CodeType

from compiler_core.bytecode import opset
from compiler_core.bytecode.instructions import Instruction
from compiler_core.errors import CompilerBug

_BEFORE_3_12 = opset.VERSION < (3, 12)
_BEFORE_3_13 = opset.VERSION < (3, 13)


def _plain(opname: str) -> Callable[[], Instruction]:
    return lambda: Instruction(opname)


def _named(opname: str, arg: int | None = None) -> Callable[[str], Instruction]:
    return lambda name: Instruction(opname, arg, name)


def _counted(opname: str) -> Callable[[int], Instruction]:
    return lambda count: Instruction(opname, count, count)


nop = _plain("NOP")
"""Does nothing; it can carry a line number or be the target of a jump."""


def resume() -> Instruction:
    """Returns the RESUME at the start of every function, after its cells are made."""
    return _counted("RESUME")(0)


def prologue(cells: Iterable[str] = (), n_free: int = 0) -> list[Instruction]:
    """Returns the first instructions of a function with these cell variables and this many free variables."""
    free = [_counted("COPY_FREE_VARS")(n_free)] if n_free else []
    return [*free, *(Instruction("MAKE_CELL", None, name) for name in cells), resume()]


def load_const(value: object) -> Instruction:
    """Pushes a constant."""
    return Instruction("LOAD_CONST", None, value)


load_fast = _named("LOAD_FAST")
"""Pushes the value of a local variable."""
store_fast = _named("STORE_FAST")
"""Pops a value into a local variable."""
delete_fast = _named("DELETE_FAST")
"""Deletes a local variable."""
load_deref = _named("LOAD_DEREF")
"""Pushes the value in the cell of a cell or free variable."""
store_deref = _named("STORE_DEREF")
"""Pops a value into the cell of a cell or free variable."""
load_closure = _named("LOAD_CLOSURE")
"""Pushes the cell itself."""


def cell_parameter(name: str) -> str:
    """Returns the name of the parameter through which a resume function takes the cell of one of its variables."""
    return f"__cell_{name}"


def adopt_cell(name: str) -> list[Instruction]:
    """Replaces the cell that the function made for `name` by the one in its parameter."""
    return [load_fast(cell_parameter(name)), store_fast(name), delete_fast(cell_parameter(name))]


load_global = _named("LOAD_GLOBAL", 0)
"""Pushes the value of a global or builtin name."""
store_global = _named("STORE_GLOBAL")
delete_global = _named("DELETE_GLOBAL")
load_attr = _named("LOAD_ATTR", 0)
"""Replaces the object on top of the stack by its attribute."""
store_attr = _named("STORE_ATTR")
"""Stack before: the value, the object."""
load_subscript = _plain("BINARY_SUBSCR")
"""Pops a container and a key, and pushes the item."""
store_subscript = _plain("STORE_SUBSCR")
"""Stack before: the value, the container, the key."""


def binary_op(symbol: str) -> Instruction:
    """The operator may be ``+``, ``@``, ``-=`` ..."""
    return Instruction("BINARY_OP", opset.BINARY_OPERATORS.index(symbol), symbol)


def is_op() -> Instruction:
    """Pops two objects, and pushes whether they are the same object."""
    return _counted("IS_OP")(0)


build_tuple = _counted("BUILD_TUPLE")
"""Pops `count` values, and pushes a tuple of them."""
build_list = _counted("BUILD_LIST")
"""Pops `count` values, and pushes a list of them."""
build_map = _counted("BUILD_MAP")
"""Stack before: key and value, `count` times."""
unpack_sequence = _counted("UNPACK_SEQUENCE")
"""Leaves the first item on top."""
copy = _counted("COPY")
"""Pushes the value at `depth` from the top; 1 is the top itself."""
swap = _counted("SWAP")
"""Swaps the top of the stack with the value at `depth` from the top; 1 is the top itself."""
pop_top = _plain("POP_TOP")
"""Drops the top of the stack."""
push_null = _plain("PUSH_NULL")
"""Pushes the NULL that stands beside a callable."""


def begin_except() -> list[Instruction]:
    """Starts handling the exception on top of the stack; its slot then holds the state that POP_EXCEPT restores."""
    return [Instruction("PUSH_EXC_INFO"), pop_top()]


def to_bool() -> list[Instruction]:
    """Replaces the top of the stack by its truth."""
    return [Instruction("UNARY_NOT"), Instruction("UNARY_NOT")] if _BEFORE_3_13 else [Instruction("TO_BOOL")]


return_value = _plain("RETURN_VALUE")
"""Returns the top of the stack from the function."""


def jump(target: Instruction) -> Instruction:
    """Jumps in either direction; `assemble` determines which."""
    return Instruction("JUMP_FORWARD", target=target)


def pop_jump_if(truth: bool, target: Instruction) -> list[Instruction]:
    """Pops any object and jumps forward to `target` if its truth is `truth`."""
    outcome = "TRUE" if truth else "FALSE"
    if _BEFORE_3_12:
        return [Instruction(f"POP_JUMP_FORWARD_IF_{outcome}", target=target)]
    test = [] if _BEFORE_3_13 else [Instruction("TO_BOOL")]
    return [*test, Instruction(f"POP_JUMP_IF_{outcome}", target=target)]


def pop_jump_if_none(is_none: bool, target: Instruction) -> list[Instruction]:
    """Pops an object and jumps forward to `target` if it is (or is not) None."""
    outcome = "NONE" if is_none else "NOT_NONE"
    return [Instruction(f"POP_JUMP_{'FORWARD_' if _BEFORE_3_12 else ''}IF_{outcome}", target=target)]


def call(n_args: int, kw_names: Sequence[str] = ()) -> list[Instruction]:
    """Calls what `load_callable` pushed with `n_args` arguments, the last ones by keyword."""
    names = tuple(kw_names)
    if len(names) > n_args:
        raise CompilerBug(f"a call with {n_args} arguments cannot have {len(names)} keywords")
    if not _BEFORE_3_13:
        return [load_const(names), _counted("CALL_KW")(n_args)] if names else [_counted("CALL")(n_args)]
    keywords = [Instruction("KW_NAMES", None, names)] if names else []
    announced = [_counted("PRECALL")(n_args)] if _BEFORE_3_12 else []
    return [*keywords, *announced, _counted("CALL")(n_args)]


def load_callable(loading: Sequence[Instruction]) -> list[Instruction]:
    """Pushes a callable for `call`, with its NULL below it (on 3.13 above it).  `loading` are the instructions that
    push it."""
    return [push_null(), *loading] if _BEFORE_3_13 else [*loading, push_null()]


def function(code: CodeType) -> list[Instruction]:
    """Pushes a function with this code, the globals of the code that makes it, and its cells of the same names."""
    free = [load_closure(name) for name in code.co_freevars]
    if not free:
        return [load_const(code), _counted("MAKE_FUNCTION")(0)]
    closure = [*free, build_tuple(len(free)), load_const(code)]
    if _BEFORE_3_13:
        return [*closure, _counted("MAKE_FUNCTION")(8)]
    return [*closure, Instruction("MAKE_FUNCTION"), _counted("SET_FUNCTION_ATTRIBUTE")(8)]
