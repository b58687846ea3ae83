"""Opcodes that build, extend and unpack containers."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from compiler_core.bytecode import Instruction
from compiler_core.capture.opcodes.stack import InterpreterState
from compiler_core.capture.values.base import ObservedException, observed_exception
from compiler_core.capture.values.builtin.constant import NONE
from compiler_core.capture.values.builtin.containers import ContainerValue
from compiler_core.capture.values.builtin.keys import to_key
from compiler_core.capture.values.builtin.mappings import DictValue, dict_items
from compiler_core.capture.values.builtin.sequences import ListValue, SliceValue, TupleValue
from compiler_core.capture.values.builtin.sets import SetValue
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    pass


class ContainerOpcodes(InterpreterState):
    """Building, extending and unpacking containers."""

    def BUILD_TUPLE(self, instruction: Instruction) -> None:
        self.push(TupleValue(self.pop_many(instruction.arg or 0)))

    def BUILD_LIST(self, instruction: Instruction) -> None:
        self.push(ListValue(self.pop_many(instruction.arg or 0)))

    def BUILD_SET(self, instruction: Instruction) -> None:
        values = self.pop_many(instruction.arg or 0)
        self.push(SetValue([to_key(self._tx, v) for v in values]))

    def BUILD_MAP(self, instruction: Instruction) -> None:
        flat = self.pop_many(2 * (instruction.arg or 0))
        keys = [to_key(self._tx, k) for k in flat[::2]]
        self.push(DictValue(dict(zip(keys, flat[1::2], strict=True))))

    def BUILD_CONST_KEY_MAP(self, instruction: Instruction) -> None:
        keys = self.pop().constant(self._tx)
        self.push(DictValue(dict(zip(keys, self.pop_many(len(keys)), strict=True))))

    def BUILD_SLICE(self, instruction: Instruction) -> None:
        parts = self.pop_many(instruction.arg or 0)
        self.push(SliceValue(parts if len(parts) == 3 else [*parts, NONE]))

    def LIST_TO_TUPLE(self, instruction: Instruction) -> None:
        self.push(TupleValue(list(self.pop().unpack(self._tx))))

    def _target_container(self, instruction: Instruction) -> ContainerValue:
        """Returns the container that a display or comprehension adds to; an outside one after a graph break in it."""
        container = self.stack[-(instruction.arg or 0)]
        if not isinstance(container, ContainerValue):
            raise Unsupported("unsupported mutation", str(container))
        container.prepare_mutation(self._tx)
        return container

    def LIST_APPEND(self, instruction: Instruction) -> None:
        value = self.pop()
        self._target_container(instruction).unpack(self._tx).append(value)

    def LIST_EXTEND(self, instruction: Instruction) -> None:
        added = self._tx.list_of(self.pop())
        self._target_container(instruction).unpack(self._tx).extend(added)

    def SET_ADD(self, instruction: Instruction) -> None:
        item = self.pop()
        cast(SetValue, self._target_container(instruction)).method_add(self._tx, item)

    def SET_UPDATE(self, instruction: Instruction) -> None:
        added = self.pop()
        cast(SetValue, self._target_container(instruction)).method_update(self._tx, added)

    def MAP_ADD(self, instruction: Instruction) -> None:
        key, value = self.pop_many(2)
        cast(DictValue, self._target_container(instruction)).mapping(self._tx)[to_key(self._tx, key)] = value

    def DICT_UPDATE(self, instruction: Instruction) -> None:
        added = dict_items(self._tx, self.pop())
        cast(DictValue, self._target_container(instruction)).mapping(self._tx).update(added)

    def DICT_MERGE(self, instruction: Instruction) -> None:
        added = dict_items(self._tx, self.pop())
        target = cast(DictValue, self._target_container(instruction)).mapping(self._tx)
        if target.keys() & added.keys():
            raise Unsupported("exception", "multiple values for a keyword argument")
        target.update(added)

    def UNPACK_SEQUENCE(self, instruction: Instruction) -> None:
        values = self._tx.list_of(self.pop())
        if len(values) != instruction.arg:
            raise _wrong_count(len(values), instruction.arg or 0)
        self.stack.extend(reversed(values))

    def UNPACK_EX(self, instruction: Instruction) -> None:
        before, after = (instruction.arg or 0) & 0xFF, (instruction.arg or 0) >> 8
        values = self._tx.list_of(self.pop())
        if len(values) < before + after:
            raise observed_exception(
                ValueError, f"not enough values to unpack (expected at least {before + after}, got {len(values)})"
            )
        end = len(values) - after
        parts = [*values[:before], ListValue(values[before:end]), *values[end:]]
        self.stack.extend(reversed(parts))


def _wrong_count(found: int, wanted: int) -> ObservedException:
    if found < wanted:
        return observed_exception(ValueError, f"not enough values to unpack (expected {wanted}, got {found})")
    return observed_exception(ValueError, f"too many values to unpack (expected {wanted})")
