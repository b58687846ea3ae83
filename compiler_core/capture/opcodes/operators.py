"""Opcodes that compute: operators, subscripts, f-strings, containers, and the patterns of the match statement."""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from compiler_core.bytecode import Instruction
from compiler_core.capture.opcodes.table import opcode
from compiler_core.capture.rules.calls import call_static
from compiler_core.capture.rules.table import HANDLERS
from compiler_core.capture.values.base import (
    ObservedException,
    Value,
    observed_exception,
    type_errors_left_to_python,
)
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.builtin.containers import ContainerValue
from compiler_core.capture.values.builtin.mappings import DictValue, dict_items
from compiler_core.capture.values.builtin.sequences import ListValue, SliceValue, TupleValue
from compiler_core.capture.values.builtin.sets import SetValue
from compiler_core.capture.values.builtin.static import StaticValue, evaluate
from compiler_core.capture.values.builtin.symbols import join_text, symbolic_text
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


BINARY: dict[str, Any] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "@": operator.matmul, "&": operator.and_, "|": operator.or_,
    "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
    "+=": operator.iadd, "-=": operator.isub, "*=": operator.imul, "/=": operator.itruediv, "//=": operator.ifloordiv,
    "%=": operator.imod, "**=": operator.ipow, "@=": operator.imatmul, "&=": operator.iand, "|=": operator.ior,
    "^=": operator.ixor, "<<=": operator.ilshift, ">>=": operator.irshift,
}  # fmt: skip
UNARY: dict[str, Any] = {
    "UNARY_NEGATIVE": operator.neg, "UNARY_POSITIVE": operator.pos, "UNARY_INVERT": operator.invert,
}  # fmt: skip
COMPARE: dict[str, Any] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
CONVERSIONS = {1: str, 2: repr, 3: ascii}
IS_SEQUENCE, IS_MAPPING, MATCHES_ITSELF = 1 << 5, 1 << 6, 1 << 22  # flags of a type
MISSING = StaticValue(object())


def _operate(tx: Interpreter, op: Any, *operands: Value) -> Value:
    return call_static(tx, op, operands, {})


@opcode()
def BINARY_OP(tx: Interpreter, instruction: Instruction) -> None:
    left, right = tx.pop_many(2)
    tx.push(_operate(tx, BINARY[cast(str, instruction.argval)], left, right))


@opcode()
def COMPARE_OP(tx: Interpreter, instruction: Instruction) -> None:
    left, right = tx.pop_many(2)
    result = _operate(tx, COMPARE[cast(str, instruction.argval)], left, right)
    as_bool = sys.version_info >= (3, 13) and bool((instruction.arg or 0) & 16)
    tx.push(_as_bool(tx, result) if as_bool else result)


@opcode()
def TO_BOOL(tx: Interpreter, instruction: Instruction) -> None:
    tx.push(_as_bool(tx, tx.pop()))


def _as_bool(tx: Interpreter, value: Value) -> Value:
    """Converts a value to bool; leaves a tensor to the branch that follows, which can break with both targets."""
    follows = tx.instructions[tx.pc].opname
    if isinstance(value, TensorValue) and follows in ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "TO_BOOL"):
        return value
    return ConstantValue(value.truth(tx))


@opcode()
def IS_OP(tx: Interpreter, instruction: Instruction) -> None:
    left, right = tx.pop_many(2)
    tx.push(ConstantValue(tx.is_same(left, right) != bool(instruction.arg)))


@opcode()
def CONTAINS_OP(tx: Interpreter, instruction: Instruction) -> None:
    item, container = tx.pop_many(2)
    tx.push(ConstantValue(container.contains(tx, item) != bool(instruction.arg)))


@opcode("UNARY_POSITIVE", "UNARY_INVERT")
def UNARY_NEGATIVE(tx: Interpreter, instruction: Instruction) -> None:
    tx.push(_operate(tx, UNARY[instruction.opname], tx.pop()))


