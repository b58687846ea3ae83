"""Rules for operators, and the operators of Python's containers.

An operator on tensors becomes a node of the graph, on constants it is computed during capture, on objects it calls
their special methods, and on containers it is what the functions at the end do, which return None where Python's return
NotImplemented.  If no operand supports it, the TypeError is Python's for stand-ins of the same types.
"""

from __future__ import annotations

import inspect
import operator
import types
import typing
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.rules.python.text import percent_format
from compiler_core.capture.rules.table import add_rules, handles_each
from compiler_core.capture.values import arrays, reads
from compiler_core.capture.values.arrays import ArrayValue
from compiler_core.capture.values.base import Value, observed_exception, to_index
from compiler_core.capture.values.builtin.constant import ConstantValue, exception_from_error, is_not_implemented
from compiler_core.capture.values.builtin.containers import ContainerValue
from compiler_core.capture.values.builtin.mappings import DefaultDictValue, DictValue, DictViewValue, OrderedDictValue
from compiler_core.capture.values.builtin.sequences import ListValue, SequenceValue, SliceValue, TupleValue
from compiler_core.capture.values.builtin.sets import SetValue, set_operand
from compiler_core.capture.values.builtin.static import StaticValue, fold, from_python
from compiler_core.capture.values.builtin.symbols import COMPARISONS, ReadValue, guard_class, is_of_numpy, is_symbolic
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.tensor_subclasses import RaggedSizeValue, SubclassTensorValue, overrides_functions
from compiler_core.capture.values.user.exceptions import ExceptionValue
from compiler_core.capture.values.user.functions import MethodValue
from compiler_core.capture.values.user.object_attributes import BUILTIN_METHODS
from compiler_core.capture.values.user.objects import ObjectValue, SubclassValue, contents_of, type_or_object
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


# the special methods that each operator tries, in order
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
UNARY = {
    operator.neg: "__neg__", operator.pos: "__pos__", operator.invert: "__invert__", operator.abs: "__abs__",
}  # fmt: skip
_SIGNS = {operator.neg: "unary -", operator.pos: "unary +", operator.invert: "unary ~", operator.abs: "abs()"}


@handles_each(*BINARY)
def binary(op: Any, tx: Interpreter, left: Value, right: Value) -> Value:
    """``left op right``"""
    if op is operator.mod and isinstance(left, ConstantValue) and left.python_type() is str:
        return percent_format(tx, left.constant(tx), right)
    if isinstance(left, ArrayValue) or isinstance(right, ArrayValue):
        return arrays.operate(tx, op, left, right)
    left, right = _with_reads_as_tensors(op, tx, left, right)
    if isinstance(left, ReadValue) or isinstance(right, ReadValue):
        return reads.compute(tx, op, left, right)
    if isinstance(left, TensorValue) or isinstance(right, TensorValue):
        return _with_tensor(op, tx, left, right)
    if isinstance(left, ConstantValue) and isinstance(right, ConstantValue):
        return fold(tx, op, [left, right])
    if op is operator.or_ and _is_union(left, right):
        return StaticValue(left.constant(tx) | right.constant(tx))
    name, reflected = BINARY[op]
    attempts = [(left, name, right, False), (right, reflected, left, True)]
    if isinstance(right, ObjectValue):
        for operand in (left, right):
            guard_class(tx, operand)
        if op not in COMPARISONS and right.cls is left.python_type():
            attempts.pop()  # Python does not try the reflected method for operands of one class
        elif _right_first(op, left, right, reflected):
            attempts.reverse()
    for operand, method, other, is_reflected in attempts:
        result = _attempt(op, tx, operand, method, other, is_reflected)
        if result is not None:
            return result
    if op in (operator.eq, operator.ne):
        return ConstantValue(tx.is_same(left, right) == (op is operator.eq))
    raise operand_type_error(op, tx, left, right)


def _with_reads_as_tensors(op: Any, tx: Interpreter, left: Value, right: Value) -> tuple[Value, Value]:
    """Returns the operands; if one is a tensor, and the other a number that is read from one, the latter tensor.

    PyTorch divides a number by a tensor otherwise than a tensor: it multiplies by the reciprocal.
    """
    if isinstance(left, TensorValue) and isinstance(right, ReadValue):
        return left, reads.as_operand(tx, op, left, right)
    if isinstance(left, ReadValue) and isinstance(right, TensorValue) and op is not operator.truediv:
        return reads.as_operand(tx, op, right, left), right
    return left, right


