"""Constructors of instructions that are the same for every CPython version.

A constructor returns an `Instruction` if one is enough in all versions, else a list.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import CodeType

from compiler_core.bytecode import opset
from compiler_core.bytecode.instructions import Instruction
from compiler_core.errors import CompilerBug

_BEFORE_3_12 = opset.VERSION < (3, 12)
_BEFORE_3_13 = opset.VERSION < (3, 13)


def _named(opname: str, name: str, arg: int | None = None) -> Instruction:
    return Instruction(opname, arg, name)


def _counted(opname: str, count: int) -> Instruction:
    return Instruction(opname, count, count)


def nop() -> Instruction:
    """Does nothing; it can carry a line number or be the target of a jump."""
    return Instruction("NOP")


def resume() -> Instruction:
    """Returns the RESUME at the start of every function, after its cells are made."""
    return _counted("RESUME", 0)


def prologue(cells: Iterable[str] = (), n_free: int = 0) -> list[Instruction]:
    """Returns the first instructions of a function with these cell variables and this many free variables."""
    free = [_counted("COPY_FREE_VARS", n_free)] if n_free else []
    return [*free, *(_named("MAKE_CELL", name) for name in cells), resume()]


def load_const(value: object) -> Instruction:
    """Pushes a constant."""
    return Instruction("LOAD_CONST", None, value)


def load_fast(name: str) -> Instruction:
    """Pushes the value of a local variable."""
    return _named("LOAD_FAST", name)


def store_fast(name: str) -> Instruction:
    """Pops a value into a local variable."""
    return _named("STORE_FAST", name)


def delete_fast(name: str) -> Instruction:
    """Deletes a local variable."""
    return _named("DELETE_FAST", name)


def load_deref(name: str) -> Instruction:
    """Pushes the value in the cell of a cell or free variable."""
    return _named("LOAD_DEREF", name)


def store_deref(name: str) -> Instruction:
    """Pops a value into the cell of a cell or free variable."""
    return _named("STORE_DEREF", name)


def load_closure(name: str) -> Instruction:
    """Pushes the cell itself."""
    return _named("LOAD_CLOSURE", name)


def cell_parameter(name: str) -> str:
    """Returns the name of the parameter through which a resume function takes the cell of one of its variables."""
    return f"__cell_{name}"


def adopt_cell(name: str) -> list[Instruction]:
    """Replaces the cell that the function made for `name` by the one in its parameter."""
    return [load_fast(cell_parameter(name)), store_fast(name), delete_fast(cell_parameter(name))]


def load_global(name: str) -> Instruction:
    """Pushes the value of a global or builtin name."""
    return _named("LOAD_GLOBAL", name, 0)


def load_attr(name: str) -> Instruction:
    """Replaces the object on top of the stack by its attribute."""
    return _named("LOAD_ATTR", name, 0)


def store_attr(name: str) -> Instruction:
    """Stack before: the value, the object."""
    return _named("STORE_ATTR", name)


def load_subscript() -> Instruction:
    """Pops a container and a key, and pushes the item."""
    return Instruction("BINARY_SUBSCR")


def store_subscript() -> Instruction:
    """Stack before: the value, the container, the key."""
    return Instruction("STORE_SUBSCR")


def binary_op(symbol: str) -> Instruction:
    """The operator may be ``+``, ``@``, ``-=`` ..."""
    return Instruction("BINARY_OP", opset.BINARY_OPERATORS.index(symbol), symbol)


def is_op() -> Instruction:
    """Pops two objects, and pushes whether they are the same object."""
    return _counted("IS_OP", 0)


def build_tuple(count: int) -> Instruction:
    """Pops `count` values, and pushes a tuple of them."""
    return _counted("BUILD_TUPLE", count)


def build_list(count: int) -> Instruction:
    """Pops `count` values, and pushes a list of them."""
    return _counted("BUILD_LIST", count)


def build_map(count: int) -> Instruction:
    """Stack before: key and value, `count` times."""
    return _counted("BUILD_MAP", count)


def unpack_sequence(count: int) -> Instruction:
    """Leaves the first item on top."""
    return _counted("UNPACK_SEQUENCE", count)


def copy(depth: int) -> Instruction:
    """Pushes the value at `depth` from the top; 1 is the top itself."""
    return _counted("COPY", depth)


def swap(depth: int) -> Instruction:
    """Swaps the top of the stack with the value at `depth` from the top; 1 is the top itself."""
    return _counted("SWAP", depth)


def pop_top() -> Instruction:
    """Drops the top of the stack."""
    return Instruction("POP_TOP")


def push_null() -> Instruction:
    """Pushes the NULL that stands beside a callable."""
    return Instruction("PUSH_NULL")


def begin_except() -> list[Instruction]:
    """Starts handling the exception on top of the stack; its slot then holds the state that POP_EXCEPT restores."""
    return [Instruction("PUSH_EXC_INFO"), pop_top()]


def to_bool() -> list[Instruction]:
    """Replaces the top of the stack by its truth."""
    return [Instruction("UNARY_NOT"), Instruction("UNARY_NOT")] if _BEFORE_3_13 else [Instruction("TO_BOOL")]


def return_value() -> Instruction:
    """Returns the top of the stack from the function."""
    return Instruction("RETURN_VALUE")


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
        return [load_const(names), _counted("CALL_KW", n_args)] if names else [_counted("CALL", n_args)]
    keywords = [Instruction("KW_NAMES", None, names)] if names else []
    announced = [_counted("PRECALL", n_args)] if _BEFORE_3_12 else []
    return [*keywords, *announced, _counted("CALL", n_args)]


def load_callable(loading: Sequence[Instruction]) -> list[Instruction]:
    """Pushes a callable for `call`, with its NULL below it (on 3.13 above it).  `loading` are the instructions that
    push it."""
    return [push_null(), *loading] if _BEFORE_3_13 else [*loading, push_null()]


def function(code: CodeType) -> list[Instruction]:
    """Pushes a function with this code, the globals of the code that makes it, and its cells of the same names."""
    free = [load_closure(name) for name in code.co_freevars]
    if not free:
        return [load_const(code), _counted("MAKE_FUNCTION", 0)]
    closure = [*free, build_tuple(len(free)), load_const(code)]
    if _BEFORE_3_13:
        return [*closure, _counted("MAKE_FUNCTION", 8)]
    return [*closure, Instruction("MAKE_FUNCTION"), _counted("SET_FUNCTION_ATTRIBUTE", 8)]
