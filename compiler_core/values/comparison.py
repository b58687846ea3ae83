"""``==``, ``<`` and the other comparisons, in the order in which Python asks the operands."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from compiler_core.errors import Unsupported
from compiler_core.values.base import Value
from compiler_core.values.constant import ConstantValue, fold
from compiler_core.values.functions import MethodValue
from compiler_core.values.mappings import DictValue, SetValue
from compiler_core.values.objects import ObjectValue
from compiler_core.values.refusals import refused_operands
from compiler_core.values.rules import HANDLERS
from compiler_core.values.sequences import RangeValue, SequenceValue
from compiler_core.values.tensor import TensorValue

if TYPE_CHECKING:
    from compiler_core.symbolic import Interpreter

Compare = Callable[[Any, Any], Any]
SWAPPED: dict[Compare, Compare] = {
    operator.lt: operator.gt, operator.le: operator.ge, operator.gt: operator.lt, operator.ge: operator.le,
    operator.eq: operator.eq, operator.ne: operator.ne,
}  # fmt: skip


def compare(op: Compare, tx: Interpreter, left: Value, right: Value) -> Value:
    """``op(left, right)``"""
    if isinstance(left, TensorValue) or isinstance(right, TensorValue):
        return _compare_tensors(op, tx, left, right)
    asked = [(op, left, right), (SWAPPED[op], right, left)]
    mine, other = left.python_type(), right.python_type()
    if mine is not other and issubclass(other, mine):
        asked.reverse()
    for way, a, b in asked:
        found = _ask(way, tx, a, b)
        if found is not None:
            return found
    if op is operator.eq or op is operator.ne:
        return ConstantValue(tx.is_same(left, right) == (op is operator.eq))
    raise refused_operands(op, tx, left, right)


def _compare_tensors(op: Compare, tx: Interpreter, left: Value, right: Value) -> Value:
    for operand in (left, right):
        if isinstance(operand, ObjectValue) or ConstantValue(None).same_object(operand):
            raise Unsupported("unsupported operation", f"{op.__name__} of a tensor and {operand}")
    return tx.capture.call_function(tx, op, [left, right], {})


def _ask(op: Compare, tx: Interpreter, a: Value, b: Value) -> Value | None:
    """What the class of `a` answers; None for NotImplemented."""
    if isinstance(a, ObjectValue):
        return _ask_object(op, tx, a, b)
    if a.is_constant() and b.is_constant():
        return fold(tx, op, [a, b], {})
    if isinstance(a, SequenceValue) and isinstance(b, SequenceValue):
        return _sequences(op, tx, a, b) if issubclass(a.cls, tuple) == issubclass(b.cls, tuple) else None
    if isinstance(a, DictValue) and isinstance(b, DictValue):
        return _dicts(op, tx, a, b)
    if isinstance(a, SetValue) and isinstance(b, SetValue):
        a.look(tx)
        b.look(tx)
        return ConstantValue(op(a.values.keys(), b.values.keys()))
    if isinstance(a, MethodValue) and isinstance(b, MethodValue) and op in (operator.eq, operator.ne):
        return ConstantValue(_same_method(tx, a, b) == (op is operator.eq))
    if _knows_only_its_kind(a) or getattr(a.python_type(), "__eq__", None) is object.__eq__:
        return None
    raise Unsupported("unsupported operation", f"{op.__name__} of {a} and {b}")


def _knows_only_its_kind(value: Value) -> bool:
    """Whether its builtin class answers NotImplemented to anything that `_ask` has no rule for."""
    return isinstance(value, (ConstantValue, SequenceValue, DictValue, SetValue, RangeValue, MethodValue))


def _ask_object(op: Compare, tx: Interpreter, a: ObjectValue, b: Value) -> Value | None:
    method = a.special(tx, f"__{op.__name__}__")
    if method is not None:
        found = method.call(tx, [b], {})
        return None if ConstantValue(NotImplemented).same_object(found) else found
    if op is not operator.ne:
        return None
    equal = _ask_object(operator.eq, tx, a, b)  # object's own __ne__ turns __eq__ around
    return None if equal is None else ConstantValue(not equal.truth(tx))


def _sequences(op: Compare, tx: Interpreter, a: SequenceValue, b: SequenceValue) -> Value:
    left, right = a.items(tx), b.items(tx)
    if op in (operator.eq, operator.ne) and len(left) != len(right):
        return ConstantValue(op is operator.ne)
    for x, y in zip(left, right, strict=False):
        if not tx.is_item(x, y):
            return ConstantValue(op is operator.ne) if op in (operator.eq, operator.ne) else compare(op, tx, x, y)
    return ConstantValue(op(len(left), len(right)))


def _dicts(op: Compare, tx: Interpreter, a: DictValue, b: DictValue) -> Value | None:
    if op not in (operator.eq, operator.ne):
        return None
    if a.cls is not dict and b.cls is not dict:
        raise Unsupported("unsupported operation", f"{a} == {b}, whose order counts")
    left, right = a.mapping(tx), b.mapping(tx)
    same = left.keys() == right.keys() and all(tx.is_item(v, right[k]) for k, v in left.items())
    return ConstantValue(same == (op is operator.eq))


def _same_method(tx: Interpreter, a: MethodValue, b: MethodValue) -> bool:
    return tx.is_same(a.owner, b.owner) and compare(operator.eq, tx, a.function, b.function).truth(tx)


def _rule(op: Compare) -> Any:
    return lambda tx, left, right: compare(op, tx, left, right)


for _op in SWAPPED:
    HANDLERS[_op] = _rule(_op)
