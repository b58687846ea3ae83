"""What operators do with Python's containers; None where they answer NotImplemented."""

from __future__ import annotations

import operator
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.containers import ContainerValue
from compiler_core.capture.values.builtin.keys import hashable
from compiler_core.capture.values.builtin.mappings import DefaultDictValue, DictValue, DictViewValue, OrderedDictValue
from compiler_core.capture.values.builtin.sequences import ListValue, RangeValue, SequenceValue, TupleValue
from compiler_core.capture.values.builtin.sets import SetValue, as_members
from compiler_core.capture.values.constant import ConstantValue, fold, from_python
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter

COMPARISONS = {operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">="}
_SET_OPERATIONS = (operator.and_, operator.or_, operator.sub, operator.xor)


def builtin_operation(op: Any, tx: Interpreter, left: Value, right: Value) -> Value | None:
    """``left op right`` of two builtin values."""
    if _is_set(left) or _is_set(right):
        return _sets(op, tx, left, right)
    if isinstance(left, SequenceValue) or isinstance(right, SequenceValue):
        return _sequences(op, tx, left, right)
    if isinstance(left, DictValue) and isinstance(right, DictValue):
        return _dicts(op, tx, left, right)
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
        return left.like([*left.items(tx), *right.items(tx)])
    if op in (operator.eq, operator.ne) or op in COMPARISONS:
        return _lexicographic(op, tx, left.items(tx), right.items(tx))
    return None


def _kind(value: SequenceValue) -> type:
    return tuple if isinstance(value, TupleValue) else value.cls


def _check_kinds(op: Any, left: Value, right: Value) -> None:
    """Python answers NotImplemented only where it is known what the other operand is."""
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
    return sequence.like(sequence.items(tx) * times)


def _lexicographic(op: Any, tx: Interpreter, left: list[Value], right: list[Value]) -> Value:
    from compiler_core.capture.rules.python.operators import binary

    if op in (operator.eq, operator.ne) and len(left) != len(right):
        return ConstantValue(op is operator.ne)
    for a, b in zip(left, right, strict=False):
        if not tx.is_item(a, b):
            return ConstantValue(op is operator.ne) if op in (operator.eq, operator.ne) else binary(op, tx, a, b)
    return ConstantValue(op(len(left), len(right)))


# ---------------------------------------------------------------- dicts


def _dicts(op: Any, tx: Interpreter, left: DictValue, right: DictValue) -> Value | None:
    if op in (operator.eq, operator.ne):
        return ConstantValue(_equal_dicts(tx, left, right) == (op is operator.eq))
    if op is operator.or_:
        special = (OrderedDictValue, DefaultDictValue)
        model = right if isinstance(right, special) and not isinstance(left, special) else left
        return model.like({**left.mapping(tx), **right.mapping(tx)})
    return None


def _equal_dicts(tx: Interpreter, left: DictValue, right: DictValue) -> bool:
    mine, theirs = left.mapping(tx), right.mapping(tx)
    if len(mine) != len(theirs):
        return False
    if issubclass(left.cls, OrderedDict) and issubclass(right.cls, OrderedDict) and list(mine) != list(theirs):
        return False
    return all(k in theirs and tx.is_item(v, theirs[k]) for k, v in mine.items())


# ---------------------------------------------------------------- sets and views of dicts


def _is_set(value: Value) -> bool:
    return isinstance(value, SetValue) or (isinstance(value, DictViewValue) and value.what != "values")


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
    return not isinstance(value, DictViewValue) or value.what == "keys"


def _python_set(tx: Interpreter, value: Value) -> Any:
    """What Python's operator is given: a set, a view of keys, or a list of what any other iterable holds."""
    if isinstance(value, DictViewValue) and value.what != "keys":
        return dict.fromkeys(hashable(tx, v) for v in tx.list_of(value)).keys()
    return list(as_members(tx, value)) if isinstance(value, DictValue) else as_members(tx, value)


def _compare_items(op: Any, tx: Interpreter, left: Value, right: Value) -> Value:
    """Views of items, whose values need not be hashable."""
    sizes = left.length(tx), right.length(tx)
    if op in (operator.eq, operator.ne):
        same = sizes[0] == sizes[1] and all(right.contains(tx, v) for v in tx.list_of(left))
        return ConstantValue(same == (op is operator.eq))
    small, large = (left, right) if op in (operator.lt, operator.le) else (right, left)
    return ConstantValue(op(*sizes) and all(large.contains(tx, v) for v in tx.list_of(small)))


def inplace_operation(op: Any, tx: Interpreter, left: Value, right: Value) -> bool:
    """``left op= right`` where that changes the builtin container `left` itself; False where it makes a new one."""
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
    if op is operator.imul and right.is_constant() and isinstance(times := right.constant(tx), int):
        left.changed(tx)
        tx.capture.check_unroll(times * left.length(tx))
        left.items(tx)[:] = left.like(left.items(tx) * times).items(tx)
        return True
    return False


__all__ = ["COMPARISONS", "builtin_operation", "inplace_operation"]
