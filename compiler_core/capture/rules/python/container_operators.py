"""Operators on Python's containers; the functions return None where Python's return NotImplemented."""

from __future__ import annotations

import operator
import types
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.constant import ConstantValue, fold, from_python
from compiler_core.capture.values.builtin.containers import ContainerValue
from compiler_core.capture.values.builtin.keys import to_key
from compiler_core.capture.values.builtin.mappings import DefaultDictValue, DictValue, DictViewValue, OrderedDictValue
from compiler_core.capture.values.builtin.sequences import ListValue, RangeValue, SequenceValue, SliceValue, TupleValue
from compiler_core.capture.values.builtin.sets import SetValue, set_operand
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter

COMPARISONS = {operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">="}
_SET_OPERATIONS = (operator.and_, operator.or_, operator.sub, operator.xor)


def builtin_operation(op: Any, tx: Interpreter, left: Value, right: Value) -> Value | None:
    """Returns ``left op right`` for two builtin values, or None for NotImplemented."""
    if _is_set(left) or _is_set(right):
        return _sets(op, tx, left, right)
    if isinstance(left, SequenceValue) or isinstance(right, SequenceValue):
        return _sequences(op, tx, left, right)
    if isinstance(left, DictValue) and isinstance(right, DictValue):
        return _dicts(op, tx, left, right)
    if isinstance(left, SliceValue) and isinstance(right, SliceValue) and (op is operator.ne or op is operator.eq):
        return _lexicographic(op, tx, left.bounds, right.bounds)
    if _is_plain(left) and _is_plain(right):
        return fold(tx, op, [left, right], {})
    if isinstance(left, ConstantValue) and isinstance(left.value, (str, bytes)) and op is operator.mod:
        return fold(tx, op, [left, right], {})
    if all(isinstance(v, (ContainerValue, ConstantValue)) or _equal_by_identity(v) for v in (left, right)):
        return None
    raise Unsupported("unsupported operation", f"{op.__name__} of {left} and {right}")


def _is_plain(value: Value) -> bool:
    return value.is_constant() and not isinstance(value, ContainerValue)


def _equal_by_identity(value: Value) -> bool:
    """Whether the value returns NotImplemented for a value of another type."""
    if isinstance(value, StaticValue) and isinstance(value.obj, (types.BuiltinFunctionType, types.MethodWrapperType)):
        return True
    return getattr(value.python_type(), "__eq__", None) is object.__eq__


# ---------------------------------------------------------------- sequences


def _sequences(op: Any, tx: Interpreter, left: Value, right: Value) -> Value | None:
    if op is operator.mul:
        return _repeat(tx, left, right) if isinstance(left, SequenceValue) else _repeat(tx, right, left)
    if op is operator.mod and isinstance(left, ConstantValue):
        return fold(tx, op, [left, right], {}) if isinstance(left.value, (str, bytes)) else None
    if not (isinstance(left, SequenceValue) and isinstance(right, SequenceValue)):
        _check_kinds(op, left, right)
        return None
    kind = _kind(left)
    if kind is not _kind(right):
        _check_kinds(op, left, right)
        return None
    if op is operator.add:
        return left.new_like([*left.unpack(tx), *right.unpack(tx)])
    if op in (operator.eq, operator.ne) or op in COMPARISONS:
        return _lexicographic(op, tx, left.unpack(tx), right.unpack(tx))
    return None


def _kind(value: SequenceValue) -> type:
    return tuple if isinstance(value, TupleValue) else value.cls


def _check_kinds(op: Any, left: Value, right: Value) -> None:
    """Raises Unsupported unless both operands are of known types, for which Python returns NotImplemented."""
    if not isinstance(left, (ContainerValue, ConstantValue, RangeValue)):
        raise Unsupported("unsupported operation", f"{op.__name__} of {left} and {right}")
    if not isinstance(right, (ContainerValue, ConstantValue, RangeValue)) and not _equal_by_identity(right):
        raise Unsupported("unsupported operation", f"{op.__name__} of {left} and {right}")


def _repeat(tx: Interpreter, sequence: Value, count: Value) -> Value | None:
    assert isinstance(sequence, SequenceValue)
    times = count.constant(tx) if count.is_constant() else None
    if not isinstance(times, int):
        return None
    tx.capture.check_unroll(times * sequence.length(tx))
    return sequence.new_like(sequence.unpack(tx) * times)


def _lexicographic(op: Any, tx: Interpreter, left: list[Value], right: list[Value]) -> Value:
    from compiler_core.capture.rules.python.operators import binary

    if op in (operator.eq, operator.ne) and len(left) != len(right):
        return ConstantValue(op is operator.ne)
    for a, b in zip(left, right, strict=False):
        if not tx.is_same_or_equal(a, b):
            return ConstantValue(op is operator.ne) if op in (operator.eq, operator.ne) else binary(op, tx, a, b)
    return ConstantValue(op(len(left), len(right)))