@opcode()
def UNARY_NOT(tx: Interpreter, instruction: Instruction) -> None:
    tx.push(ConstantValue(not tx.pop().truth(tx)))


# --- subscripts


@opcode()
def BINARY_SUBSCR(tx: Interpreter, instruction: Instruction) -> None:
    owner, key = tx.pop_many(2)
    tx.push(owner.get_item(tx, key))


@opcode()
def STORE_SUBSCR(tx: Interpreter, instruction: Instruction) -> None:
    value, owner, key = tx.pop_many(3)
    owner.set_item(tx, key, value)


@opcode()
def DELETE_SUBSCR(tx: Interpreter, instruction: Instruction) -> None:
    owner, key = tx.pop_many(2)
    owner.del_item(tx, key)


@opcode()
def BINARY_SLICE(tx: Interpreter, instruction: Instruction) -> None:
    owner, start, stop = tx.pop_many(3)
    tx.push(owner.get_item(tx, SliceValue([start, stop, NONE])))


@opcode()
def STORE_SLICE(tx: Interpreter, instruction: Instruction) -> None:
    value, owner, start, stop = tx.pop_many(4)
    owner.set_item(tx, SliceValue([start, stop, NONE]), value)


# --- f-strings


@opcode()
def FORMAT_VALUE(tx: Interpreter, instruction: Instruction) -> None:
    flags = instruction.arg or 0
    spec = tx.pop() if flags & 4 else ConstantValue("")
    tx.push(_format(tx, _converted(tx, tx.pop(), flags & 3), spec))


@opcode()
def CONVERT_VALUE(tx: Interpreter, instruction: Instruction) -> None:
    tx.push(_converted(tx, tx.pop(), instruction.arg or 0))


@opcode()
def FORMAT_SIMPLE(tx: Interpreter, instruction: Instruction) -> None:
    tx.push(_format(tx, tx.pop(), ConstantValue("")))


@opcode()
def FORMAT_WITH_SPEC(tx: Interpreter, instruction: Instruction) -> None:
    value, spec = tx.pop_many(2)
    tx.push(_format(tx, value, spec))


def _converted(tx: Interpreter, value: Value, conversion: int) -> Value:
    return call_static(tx, CONVERSIONS[conversion], [value], {}) if conversion else value


def _format(tx: Interpreter, value: Value, spec: Value) -> Value:
    return call_static(tx, format, [value, spec], {})


@opcode()
def BUILD_STRING(tx: Interpreter, instruction: Instruction) -> None:
    parts = tx.pop_many(instruction.arg or 0)
    symbolic = symbolic_text(join_text, tx, *parts)
    tx.push(symbolic or ConstantValue("".join(p.constant(tx) for p in parts)))


@opcode()
def BUILD_TUPLE(tx: Interpreter, instruction: Instruction) -> None:
    tx.push(TupleValue(tx.pop_many(instruction.arg or 0)))


@opcode()
def BUILD_LIST(tx: Interpreter, instruction: Instruction) -> None:
    tx.push(ListValue(tx.pop_many(instruction.arg or 0)))


@opcode()
def BUILD_SET(tx: Interpreter, instruction: Instruction) -> None:
    values = tx.pop_many(instruction.arg or 0)
    tx.push(SetValue([v.as_key(tx) for v in values]))


@opcode()
def BUILD_MAP(tx: Interpreter, instruction: Instruction) -> None:
    flat = tx.pop_many(2 * (instruction.arg or 0))
    keys = [k.as_key(tx) for k in flat[::2]]
    tx.push(DictValue(dict(zip(keys, flat[1::2], strict=True))))


@opcode()
def BUILD_CONST_KEY_MAP(tx: Interpreter, instruction: Instruction) -> None:
    keys = tx.pop().constant(tx)
    tx.push(DictValue(dict(zip(keys, tx.pop_many(len(keys)), strict=True))))


@opcode()
def BUILD_SLICE(tx: Interpreter, instruction: Instruction) -> None:
    parts = tx.pop_many(instruction.arg or 0)
    tx.push(SliceValue(parts if len(parts) == 3 else [*parts, NONE]))


