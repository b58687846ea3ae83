"""Operators: on tensors nodes of the graph, on constants computed now, on objects their special methods."""

from __future__ import annotations

import collections
import functools
import operator
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.errors import Unsupported
from compiler_core.values.base import Value
from compiler_core.values.constant import ConstantValue, fold
from compiler_core.values.functions import StaticValue
from compiler_core.values.mappings import DictValue, SetValue
from compiler_core.values.objects import ObjectValue
from compiler_core.values.rules import HANDLERS, handles, has_tensor
from compiler_core.values.sequences import ListValue, TupleValue
from compiler_core.values.tensor import TensorValue
from compiler_core.values.text import percent

if TYPE_CHECKING:
    from compiler_core.symbolic import Interpreter

# operator.X with the special methods that it tries, in order
BINARY = {
    operator.add: ("__add__", "__radd__"), operator.sub: ("__sub__", "__rsub__"), operator.mul: ("__mul__", "__rmul__"),
    operator.truediv: ("__truediv__", "__rtruediv__"), operator.floordiv: ("__floordiv__", "__rfloordiv__"),
    operator.mod: ("__mod__", "__rmod__"), operator.pow: ("__pow__", "__rpow__"),
    operator.matmul: ("__matmul__", "__rmatmul__"), operator.and_: ("__and__", "__rand__"),
    operator.or_: ("__or__", "__ror__"), operator.xor: ("__xor__", "__rxor__"),
    operator.lshift: ("__lshift__", "__rlshift__"), operator.rshift: ("__rshift__", "__rrshift__"),
    operator.lt: ("__lt__", "__gt__"), operator.le: ("__le__", "__ge__"), operator.gt: ("__gt__", "__lt__"),
    operator.ge: ("__ge__", "__le__"), operator.eq: ("__eq__", "__eq__"), operator.ne: ("__ne__", "__ne__"),
}  # fmt: skip
INPLACE = {
    operator.iadd: operator.add, operator.isub: operator.sub, operator.imul: operator.mul,
    operator.itruediv: operator.truediv, operator.ifloordiv: operator.floordiv, operator.imod: operator.mod,
    operator.ipow: operator.pow, operator.imatmul: operator.matmul, operator.iand: operator.and_,
    operator.ior: operator.or_, operator.ixor: operator.xor, operator.ilshift: operator.lshift,
    operator.irshift: operator.rshift,
}  # fmt: skip
UNARY = {operator.neg, operator.pos, operator.invert, operator.abs}


def binary(op: Any, tx: Interpreter, left: Value, right: Value) -> Value:
    if has_tensor(left) or has_tensor(right):
        if isinstance(left, TensorValue) or isinstance(right, TensorValue):
            if op in (operator.eq, operator.ne) and ConstantValue(None).same_object(right):
                return ConstantValue(op is operator.ne)  # the tensor does not know None, nor None the tensor
            _check_operands(op, left, right)
            return tx.capture.call_function(tx, op, [left, right], {})
    if op in (operator.eq, operator.ne) and not _objects(left, right):
        return ConstantValue(tx.is_equal(left, right) == (op is operator.eq))
    if left.is_constant() and right.is_constant() and not _static(left, right):
        return fold(tx, op, [left, right], {})
    made = _sequence_operation(op, tx, left, right)
    if made is not None:
        return made
    for operand, other, name in ((left, right, BINARY[op][0]), (right, left, BINARY[op][1])):
        if isinstance(operand, ObjectValue) and (method := operand.special(tx, name)) is not None:
            result = method.call(tx, [other], {})
            if not (isinstance(result, ConstantValue) and result.value is NotImplemented):
                return result
    if op in (operator.eq, operator.ne):
        return ConstantValue(tx.is_equal(left, right) == (op is operator.eq))
    raise Unsupported("unsupported operation", f"{op.__name__} of {left} and {right}")


def _check_operands(op: Any, left: Value, right: Value) -> None:
    for operand in (left, right):
        if isinstance(operand, (ObjectValue, ListValue, DictValue)):
            raise Unsupported("unsupported operation", f"{op.__name__} of a tensor and {operand}")


def _objects(*values: Value) -> bool:
    return any(isinstance(v, ObjectValue) for v in values)


def _static(*values: Value) -> bool:
    return any(isinstance(v, StaticValue) for v in values)


def _sequence_operation(op: Any, tx: Interpreter, left: Value, right: Value) -> Value | None:
    if op is operator.add and isinstance(left, (ListValue, TupleValue)) and type(left) is type(right):
        cls = left.cls if left.cls is torch.Size else (tuple if isinstance(left, TupleValue) else list)
        return type(left)([*left.items(tx), *right.items(tx)], cls)
    if op is operator.mul and isinstance(left, (ListValue, TupleValue)) and right.is_constant():
        return type(left)(left.items(tx) * right.constant(tx), tuple if isinstance(left, TupleValue) else list)
    if op is operator.mul and isinstance(right, (ListValue, TupleValue)):
        return _sequence_operation(op, tx, right, left)
    if op is operator.mod and isinstance(left, ConstantValue) and isinstance(left.value, str):
        return percent(tx, left.constant(tx), right)
    if op is operator.or_ and isinstance(left, DictValue) and isinstance(right, DictValue):
        classes = {left.cls, right.cls}
        if classes <= {dict, collections.OrderedDict}:
            merged = {**left.mapping(tx), **right.mapping(tx)}
            return DictValue(merged, dict if classes == {dict} else collections.OrderedDict)
    return None


def _inplace(op: Any, tx: Interpreter, left: Value, right: Value) -> Value:
    if isinstance(left, TensorValue):
        return tx.capture.call_function(tx, op, [left, right], {})
    if op is operator.iadd and isinstance(left, ListValue):
        left.method_extend(tx, right)
        return left
    if op is operator.ior and isinstance(left, DictValue):
        left.method_update(tx, right)
        return left
    if isinstance(left, SetValue) or (isinstance(left, ObjectValue) and left.special(tx, f"__{op.__name__}__")):
        raise Unsupported("unsupported operation", f"{op.__name__} of {left}")
    return binary(INPLACE[op], tx, left, right)


def unary(op: Any, tx: Interpreter, operand: Value) -> Value:
    if isinstance(operand, TensorValue):
        return tx.capture.call_function(tx, op, [operand], {})
    return fold(tx, op, [operand], {})


for _op in BINARY:
    HANDLERS[_op] = functools.partial(binary, _op)
for _op in INPLACE:
    HANDLERS[_op] = functools.partial(_inplace, _op)
for _one in UNARY:
    HANDLERS[_one] = functools.partial(unary, _one)


@handles(operator.not_)
def _not(tx: Interpreter, operand: Value) -> Value:
    return ConstantValue(not operand.truth(tx))


@handles(operator.is_)
def _is(tx: Interpreter, left: Value, right: Value) -> Value:
    return ConstantValue(tx.is_same(left, right))


@handles(operator.index)
def _index(tx: Interpreter, obj: Value) -> Value:
    return fold(tx, operator.index, [obj], {})


@handles(operator.getitem)
def _getitem(tx: Interpreter, obj: Value, key: Value) -> Value:
    return obj.get_item(tx, key)


@handles(operator.contains)
def _contains(tx: Interpreter, obj: Value, item: Value) -> Value:
    return ConstantValue(obj.contains(tx, item))