# ---------------------------------------------------------------- dicts


def _dicts(op: Any, tx: Interpreter, left: DictValue, right: DictValue) -> Value | None:
    if op in (operator.eq, operator.ne):
        return ConstantValue(_equal_dicts(tx, left, right) == (op is operator.eq))
    if op is operator.or_:
        special = (OrderedDictValue, DefaultDictValue)
        model = right if isinstance(right, special) and not isinstance(left, special) else left
        return model.new_like({**left.mapping(tx), **right.mapping(tx)})
    return None


def _equal_dicts(tx: Interpreter, left: DictValue, right: DictValue) -> bool:
    left_items, right_items = left.mapping(tx), right.mapping(tx)
    if len(left_items) != len(right_items):
        return False
    if (
        issubclass(left.cls, OrderedDict)
        and issubclass(right.cls, OrderedDict)
        and list(left_items) != list(right_items)
    ):
        return False
    return all(k in right_items and tx.is_same_or_equal(v, right_items[k]) for k, v in left_items.items())


# ---------------------------------------------------------------- sets and views of dicts


def _is_set(value: Value) -> bool:
    return isinstance(value, SetValue) or (isinstance(value, DictViewValue) and value.view_kind != "values")


def _sets(op: Any, tx: Interpreter, left: Value, right: Value) -> Value | None:
    views = isinstance(left, DictViewValue) or isinstance(right, DictViewValue)
    if not (_is_set(left) and _is_set(right)) and not (views and op in _SET_OPERATIONS):
        _check_kinds(op, left, right)
        return None
    if views and not (_keys_only(left) and _keys_only(right)) and op not in _SET_OPERATIONS:
        return _compare_items(op, tx, left, right)
    if op not in _SET_OPERATIONS and op not in (operator.eq, operator.ne, *COMPARISONS):
        return None
    return from_python(op(_python_set(tx, left), _python_set(tx, right)))


def _keys_only(value: Value) -> bool:
    return not isinstance(value, DictViewValue) or value.view_kind == "keys"


def _python_set(tx: Interpreter, value: Value) -> Any:
    """Returns the operand for Python's operator: a set, a view of keys, or a list of the items of another iterable."""
    if isinstance(value, DictViewValue) and value.view_kind != "keys":
        return dict.fromkeys(to_key(tx, v) for v in tx.list_of(value)).keys()
    return list(set_operand(tx, value)) if isinstance(value, DictValue) else set_operand(tx, value)


def _compare_items(op: Any, tx: Interpreter, left: Value, right: Value) -> Value:
    """Compares views of items, whose values may be unhashable."""
    sizes = left.length(tx), right.length(tx)
    if op in (operator.eq, operator.ne):
        same = sizes[0] == sizes[1] and all(right.contains(tx, v) for v in tx.list_of(left))
        return ConstantValue(same == (op is operator.eq))
    small, large = (left, right) if op in (operator.lt, operator.le) else (right, left)
    return ConstantValue(op(*sizes) and all(large.contains(tx, v) for v in tx.list_of(small)))


def inplace_operation(op: Any, tx: Interpreter, left: Value, right: Value) -> bool:
    """Performs ``left op= right`` if it changes the builtin container `left`; returns False if it makes a new one."""
    if isinstance(left, ListValue):
        return _inplace_list(op, tx, left, right)
    if isinstance(left, DictValue) and op is operator.ior:
        left.call_method(tx, "update", [right], {})
        return True
    if isinstance(left, SetValue) and left.cls is set and op in _INPLACE_SETS:
        if not _is_set(right):
            return False
        left.call_method(tx, _INPLACE_SETS[op], [right], {})
        return True
    return False


_INPLACE_SETS = {
    operator.ior: "update",
    operator.iand: "intersection_update",
    operator.isub: "difference_update",
    operator.ixor: "symmetric_difference_update",
}


def _inplace_list(op: Any, tx: Interpreter, left: ListValue, right: Value) -> bool:
    if op is operator.iadd:
        left.call_method(tx, "extend", [right], {})
        return True
    if op is not operator.imul or not right.is_constant():
        return False
    times = right.constant(tx)
    if not isinstance(times, int):
        return False
    left.prepare_mutation(tx)
    tx.capture.check_unroll(times * left.length(tx))
    left.unpack(tx)[:] = left.new_like(left.unpack(tx) * times).unpack(tx)
    return True


__all__ = ["COMPARISONS", "builtin_operation", "inplace_operation"]