@opcode()
def LIST_TO_TUPLE(tx: Interpreter, instruction: Instruction) -> None:
    tx.push(TupleValue(list(tx.pop().unpack(tx))))


def _target_container(tx: Interpreter, instruction: Instruction) -> ContainerValue:
    """Returns the container that a display or comprehension adds to; an outside one after a graph break in it."""
    container = tx.stack[-(instruction.arg or 0)]
    if not isinstance(container, ContainerValue):
        raise Unsupported("unsupported mutation", str(container))
    container.prepare_mutation(tx)
    return container


@opcode()
def LIST_APPEND(tx: Interpreter, instruction: Instruction) -> None:
    value = tx.pop()
    _target_container(tx, instruction).unpack(tx).append(value)


@opcode()
def LIST_EXTEND(tx: Interpreter, instruction: Instruction) -> None:
    with type_errors_left_to_python("what follows * is not iterable"):
        added = tx.list_of(tx.pop())
    _target_container(tx, instruction).unpack(tx).extend(added)


@opcode()
def SET_ADD(tx: Interpreter, instruction: Instruction) -> None:
    item = tx.pop()
    cast(SetValue, _target_container(tx, instruction)).method_add(tx, item)


@opcode()
def SET_UPDATE(tx: Interpreter, instruction: Instruction) -> None:
    added = tx.pop()
    cast(SetValue, _target_container(tx, instruction)).method_update(tx, added)


@opcode()
def MAP_ADD(tx: Interpreter, instruction: Instruction) -> None:
    key, value = tx.pop_many(2)
    cast(DictValue, _target_container(tx, instruction)).mapping(tx)[key.as_key(tx)] = value


@opcode()
def DICT_UPDATE(tx: Interpreter, instruction: Instruction) -> None:
    with type_errors_left_to_python("what follows ** is not a mapping"):
        added = dict_items(tx, tx.pop())
    cast(DictValue, _target_container(tx, instruction)).mapping(tx).update(added)


@opcode()
def DICT_MERGE(tx: Interpreter, instruction: Instruction) -> None:
    with type_errors_left_to_python("what follows ** is not a mapping"):
        added = dict_items(tx, tx.pop())
    target = cast(DictValue, _target_container(tx, instruction)).mapping(tx)
    if target.keys() & added.keys():
        raise Unsupported("exception", "multiple values for a keyword argument")
    target.update(added)


def _unpacked(tx: Interpreter) -> list[Value]:
    """Pops what a statement unpacks, and returns its items."""
    with type_errors_left_to_python("what is unpacked is not iterable"):
        return tx.list_of(tx.pop())


@opcode()
def UNPACK_SEQUENCE(tx: Interpreter, instruction: Instruction) -> None:
    values = _unpacked(tx)
    if len(values) != instruction.arg:
        raise _wrong_count(len(values), instruction.arg or 0)
    tx.stack.extend(reversed(values))


@opcode()
def UNPACK_EX(tx: Interpreter, instruction: Instruction) -> None:
    before, after = (instruction.arg or 0) & 0xFF, (instruction.arg or 0) >> 8
    values = _unpacked(tx)
    if len(values) < before + after:
        raise observed_exception(
            ValueError, f"not enough values to unpack (expected at least {before + after}, got {len(values)})"
        )
    end = len(values) - after
    parts = [*values[:before], ListValue(values[before:end]), *values[end:]]
    tx.stack.extend(reversed(parts))


def _wrong_count(found: int, wanted: int) -> ObservedException:
    if found < wanted:
        return observed_exception(ValueError, f"not enough values to unpack (expected {wanted}, got {found})")
    return observed_exception(ValueError, f"too many values to unpack (expected {wanted})")


@opcode()
def MATCH_SEQUENCE(tx: Interpreter, instruction: Instruction) -> None:
    tx.push(ConstantValue(_has_flag(tx, IS_SEQUENCE)))