def _is_union(left: Value, right: Value) -> bool:
    """Whether ``left | right`` is a union of types, as in an annotation."""
    operands = [getattr(each, "obj", getattr(each, "value", ...)) for each in (left, right)]
    return any(map(_is_type, operands)) and all(each is None or _is_type(each) for each in operands)


def _is_type(obj: Any) -> bool:
    return type(obj) is type or isinstance(obj, (types.GenericAlias, types.UnionType, typing._GenericAlias))  # type: ignore[attr-defined]


def _with_tensor(op: Any, tx: Interpreter, left: Value, right: Value) -> Value:
    objects = [v for v in (left, right) if isinstance(v, ObjectValue)]
    if objects and overrides_functions(objects[0].cls):
        return _with_overriding_object(op, tx, left, right)
    for operand in (left, right):
        if isinstance(operand, (ListValue, DictValue)):
            raise Unsupported("unsupported operation", f"{op.__name__} of a tensor and {operand}")
    if op in (operator.eq, operator.ne) and tx.is_none(right):
        left.install_guards(tx)
        right.install_guards(tx)
        return ConstantValue(op is operator.ne)  # both operands return NotImplemented
    if any(isinstance(v, SubclassTensorValue) and v.defines(*BINARY[op]) for v in (left, right)):
        return _with_own_operators(op, tx, left, right)
    for operand in (left, right):
        if isinstance(operand, TensorValue):
            operand.check_methods(tx, *BINARY[op])
    if not objects:
        return tx.graph.call_function(tx, op, [left, right])
    # a tensor returns NotImplemented for an object that is neither like a number nor like an array
    if any(hasattr(objects[0].cls, name) for name in _LIKE_ARRAYS):
        raise Unsupported("unsupported operation", f"{op.__name__} of {left} and {right}")
    method = BINARY[op][0 if objects[0] is left else 1]
    result = _attempt_object(tx, objects[0], method, right if objects[0] is left else left)
    if result is None:
        raise Unsupported("exception", f"{op.__name__} of {left} and {right}")
    return result


def _with_own_operators(op: Any, tx: Interpreter, left: Value, right: Value) -> Value:
    """An operator on a tensor whose class defines it in Python."""
    name, reflected = BINARY[op]
    attempts = [(left, name, right), (right, reflected, left)]
    if type_or_object(left) is type_or_object(right) and op not in COMPARISONS:
        attempts.pop()  # Python does not try the reflected method for operands of one class
    elif (
        isinstance(right, SubclassTensorValue)
        and type_or_object(left) in right.cls.__mro__[1:]
        and right.defines(reflected)
    ):
        attempts.reverse()
    for operand, method, other in attempts:
        own = operand.special_method(tx, method) if isinstance(operand, (SubclassTensorValue, ObjectValue)) else None
        if own is None and isinstance(operand, TensorValue):
            return tx.graph.call_function(tx, op, [left, right])
        result = None if own is None else own.call(tx, [other], {})
        if result is not None and not is_not_implemented(result):
            return result
    raise Unsupported("exception", f"{op.__name__} of {left} and {right}")


def _with_overriding_object(op: Any, tx: Interpreter, left: Value, right: Value) -> Value:
    """An operator on a tensor and an object with ``__torch_function__``."""
    if isinstance(left, ObjectValue) and (result := _attempt_object(tx, left, BINARY[op][0], right)) is not None:
        return result
    return tx.graph.call_function(tx, op, [left, right])


_LIKE_ARRAYS = ("__torch_function__", "__array__", "__len__", "__index__", "__float__")


def _right_first(op: Any, left: Value, right: ObjectValue, reflected: str) -> bool:
    """Whether Python tries the right operand first.

    Its class must be a subclass of the left operand's class and, except for comparisons, override the method.
    """
    right_class, left_class = right.cls, left.python_type()
    if right_class is left_class or left_class not in right_class.__mro__:
        return False
    return op in COMPARISONS or inspect.getattr_static(right_class, reflected, None) is not inspect.getattr_static(
        left_class, reflected, None
    )


def _attempt(op: Any, tx: Interpreter, operand: Value, method: str, other: Value, is_reflected: bool) -> Value | None:
    """Returns the result of one operand's special method; None if it returns NotImplemented."""
    if isinstance(operand, MethodValue) and isinstance(other, MethodValue) and op in (operator.eq, operator.ne):
        same = tx.is_same(operand.owner, other.owner) and equal(tx, operand.function, other.function)
        return ConstantValue(same == (op is operator.eq))
    if isinstance(operand, ObjectValue):
        return _attempt_object(tx, operand, method, other)
    if isinstance(other, ObjectValue) and not isinstance(other, SubclassValue):
        _check_beside_object(op, operand, other, is_reflected)
        return None
    left, right = (other, operand) if is_reflected else (operand, other)
    return builtin_operation(op, tx, contents_of(left), contents_of(right))


