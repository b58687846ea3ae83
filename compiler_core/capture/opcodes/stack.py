"""Opcodes that move values between the stack, locals, cells and constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

from compiler_core.bytecode import Instruction
from compiler_core.capture.values.base import NULL, UNBOUND, ObservedException, Value, observed_exception
from compiler_core.capture.values.builtin.constant import from_python, is_atom
from compiler_core.capture.values.builtin.sequences import TupleValue
from compiler_core.capture.values.builtin.sets import SetValue
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.capture.values.user.cells import CellValue
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.graph_builder import Capture
    from compiler_core.capture.values import interfaces
    from compiler_core.capture.values.user.exceptions import ExceptionValue

    class Interpreter(interfaces.Interpreter, Protocol):
        """What opcodes use of the interpreter that has them."""

        parent: Interpreter | None

        def step(self) -> None: ...

        def jump(self, target: Instruction | None) -> None: ...

        def handle_exception(self, error: ObservedException, instruction: Instruction) -> None: ...

        def handled_exception(self) -> ExceptionValue | None: ...

        def stop_iteration_error(self) -> None: ...

        def call_and_push(self, function: Value, args: list[Value], kwargs: dict[str, Value]) -> Value: ...

        def LOAD_CONST(self, instruction: Instruction) -> None: ...


class InterpreterState:
    """The state of the interpreter that opcodes read and change; `capture/interpreter.py` describes it."""

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
    handled_exceptions: list[ExceptionValue]
    """The exceptions being handled, the innermost last."""
    module: Any
    depth: int

    @property
    def _tx(self) -> Interpreter:
        return cast("Interpreter", self)

    def push(self, value: Value) -> None:
        self.stack.append(value)

    def pop(self) -> Value:
        return self.stack.pop()

    def pop_many(self, n: int) -> list[Value]:
        """Pops the top `n` values and returns them, the deepest first."""
        if not n:
            return []
        taken = self.stack[-n:]
        del self.stack[-n:]
        return taken


class StackOpcodes(InterpreterState):
    """Moving values between the stack, locals, cells and constants."""

    def _no_op(self, instruction: Instruction) -> None:
        pass

    RESUME = NOP = PRECALL = CACHE = COPY_FREE_VARS = _no_op

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
            raise _unbound_error(name)
        return value

    def LOAD_FAST(self, instruction: Instruction) -> None:
        self.push(self._load(instruction.argval))

    LOAD_FAST_CHECK = LOAD_FAST

    def LOAD_FAST_AND_CLEAR(self, instruction: Instruction) -> None:
        """Saves a variable whose slot an inlined comprehension uses; the variable may be a cell."""
        name = instruction.argval
        assert isinstance(name, str)
        shared = name in self.code.co_cellvars and name in self.cells
        self.push(self.cells.pop(name) if shared else self.locals.pop(name, UNBOUND))

    def LOAD_FAST_LOAD_FAST(self, instruction: Instruction) -> None:
        first, second = _two_names(instruction)
        self.push(self._load(first))
        self.push(self._load(second))

    def _store(self, name: str, value: Value) -> None:
        if isinstance(value, CellValue) and name in (*self.code.co_cellvars, *self.code.co_freevars):
            self.cells[name] = value  # restored after an inlined comprehension, which used the slot
            self.locals.pop(name, None)
        else:
            self.locals[name] = value

    def STORE_FAST(self, instruction: Instruction) -> None:
        assert isinstance(instruction.argval, str)
        self._store(instruction.argval, self.pop())

    def STORE_FAST_STORE_FAST(self, instruction: Instruction) -> None:
        first, second = _two_names(instruction)
        self._store(first, self.pop())
        self._store(second, self.pop())

    def STORE_FAST_LOAD_FAST(self, instruction: Instruction) -> None:
        first, second = _two_names(instruction)
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
            return cell.get(self._tx)
        name = instruction.argval
        if name in self.code.co_cellvars:
            raise _unbound_error(name)
        text = f"cannot access free variable {name!r} where it is not associated with a value in enclosing scope"
        raise observed_exception(NameError, text)

    def STORE_DEREF(self, instruction: Instruction) -> None:
        self._cell(instruction).set(self._tx, self.pop())

    def DELETE_DEREF(self, instruction: Instruction) -> None:
        self._cell_value(instruction)
        if self._cell(instruction).source is not None:
            raise Unsupported("unsupported instruction", "del of a variable of the enclosing function")
        self._cell(instruction).set(self._tx, UNBOUND)


def _unbound_error(name: object) -> ObservedException:
    return observed_exception(
        UnboundLocalError, f"cannot access local variable {name!r} where it is not associated with a value"
    )


def _two_names(instruction: Instruction) -> tuple[str, str]:
    assert isinstance(instruction.argval, tuple)
    first, second = instruction.argval
    return first, second


def _constant(machine: InterpreterState, obj: Any) -> Value:
    if is_atom(obj):
        return from_python(obj)
    if type(obj) in (tuple, frozenset):
        if type(obj) is tuple:
            return TupleValue([_constant(machine, v) for v in obj])
        return SetValue.from_members(obj)
    if hasattr(obj, "co_code"):
        return StaticValue(obj)
    # an object that generated code, such as the code around a resume function, has as a constant
    return machine.capture.wrap_static(obj)
