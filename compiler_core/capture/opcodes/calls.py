"""Opcodes that call and make functions."""

from __future__ import annotations

import builtins
import operator
import sys
from typing import TYPE_CHECKING, cast

from compiler_core.bytecode import Instruction
from compiler_core.capture.opcodes.stack import InterpreterState
from compiler_core.capture.values.base import NULL, UNBOUND, Value
from compiler_core.capture.values.builtin.mappings import DictValue, dict_items
from compiler_core.capture.values.builtin.sequences import TupleValue
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.capture.values.user.cells import CellValue
from compiler_core.capture.values.user.functions import FunctionValue
from compiler_core.capture.values.user.super import SuperValue
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    pass

BEFORE_3_13 = sys.version_info < (3, 13)
DEFAULTS, KWDEFAULTS, ANNOTATIONS, CLOSURE = 1, 2, 4, 8


class CallOpcodes(InterpreterState):
    """Calls, and making functions."""

    def KW_NAMES(self, instruction: Instruction) -> None:
        self.kw_names = cast("tuple[str, ...]", instruction.argval)

    def CALL(self, instruction: Instruction) -> None:
        names, self.kw_names = self.kw_names, ()
        self._call(instruction.arg or 0, names)

    def CALL_KW(self, instruction: Instruction) -> None:
        names = self.pop().constant(self._tx)
        self._call(instruction.arg or 0, names)

    def _call(self, n: int, names: tuple[str, ...]) -> None:
        args = self.pop_many(n)
        first, second = self.pop_many(2)
        # 3.11, 3.12: NULL or method, then callable or self; 3.13: callable, then NULL or self
        if BEFORE_3_13:
            function, args = (second, args) if first is NULL else (first, [second, *args])
        else:
            function, args = (first, args) if second is NULL else (first, [second, *args])
        positional = len(args) - len(names)
        kwargs = dict(zip(names, args[positional:], strict=True))
        self.push(self._call_value(function, args[:positional], kwargs))

    def _call_value(self, function: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if isinstance(function, StaticValue) and function.obj is super and not args:
            return self._zero_argument_super()
        return self._tx.call_and_push(function, args, kwargs)

    def _zero_argument_super(self) -> Value:
        if not self.code.co_argcount or "__class__" not in self.cells:
            raise Unsupported("exception", "super() outside a method")
        cls = self.cells["__class__"].get(self._tx).constant(self._tx)
        owner_name = self.code.co_varnames[0]
        owner = self.cells[owner_name].get(self._tx) if owner_name in self.cells else self.locals.get(owner_name)
        if owner is None or owner is UNBOUND:
            raise Unsupported("exception", "super() after its first argument was deleted")
        return SuperValue.create(self._tx, cls, owner)

    def CALL_FUNCTION_EX(self, instruction: Instruction) -> None:
        kwargs = dict_items(self._tx, self.pop()) if (instruction.arg or 0) & 1 else {}
        args = self._tx.list_of(self.pop())
        if BEFORE_3_13:
            function = self.pop()
            self.pop()
        else:
            self.pop()
            function = self.pop()
        self.push(self._call_value(function, args, kwargs))

    def CALL_INTRINSIC_1(self, instruction: Instruction) -> None:
        if instruction.arg == 6:  # INTRINSIC_LIST_TO_TUPLE
            self.push(TupleValue(list(self.pop().unpack(self._tx))))
        elif instruction.arg == 3:  # INTRINSIC_STOPITERATION_ERROR
            self._tx.stop_iteration_error()
        elif instruction.arg == 5:  # INTRINSIC_UNARY_POSITIVE
            self.push(self._tx.call_static(operator.pos, [self.pop()], {}))
        else:
            raise Unsupported("unsupported instruction", f"CALL_INTRINSIC_1 {instruction.arg}")

    # --- making functions and classes

    def LOAD_BUILD_CLASS(self, instruction: Instruction) -> None:
        self.push(StaticValue(builtins.__build_class__))  # its call breaks the graph

    def MAKE_FUNCTION(self, instruction: Instruction) -> None:
        flags = instruction.arg or 0
        code = self.pop().constant(self._tx)
        function = FunctionValue(code, self.f_globals, code.co_qualname)
        if BEFORE_3_13:
            for flag in (CLOSURE, ANNOTATIONS, KWDEFAULTS, DEFAULTS):
                if flags & flag:
                    self._set_function_attribute(function, flag, self.pop())
        self.push(function)

    def SET_FUNCTION_ATTRIBUTE(self, instruction: Instruction) -> None:
        value, function = self.pop_many(2)
        assert isinstance(function, FunctionValue)
        self._set_function_attribute(function, instruction.arg or 0, value)
        self.push(function)

    def _set_function_attribute(self, function: FunctionValue, flag: int, value: Value) -> None:
        if flag == CLOSURE:
            function.closure = [cast(CellValue, c) for c in value.unpack(self._tx)]
        elif flag == DEFAULTS:
            function.defaults = list(value.unpack(self._tx))
        elif flag == KWDEFAULTS:
            function.kwdefaults = dict(cast(DictValue, value).mapping(self._tx))
        elif flag == ANNOTATIONS:
            flat = value.unpack(self._tx)  # names and annotations alternate
            found = {name.constant(self._tx): each for name, each in zip(flat[::2], flat[1::2], strict=True)}
            function.special_attributes["__annotations__"] = DictValue(found)