def _attempt_object(tx: Interpreter, operand: ObjectValue, name: str, other: Value) -> Value | None:
    method = operand.special_method(tx, name)
    if method is None and name == "__ne__":
        equal = _attempt_object(tx, operand, "__eq__", other)
        return None if equal is None else ConstantValue(not equal.truth(tx))
    if method is None:
        return None
    result = method.call(tx, [other], {})
    return None if is_not_implemented(result) else result


def _check_beside_object(op: Any, operand: Value, other: ObjectValue, is_reflected: bool) -> None:
    """Raises Unsupported unless a builtin operand returns NotImplemented for an object.

    ``%`` formats any object, and ``*`` of a sequence accepts objects that are like integers.
    """
    text = op is operator.mod and not is_reflected and operand.python_type() in (str, bytes)
    repeats = op is operator.mul and not issubclass(operand.python_type(), (int, float, complex))
    number = (repeats and hasattr(other.cls, "__index__")) or hasattr(other.cls, "__array__")
    if text or number or not isinstance(operand, (ConstantValue, ContainerValue, StaticValue)):
        raise Unsupported("unsupported operation", f"{op.__name__} of {operand} and {other}")


def key_of(tx: Interpreter, value: Value, key: Value | None) -> Value:
    """Returns what the value is compared by: itself, or what the function `key` returns for it."""
    return value if key is None or tx.is_none(key) else key.call(tx, [value], {})


def equal(tx: Interpreter, left: Value, right: Value) -> bool:
    """``bool(left == right)``"""
    return binary(operator.eq, tx, left, right).truth(tx)


@handles_each(*INPLACE)
def _inplace(op: Any, tx: Interpreter, left: Value, right: Value) -> Value:
    name = f"__{op.__name__}__"
    if isinstance(left, ArrayValue):
        return arrays.update_in_place(tx, INPLACE[op], left, right)
    if isinstance(left, TensorValue):
        left.check_methods(tx, name)
        right = _with_reads_as_tensors(INPLACE[op], tx, left, right)[1]
        return tx.graph.call_function(tx, op, [left, right])
    if isinstance(left, ObjectValue) and not _is_builtin(left, name):
        result = _attempt_object(tx, left, name, right)
        return binary(INPLACE[op], tx, left, right) if result is None else result
    if inplace_operation(op, tx, contents_of(left), right):
        return left
    both = [left, right]
    if all(isinstance(v, ConstantValue) and not is_of_numpy(v) for v in both) and not is_symbolic(both):
        return fold(tx, op, both)  # an error names the in-place operator
    return binary(INPLACE[op], tx, left, right)


def _is_builtin(value: ObjectValue, name: str) -> bool:
    """Whether the in-place method is that of the builtin container."""
    found = inspect.getattr_static(value.cls, name, None)
    return isinstance(value, SubclassValue) and isinstance(found, BUILTIN_METHODS)


@handles_each(*UNARY)
def unary(op: Any, tx: Interpreter, operand: Value) -> Value:
    """``op operand``"""
    if isinstance(operand, ArrayValue):
        return arrays.operate(tx, op, operand)
    if isinstance(operand, ReadValue):
        return reads.compute(tx, op, operand)
    if isinstance(operand, TensorValue):
        operand.check_methods(tx, UNARY[op])
        return tx.graph.call_function(tx, op, [operand])
    if isinstance(operand, ObjectValue):
        method = operand.special_method(tx, UNARY[op])
        if method is None:
            operand.install_guards(tx)
            raise observed_exception(TypeError, f"bad operand type for {_SIGNS[op]}: {operand.cls.__name__!r}")
        return method.call(tx, [], {})
    return fold(tx, op, [operand])


_ORDER_COMPARISONS = {operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">="}
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
    if isinstance(left, RaggedSizeValue) and isinstance(right, RaggedSizeValue) and op in (operator.eq, operator.ne):
        if bool(left.size == right.size):  # they are of the same offsets; others may be so in another call
            return ConstantValue(op is operator.eq)
    if _is_plain(left) and _is_plain(right):
        return fold(tx, op, [left, right])
    if isinstance(left, ConstantValue) and isinstance(left.value, (str, bytes)) and op is operator.mod:
        return fold(tx, op, [left, right])
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
        return fold(tx, op, [left, right]) if isinstance(left.value, (str, bytes)) else None
    if not (isinstance(left, SequenceValue) and isinstance(right, SequenceValue)):
        _check_kinds(op, left, right)
        return None
    kind = _kind(left)
    if kind is not _kind(right):
        _check_kinds(op, left, right)
        return None
    if op is operator.add:
        joined = left.new_like([*left.unpack(tx), *right.unpack(tx)])
        if torch.Size in (left.cls, right.cls):
            joined.cls = type(left.cls() + right.cls())
        return joined
    if op in (operator.eq, operator.ne) or op in _ORDER_COMPARISONS:
        return _lexicographic(op, tx, left.unpack(tx), right.unpack(tx))
    return None


