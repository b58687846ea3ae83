"""Opcodes that compute: operators, subscripts, f-strings, containers, and the patterns of the match statement."""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from compiler_core.bytecode import Instruction
from compiler_core.capture.opcodes.table import opcode, opcodes
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


def _compare(tx: Interpreter, instruction: Instruction, left: Value, right: Value) -> Value:
    result = _operate(tx, COMPARE[cast(str, instruction.argval)], left, right)
    as_bool = sys.version_info >= (3, 13) and bool((instruction.arg or 0) & 16)
    return _as_bool(tx, result) if as_bool else result


def _as_bool(tx: Interpreter, value: Value) -> Value:
    """Converts a value to bool; leaves a tensor to the branch that follows, which can break with both targets."""
    follows = tx.instructions[tx.pc].opname
    if isinstance(value, TensorValue) and follows in ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "TO_BOOL"):
        return value
    return ConstantValue(value.truth(tx))


def _converted(tx: Interpreter, value: Value, conversion: int) -> Value:
    return call_static(tx, CONVERSIONS[conversion], [value], {}) if conversion else value


def _format(tx: Interpreter, value: Value, spec: Value = ConstantValue("")) -> Value:  # noqa: B008
    return call_static(tx, format, [value, spec], {})


def _joined(tx: Interpreter, instruction: Instruction, *parts: Value) -> Value:
    return symbolic_text(join_text, tx, *parts) or ConstantValue("".join(p.constant(tx) for p in parts))


def _has_flag(tx: Interpreter, flag: int) -> Value:
    subject = tx.stack[-1]
    subject.install_guards(tx)
    return ConstantValue(bool(subject.python_type().__flags__ & flag))


opcodes(
    BINARY_OP=(2, lambda tx, at, left, right: _operate(tx, BINARY[at.argval], left, right)),
    COMPARE_OP=(2, _compare),
    TO_BOOL=(1, lambda tx, at, value: _as_bool(tx, value)),
    IS_OP=(2, lambda tx, at, left, right: ConstantValue(tx.is_same(left, right) != bool(at.arg))),
    CONTAINS_OP=(2, lambda tx, at, item, container: ConstantValue(container.contains(tx, item) != bool(at.arg))),
    **dict.fromkeys(UNARY, (1, lambda tx, at, value: _operate(tx, UNARY[at.opname], value))),
    UNARY_NOT=(1, lambda tx, at, value: ConstantValue(not value.truth(tx))),
    # subscripts
    BINARY_SUBSCR=(2, lambda tx, at, owner, key: owner.get_item(tx, key)),
    STORE_SUBSCR=(3, lambda tx, at, value, owner, key: owner.set_item(tx, key, value)),
    DELETE_SUBSCR=(2, lambda tx, at, owner, key: owner.del_item(tx, key)),
    BINARY_SLICE=(3, lambda tx, at, owner, *bounds: owner.get_item(tx, SliceValue([*bounds, NONE]))),
    STORE_SLICE=(4, lambda tx, at, value, owner, *bounds: owner.set_item(tx, SliceValue([*bounds, NONE]), value)),
    # f-strings
    FORMAT_VALUE=(
        lambda flags: 2 if flags & 4 else 1,
        lambda tx, at, value, *spec: _format(tx, _converted(tx, value, (at.arg or 0) & 3), *spec),
    ),
    CONVERT_VALUE=(1, lambda tx, at, value: _converted(tx, value, at.arg or 0)),
    FORMAT_SIMPLE=(1, lambda tx, at, value: _format(tx, value)),
    FORMAT_WITH_SPEC=(2, lambda tx, at, value, spec: _format(tx, value, spec)),
    BUILD_STRING=(int, _joined),
    # displays
    BUILD_TUPLE=(int, lambda tx, at, *values: TupleValue([*values])),
    BUILD_LIST=(int, lambda tx, at, *values: ListValue([*values])),
    BUILD_SET=(int, lambda tx, at, *values: SetValue([v.as_key(tx) for v in values])),
    BUILD_MAP=(
        lambda count: 2 * count,
        lambda tx, at, *flat: DictValue({k.as_key(tx): v for k, v in zip(flat[::2], flat[1::2], strict=True)}),
    ),
    BUILD_CONST_KEY_MAP=(
        lambda count: count + 1,
        lambda tx, at, *values: DictValue(dict(zip(values[-1].constant(tx), values[:-1], strict=True))),
    ),
    BUILD_SLICE=(int, lambda tx, at, start, stop, step=NONE: SliceValue([start, stop, step])),
    LIST_TO_TUPLE=(1, lambda tx, at, value: TupleValue(list(value.unpack(tx)))),
    # patterns
    MATCH_SEQUENCE=(0, lambda tx, at: _has_flag(tx, IS_SEQUENCE)),
    MATCH_MAPPING=(0, lambda tx, at: _has_flag(tx, IS_MAPPING)),
    GET_LEN=(0, lambda tx, at: ConstantValue(tx.stack[-1].length(tx))),
)


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
    has_length = sys.version_info >= (3, 14) and isinstance(tx.stack[-1], ListValue | TupleValue | DictValue)
    values = _unpacked(tx)
    if len(values) != instruction.arg:
        raise _wrong_count(len(values), instruction.arg or 0, has_length)
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


def _wrong_count(found: int, wanted: int, says_found: bool) -> ObservedException:
    if found < wanted:
        return observed_exception(ValueError, f"not enough values to unpack (expected {wanted}, got {found})")
    got = f", got {found}" if says_found else ""
    return observed_exception(ValueError, f"too many values to unpack (expected {wanted}{got})")


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
