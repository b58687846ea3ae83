"""Opcodes that move values between the stack, locals, cells and constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compiler_core.bytecode import Instruction
from compiler_core.capture.values.base import NULL, UNBOUND, Raised, Value, raised
from compiler_core.capture.values.constant import from_python, is_atom
from compiler_core.capture.values.static import StaticValue
from compiler_core.capture.values.user.cells import CellValue
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.graph_builder import Capture
    from compiler_core.capture.values.exceptions import ExceptionValue


class Machine:
    """The state that every opcode works on (see `symbolic.Interpreter`)."""

    capture: Capture
    code: Any
    instructions: list[Instruction]
    index: dict[Instruction, int]
    f_globals: dict[str, Any]
    f_builtins: dict[str, Any]
    locals: dict[str, Value]
    cells: dict[str, CellValue]
    stack: list[Value]
    pc: int
    kw_names: tuple[str, ...]
    returned: Value | None
    yielded: Value | None
    handling: list[ExceptionValue]
    """The exceptions being handled, the innermost last."""
    module: Any
    depth: int

    def push(self, value: Value) -> None:
        self.stack.append(value)

    def pop(self) -> Value:
        return self.stack.pop()

    def pop_many(self, n: int) -> list[Value]:
        """The top `n` values, the deepest first."""
        if not n:
            return []
        taken = self.stack[-n:]
        del self.stack[-n:]
        return taken


class StackOpcodes(Machine):
    def _nothing(self, instruction: Instruction) -> None:
        pass

    RESUME = NOP = PRECALL = CACHE = COPY_FREE_VARS = _nothing

    def POP_TOP(self, instruction: Instruction) -> None:
        self.pop()

    def PUSH_NULL(self, instruction: Instruction) -> None:
        self.push(NULL)

    def COPY(self, instruction: Instruction) -> None:
        assert instruction.arg is not None
        self.push(self.stack[-instruction.arg])

    def SWAP(self, instruction: Instruction) -> None:
        assert instruction.arg is not None
        i = -instruction.arg
        self.stack[-1], self.stack[i] = self.stack[i], self.stack[-1]

    def LOAD_CONST(self, instruction: Instruction) -> None:
        self.push(_constant(self, instruction.argval))

    # --- locals

    def _load(self, name: Any) -> Value:
        value = self.locals.get(name, UNBOUND)
        if value is UNBOUND:
            raise _unbound(name)
        return value

    def LOAD_FAST(self, instruction: Instruction) -> None:
        self.push(self._load(instruction.argval))

    LOAD_FAST_CHECK = LOAD_FAST

    def LOAD_FAST_AND_CLEAR(self, instruction: Instruction) -> None:
        """A comprehension borrows the place of a variable, which may be one that inner functions share."""
        name = instruction.argval
        assert isinstance(name, str)
        shared = name in self.code.co_cellvars and name in self.cells
        self.push(self.cells.pop(name) if shared else self.locals.pop(name, UNBOUND))

    def LOAD_FAST_LOAD_FAST(self, instruction: Instruction) -> None:
        first, second = _two(instruction)
        self.push(self._load(first))
        self.push(self._load(second))

    def _store(self, name: str, value: Value) -> None:
        if isinstance(value, CellValue) and name in (*self.code.co_cellvars, *self.code.co_freevars):
            self.cells[name] = value  # put back after a comprehension, whose own value was in its place
            self.locals.pop(name, None)
        else:
            self.locals[name] = value

    def STORE_FAST(self, instruction: Instruction) -> None:
        assert isinstance(instruction.argval, str)
        self._store(instruction.argval, self.pop())

    def STORE_FAST_STORE_FAST(self, instruction: Instruction) -> None:
        first, second = _two(instruction)
        self._store(first, self.pop())
        self._store(second, self.pop())

    def STORE_FAST_LOAD_FAST(self, instruction: Instruction) -> None:
        first, second = _two(instruction)
        self._store(first, self.pop())
        self.push(self._load(second))

    STORE_FAST_MAYBE_NULL = STORE_FAST

    def DELETE_FAST(self, instruction: Instruction) -> None:
        self._load(instruction.argval)
        assert isinstance(instruction.argval, str)
        del self.locals[instruction.argval]

    # --- cells

    def MAKE_CELL(self, instruction: Instruction) -> None:
        assert isinstance(instruction.argval, str)
        self.cells[instruction.argval] = CellValue(self.locals.pop(instruction.argval, UNBOUND))

    def _cell(self, instruction: Instruction) -> CellValue:
        assert isinstance(instruction.argval, str)
        return self.cells[instruction.argval]

    def LOAD_CLOSURE(self, instruction: Instruction) -> None:
        self.push(self._cell(instruction))

    def LOAD_DEREF(self, instruction: Instruction) -> None:
        self.push(self._cell_value(instruction))

    LOAD_CLASSDEREF = LOAD_DEREF

    def _cell_value(self, instruction: Instruction) -> Value:
        cell = self._cell(instruction)
        if not cell.is_empty():
            return cell.get(self)  # type: ignore[arg-type]
        name = instruction.argval
        if name in self.code.co_cellvars:
            raise _unbound(name)
        text = f"cannot access free variable {name!r} where it is not associated with a value in enclosing scope"
        raise raised(NameError, text)

    def STORE_DEREF(self, instruction: Instruction) -> None:
        self._cell(instruction).set(self, self.pop())  # type: ignore[arg-type]

    def DELETE_DEREF(self, instruction: Instruction) -> None:
        self._cell_value(instruction)
        if self._cell(instruction).source is not None:
            raise Unsupported("unsupported instruction", "del of a variable of the function around it")
        self._cell(instruction).set(self, UNBOUND)  # type: ignore[arg-type]


def _unbound(name: object) -> Raised:
    return raised(UnboundLocalError, f"cannot access local variable {name!r} where it is not associated with a value")


def _two(instruction: Instruction) -> tuple[str, str]:
    assert isinstance(instruction.argval, tuple)
    first, second = instruction.argval
    return first, second


def _constant(machine: Machine, obj: Any) -> Value:
    if is_atom(obj):
        return from_python(obj)
    if type(obj) in (tuple, frozenset):
        from compiler_core.capture.values.builtin.sequences import TupleValue
        from compiler_core.capture.values.builtin.sets import SetValue

        if type(obj) is tuple:
            return TupleValue([_constant(machine, v) for v in obj])
        return SetValue.made(obj)
    if hasattr(obj, "co_code"):
        return StaticValue(obj)
    # objects that generated code (a resume function's parent) carries as constants
    return machine.capture.wrap_static(obj)
