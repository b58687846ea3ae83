"""Opcodes for operators, comparisons, subscripts and f-strings."""

from __future__ import annotations

import operator
import sys
from typing import TYPE_CHECKING, Any, cast

from compiler_core.bytecode import Instruction
from compiler_core.capture.opcodes.stack import InterpreterState
from compiler_core.capture.rules.calls import call_static
from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.builtin.sequences import SliceValue
from compiler_core.capture.values.builtin.symbols import join_text, symbolic_text
from compiler_core.capture.values.tensor import TensorValue

if TYPE_CHECKING:
    pass

BINARY: dict[str, Any] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "@": operator.matmul, "&": operator.and_, "|": operator.or_,
    "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
    "+=": operator.iadd, "-=": operator.isub, "*=": operator.imul, "/=": operator.itruediv, "//=": operator.ifloordiv,
    "%=": operator.imod, "**=": operator.ipow, "@=": operator.imatmul, "&=": operator.iand, "|=": operator.ior,
    "^=": operator.ixor, "<<=": operator.ilshift, ">>=": operator.irshift,
}  # fmt: skip
COMPARE: dict[str, Any] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
CONVERSIONS = {1: str, 2: repr, 3: ascii}


class OperatorOpcodes(InterpreterState):
    """Operators, comparisons, subscripts and f-strings."""

    def _operate(self, op: Any, *operands: Value) -> Value:
        return call_static(self._tx, op, operands, {})

    def BINARY_OP(self, instruction: Instruction) -> None:
        left, right = self.pop_many(2)
        self.push(self._operate(BINARY[cast(str, instruction.argval)], left, right))

    def COMPARE_OP(self, instruction: Instruction) -> None:
        left, right = self.pop_many(2)
        result = self._operate(COMPARE[cast(str, instruction.argval)], left, right)
        as_bool = sys.version_info >= (3, 13) and bool((instruction.arg or 0) & 16)
        self.push(self._as_bool(result) if as_bool else result)

    def TO_BOOL(self, instruction: Instruction) -> None:
        self.push(self._as_bool(self.pop()))

    def _as_bool(self, value: Value) -> Value:
        """Converts a value to bool; leaves a tensor to the branch that follows, which can break with both targets."""
        follows = self.instructions[self.pc].opname
        if isinstance(value, TensorValue) and follows in ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "TO_BOOL"):
            return value
        return ConstantValue(value.truth(self._tx))

    def IS_OP(self, instruction: Instruction) -> None:
        left, right = self.pop_many(2)
        self.push(ConstantValue(self._tx.is_same(left, right) != bool(instruction.arg)))

    def CONTAINS_OP(self, instruction: Instruction) -> None:
        item, container = self.pop_many(2)
        self.push(ConstantValue(container.contains(self._tx, item) != bool(instruction.arg)))

    def UNARY_NEGATIVE(self, instruction: Instruction) -> None:
        self.push(self._operate(operator.neg, self.pop()))

    def UNARY_POSITIVE(self, instruction: Instruction) -> None:
        self.push(self._operate(operator.pos, self.pop()))

    def UNARY_INVERT(self, instruction: Instruction) -> None:
        self.push(self._operate(operator.invert, self.pop()))

    def UNARY_NOT(self, instruction: Instruction) -> None:
        self.push(ConstantValue(not self.pop().truth(self._tx)))

    # --- subscripts

    def BINARY_SUBSCR(self, instruction: Instruction) -> None:
        owner, key = self.pop_many(2)
        self.push(owner.get_item(self._tx, key))

    def STORE_SUBSCR(self, instruction: Instruction) -> None:
        value, owner, key = self.pop_many(3)
        owner.set_item(self._tx, key, value)

    def DELETE_SUBSCR(self, instruction: Instruction) -> None:
        owner, key = self.pop_many(2)
        owner.del_item(self._tx, key)

    def BINARY_SLICE(self, instruction: Instruction) -> None:
        owner, start, stop = self.pop_many(3)
        self.push(owner.get_item(self._tx, SliceValue([start, stop, NONE])))

    def STORE_SLICE(self, instruction: Instruction) -> None:
        value, owner, start, stop = self.pop_many(4)
        owner.set_item(self._tx, SliceValue([start, stop, NONE]), value)

    # --- f-strings

    def FORMAT_VALUE(self, instruction: Instruction) -> None:
        flags = instruction.arg or 0
        spec = self.pop() if flags & 4 else ConstantValue("")
        self.push(self._format(self._converted(self.pop(), flags & 3), spec))

    def CONVERT_VALUE(self, instruction: Instruction) -> None:
        self.push(self._converted(self.pop(), instruction.arg or 0))

    def FORMAT_SIMPLE(self, instruction: Instruction) -> None:
        self.push(self._format(self.pop(), ConstantValue("")))

    def FORMAT_WITH_SPEC(self, instruction: Instruction) -> None:
        value, spec = self.pop_many(2)
        self.push(self._format(value, spec))

    def _converted(self, value: Value, conversion: int) -> Value:
        return call_static(self._tx, CONVERSIONS[conversion], [value], {}) if conversion else value

    def _format(self, value: Value, spec: Value) -> Value:
        return call_static(self._tx, format, [value, spec], {})

    def BUILD_STRING(self, instruction: Instruction) -> None:
        parts = self.pop_many(instruction.arg or 0)
        symbolic = symbolic_text(join_text, self._tx, *parts)
        self.push(symbolic or ConstantValue("".join(p.constant(self._tx) for p in parts)))