def _kind(value: SequenceValue) -> type:
    return tuple if isinstance(value, TupleValue) else value.cls


def _check_kinds(op: Any, left: Value, right: Value) -> None:
    """Raises Unsupported unless both operands are of known types, for which Python returns NotImplemented."""
    if not isinstance(left, (ContainerValue, ConstantValue)):
        raise Unsupported("unsupported operation", f"{op.__name__} of {left} and {right}")
    if not isinstance(right, (ContainerValue, ConstantValue)) and not _equal_by_identity(right):
        raise Unsupported("unsupported operation", f"{op.__name__} of {left} and {right}")


def _repeat(tx: Interpreter, sequence: Value, count: Value) -> Value | None:
    assert isinstance(sequence, SequenceValue)
    times = count.constant(tx) if count.is_constant() else None
    if not isinstance(times, int):
        return None
    tx.capture.check_unroll(times * sequence.length(tx))
    return sequence.new_like(sequence.unpack(tx) * times)


def _lexicographic(op: Any, tx: Interpreter, left: list[Value], right: list[Value]) -> Value:
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
    if op not in _SET_OPERATIONS and op not in (operator.eq, operator.ne, *_ORDER_COMPARISONS):
        return None
    return from_python(op(_python_set(tx, left), _python_set(tx, right)))


def _keys_only(value: Value) -> bool:
    return not isinstance(value, DictViewValue) or value.view_kind == "keys"


def _python_set(tx: Interpreter, value: Value) -> Any:
    """Returns the operand for Python's operator: a set, a view of keys, or a list of the items of another iterable."""
    if isinstance(value, DictViewValue) and value.view_kind != "keys":
        return dict.fromkeys(v.as_key(tx) for v in tx.list_of(value)).keys()
    return list(set_operand(tx, value)) if isinstance(value, DictValue) else set_operand(tx, value)


def _compare_items(op: Any, tx: Interpreter, left: Value, right: Value) -> Value:
    """Compares views of items, whose values may be unhashable."""
    sizes = left.length(tx), right.length(tx)
    if op in (operator.eq, operator.ne):
        same = sizes[0] == sizes[1] and all(right.contains(tx, v) for v in tx.list_of(left))
        return ConstantValue(same == (op is operator.eq))
    small, large = (left, right) if op in (operator.lt, operator.le) else (right, left)
    return ConstantValue(op(*sizes) and all(large.contains(tx, v) for v in tx.list_of(small)))


# ---------------------------------------------------------------- in place


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


# ---------------------------------------------------------------- TypeErrors


def operand_type_error(op: Callable[..., Any], tx: Interpreter, *operands: Value) -> Unsupported:
    """Returns the TypeError of ``op(*operands)``, which no operand's class supports."""
    unknown = Unsupported("unsupported operation", f"{op.__name__} of {' and '.join(map(str, operands))}")
    try:
        op(*(_stand_in(tx, v) for v in operands))
    except TypeError as error:
        return exception_from_error(error)
    except Unsupported:
        return unknown
    return unknown


def _stand_in(tx: Interpreter, value: Value) -> Any:
    """Returns an object for which Python raises the same TypeError as for `value`."""
    value.install_guards(tx)
    if isinstance(value, ConstantValue):
        return value.constant(tx)
    if isinstance(value, ContainerValue) and value.cls in (list, tuple, dict, set, frozenset):
        return value.cls()
    if type(value) in (ObjectValue, ExceptionValue):
        return type(value.python_type().__name__, (), {})()
    raise Unsupported("unsupported operation", str(value))


add_rules(
    {
        operator.not_: lambda tx, operand: ConstantValue(not operand.truth(tx)),
        operator.is_: lambda tx, left, right: ConstantValue(tx.is_same(left, right)),
        operator.index: lambda tx, obj: (
            to_index(tx, obj) if isinstance(obj, ObjectValue) else fold(tx, operator.index, [obj])
        ),
        operator.getitem: lambda tx, obj, key: obj.get_item(tx, key),
        operator.contains: lambda tx, obj, item: ConstantValue(obj.contains(tx, item)),
    }
)