@opcode()
def MATCH_MAPPING(tx: Interpreter, instruction: Instruction) -> None:
    tx.push(ConstantValue(_has_flag(tx, IS_MAPPING)))


def _has_flag(tx: Interpreter, flag: int) -> bool:
    subject = tx.stack[-1]
    subject.install_guards(tx)
    return bool(subject.python_type().__flags__ & flag)


@opcode()
def GET_LEN(tx: Interpreter, instruction: Instruction) -> None:
    tx.push(ConstantValue(tx.stack[-1].length(tx)))


@opcode()
def MATCH_KEYS(tx: Interpreter, instruction: Instruction) -> None:
    subject, keys = tx.stack[-2], tx.stack[-1]
    found = _values_at(tx, subject, keys.unpack(tx))
    tx.push(NONE if found is None else TupleValue(found))


def _values_at(tx: Interpreter, subject: Value, keys: Sequence[Value]) -> list[Value] | None:
    """Returns the values that a mapping has at these keys; None if one is missing."""
    found: dict[Any, Value] = {}
    for key in keys:
        raw = key.as_key(tx)
        if raw in found:
            raise Unsupported("exception", "a mapping pattern checks a key twice")
        found[raw] = _value_at(tx, subject, key)
        if found[raw] is MISSING:
            return None
    return list(found.values())


def _value_at(tx: Interpreter, subject: Value, key: Value) -> Value:
    if isinstance(subject, DictValue):
        return subject.lookup(tx, key.as_key(tx)) or MISSING
    return subject.get_attr(tx, "get").call(tx, [key, MISSING], {})


@opcode()
def MATCH_CLASS(tx: Interpreter, instruction: Instruction) -> None:
    subject, wanted, names = tx.pop_many(3)
    cls = wanted.constant(tx)
    if not isinstance(cls, type):
        evaluate(lambda: _match_by(cls))  # raises
    is_instance = HANDLERS[isinstance](tx, subject, wanted)
    if not is_instance.truth(tx):
        tx.push(NONE)
        return
    found = _captured_values(tx, subject, wanted, cls, instruction.arg or 0, names.constant(tx))
    tx.push(NONE if found is None else TupleValue(found))


def _match_by(cls: Any) -> None:
    """Matches as the program does: the words of an error differ between versions of Python."""
    match None:
        case cls():
            pass


def _captured_values(
    tx: Interpreter, subject: Value, wanted: Value, cls: Any, n: int, names: tuple[str, ...]
) -> list[Value] | None:
    """Returns the attributes that `n` positional and the named patterns match; None if one is missing."""
    found: list[Value] = []
    if n:
        positional = _match_args(tx, wanted)
        if positional is None and cls.__flags__ & MATCHES_ITSELF:
            found, positional, n = [subject], (), n - 1
        if n > len(positional or ()):
            raise _too_many(cls, len(positional or ()) + len(found), n + len(found))
        names = (positional or ())[:n] + names
    if len(set(names)) < len(names):
        raise Unsupported("exception", f"{cls.__name__}() got an attribute twice")
    for name in names:
        try:
            found.append(subject.get_attr(tx, name))
        except ObservedException as error:
            if error.matches(AttributeError):
                return None
            raise
    return found


def _match_args(tx: Interpreter, wanted: Value) -> tuple[str, ...] | None:
    try:
        found = wanted.get_attr(tx, "__match_args__").constant(tx)
    except Unsupported:
        if hasattr(wanted.constant(tx), "__match_args__"):
            raise
        return None
    if type(found) is not tuple or not all(type(name) is str for name in found):
        raise Unsupported("exception", "__match_args__ is not a tuple of names")
    return found


def _too_many(cls: type, allowed: int, given: int) -> ObservedException:
    plural = "" if allowed == 1 else "s"
    return observed_exception(
        TypeError, f"{cls.__name__}() accepts {allowed} positional sub-pattern{plural} ({given} given)"
    )
