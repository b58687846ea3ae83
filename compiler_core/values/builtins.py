"""Calls of things known by identity: Python's builtins, classes, and PyTorch's functions.

`@handles(len)` over a function makes it the rule for that callable.  What has no rule is put
into the graph if it is an operation on tensors, computed now if it is pure and its arguments are
constants, and otherwise breaks the graph.
"""

from __future__ import annotations

import builtins
import collections
import enum
import functools
import inspect
import itertools
import math
import operator
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.errors import Unsupported
from compiler_core.values.base import Value
from compiler_core.values.constant import ConstantValue, fold, from_python
from compiler_core.values.containers import (
    DictValue,
    IteratorValue,
    ListValue,
    MappedIteratorValue,
    RangeValue,
    SetValue,
    SliceValue,
    TupleValue,
    hashable,
    pairs,
)
from compiler_core.values.functions import FunctionValue, PartialValue, StaticValue
from compiler_core.values.objects import ModuleValue, ObjectValue, SuperValue, _nothing, store_attribute
from compiler_core.values.tensor import TensorValue

if TYPE_CHECKING:
    from compiler_core.symbolic import Interpreter

Handler = Callable[..., Value]
HANDLERS: dict[Any, Handler] = {}


def handles(*callables: Any) -> Callable[[Handler], Handler]:
    def register(rule: Handler) -> Handler:
        for obj in callables:
            HANDLERS[obj] = rule
        return rule

    return register


PURE = frozenset(
    {round, divmod, pow, hash, repr, str, ord, chr, bin, hex, format, ascii, complex, bytes, min, max, sum}
    | {obj for obj in vars(math).values() if isinstance(obj, types.BuiltinFunctionType)}
    | {torch.Size, torch.device, torch.finfo, torch.iinfo, torch.promote_types, torch.can_cast, torch.result_type}
)
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


def call_static(tx: Interpreter, obj: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """Call a class, C function or other callable known by identity."""
    handler = _find_handler(obj)
    if handler is not None:
        try:
            inspect.signature(handler).bind(tx, *args, **kwargs)
        except TypeError:
            raise Unsupported("unsupported call", f"{_name(obj)} with these arguments") from None
        return handler(tx, *args, **kwargs)
    if isinstance(obj, types.FunctionType):
        return tx.capture.wrap(obj, None).call(tx, args, kwargs)
    if is_tensor_function(obj, any(map(has_tensor, [*args, *kwargs.values()]))):
        return tx.capture.call_function(tx, obj, args, kwargs)
    if _is_pure(obj):
        return fold(tx, obj, args, kwargs)
    if isinstance(obj, type):
        return construct(tx, obj, args, kwargs)
    if isinstance(obj, (types.MethodDescriptorType, types.WrapperDescriptorType)) and args:
        return _call_unbound(tx, obj, args, kwargs)
    if isinstance(obj, types.BuiltinFunctionType) and getattr(obj.__self__, "__class__", None) is not types.ModuleType:
        raise Unsupported("skipped function", _name(obj))
    raise Unsupported("skipped function" if callable(obj) else "exception", _name(obj))


def _call_unbound(tx: Interpreter, obj: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """``list.append(x, 1)``: the method of just that class, whatever the object's own class makes of the name."""
    owner, *rest = args
    if obj is object.__setattr__ and isinstance(owner, ObjectValue) and not isinstance(owner, ModuleValue):
        return store_attribute(tx, owner, *rest)
    if inspect.getattr_static(owner.python_type(), obj.__name__, None) is not obj:
        raise Unsupported("unsupported call", f"{_name(obj)} of a {owner.python_type().__name__}")
    return owner.get_attr(tx, obj.__name__).call(tx, rest, kwargs)


def _find_handler(obj: Any) -> Handler | None:
    try:
        return HANDLERS.get(obj)
    except TypeError:
        return None


def _is_pure(obj: Any) -> bool:
    try:
        return obj in PURE
    except TypeError:
        return False


def _name(obj: Any) -> str:
    name = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None) or repr(obj)
    module = getattr(obj, "__module__", None)
    return f"{module}.{name}" if module and module != "builtins" else name


def has_tensor(value: Value) -> bool:
    if isinstance(value, TensorValue):
        return True
    if isinstance(value, (ListValue, TupleValue)):
        return any(has_tensor(v) for v in value._values or ())
    return isinstance(value, SliceValue) and any(map(has_tensor, value.parts))


# ---------------------------------------------------------------- PyTorch's functions

FACTORIES = frozenset(
    getattr(torch, n)
    for n in "zeros ones empty full rand randn randint randperm arange linspace logspace eye tensor scalar_tensor "
    "tril_indices triu_indices empty_strided hann_window hamming_window".split()
)
# C functions on tensors that read values, change settings or return what a graph cannot hold
NEVER = frozenset({
    torch.is_nonzero, torch.equal, torch.allclose, torch.from_numpy, torch.frombuffer, torch.set_num_threads,
    torch.nonzero, torch.unique_consecutive, torch.masked_select, torch.bincount, torch.from_file,
    torch.nn.functional.one_hot, torch.histc,
})  # fmt: skip
_C_MODULES = ("torch", "torch._C", "torch._C._nn", "torch._C._special", "torch._C._fft", "torch._C._linalg")


@functools.cache
def _tensor_function_names() -> frozenset[int]:
    """ids of the C functions of torch, torch.nn.functional, torch.special, torch.fft and torch.linalg."""
    homes = [torch, torch.nn.functional, torch.special, torch.fft, torch.linalg, torch._C._nn]
    kinds = (types.BuiltinFunctionType, types.BuiltinMethodType)
    return frozenset(id(f) for home in homes for f in vars(home).values() if isinstance(f, kinds))


def is_tensor_function(obj: Any, on_tensors: bool) -> bool:
    """Whether `obj` is an operation that belongs in a graph as it is."""
    try:
        if obj in NEVER:
            return False
        if obj in FACTORIES:
            return True
    except TypeError:
        return False
    if isinstance(obj, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return True
    if not on_tensors:
        return False
    if getattr(obj, "__objclass__", None) in (torch._C.TensorBase, torch.Tensor):
        return False  # a method: called through the tensor, which knows which to refuse
    if obj in BINARY or obj in INPLACE or obj in UNARY:
        return True
    return id(obj) in _tensor_function_names()


def is_leaf_function(fn: types.FunctionType) -> bool:
    """Python functions of PyTorch that go into the graph as one node instead of being inlined."""
    home = fn.__module__ or ""
    return home in ("torch.nn.functional", "torch.functional") and fn not in NEVER


@handles(torch.is_tensor)
def _is_tensor(tx: Interpreter, obj: Value) -> Value:
    return ConstantValue(isinstance(obj, TensorValue))


@handles(torch.is_grad_enabled)
def _is_grad_enabled(tx: Interpreter) -> Value:
    return ConstantValue(tx.capture.grad_enabled)


@handles(torch.is_floating_point, torch.is_complex, torch.numel)
def _tensor_query(tx: Interpreter, tensor: Value) -> Value:
    raise Unsupported("unsupported call", "write it as a method of the tensor")


def _state(query: Any, tx: Interpreter, *args: Value) -> Value:
    return from_python(query(*(a.constant(tx) for a in args)))


# covered by the guard on PyTorch's global state
for _query in (
    torch.is_autocast_enabled, torch.is_autocast_cpu_enabled, torch.is_autocast_cache_enabled,
    torch.get_autocast_dtype, torch.are_deterministic_algorithms_enabled, torch.get_default_dtype,
):  # fmt: skip
    HANDLERS[_query] = functools.partial(_state, _query)


@handles(
    torch.jit.is_scripting,  # type: ignore[attr-defined]
    torch.jit.is_tracing,  # type: ignore[attr-defined]
    torch._C._get_tracing_state,
    torch.compiler.is_compiling,
)
def _not_scripting(tx: Interpreter) -> Value:
    return ConstantValue(False)


# ---------------------------------------------------------------- operators


def _binary(op: Any, tx: Interpreter, left: Value, right: Value) -> Value:
    if has_tensor(left) or has_tensor(right):
        if isinstance(left, TensorValue) or isinstance(right, TensorValue):
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
    raise Unsupported("unsupported operation", f"{op.__name__} of {left} and {right}")


def _check_operands(op: Any, left: Value, right: Value) -> None:
    for operand in (left, right):
        if isinstance(operand, (ObjectValue, ListValue, DictValue)):
            raise Unsupported("unsupported operation", f"{op.__name__} of a tensor and {operand}")
    if op in (operator.eq, operator.ne) and ConstantValue(None).same_object(right):
        raise Unsupported("unsupported operation", "a tensor compared with None")


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
        return fold(tx, op, [left, right], {})
    if op is operator.or_ and isinstance(left, DictValue) and isinstance(right, DictValue):
        return DictValue({**left.mapping(tx), **right.mapping(tx)})
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
    return _binary(INPLACE[op], tx, left, right)


def _unary(op: Any, tx: Interpreter, operand: Value) -> Value:
    if isinstance(operand, TensorValue):
        return tx.capture.call_function(tx, op, [operand], {})
    return fold(tx, op, [operand], {})


for _op in BINARY:
    HANDLERS[_op] = functools.partial(_binary, _op)
for _op in INPLACE:
    HANDLERS[_op] = functools.partial(_inplace, _op)
for _one in UNARY:
    HANDLERS[_one] = functools.partial(_unary, _one)


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


# ---------------------------------------------------------------- builtins


@handles(print)
def _print(tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
    raise Unsupported("print", "print()")


@handles(len)
def _len(tx: Interpreter, obj: Value) -> Value:
    return ConstantValue(obj.length(tx))


@handles(type)
def _type(tx: Interpreter, obj: Value) -> Value:
    obj.look(tx)
    return tx.capture.wrap_static(obj.python_type())


@handles(isinstance)
def _isinstance(tx: Interpreter, obj: Value, classes: Value) -> Value:
    wanted = _classes(tx, classes)
    obj.look(tx)
    if isinstance(obj, ConstantValue):
        return ConstantValue(isinstance(obj.value, wanted))
    if isinstance(obj, TensorValue):
        real = obj.real if obj.real is not None else obj.fake(tx)
        return ConstantValue(isinstance(real, wanted) if obj.real is not None else issubclass(torch.Tensor, wanted))
    if isinstance(obj, (ObjectValue, StaticValue)) and getattr(obj, "real", None) is not None:
        return ConstantValue(isinstance(obj.real, wanted))  # type: ignore[union-attr]
    if isinstance(obj, StaticValue):
        return ConstantValue(isinstance(obj.obj, wanted))
    return ConstantValue(issubclass(obj.python_type(), wanted))


@handles(issubclass)
def _issubclass(tx: Interpreter, cls: Value, classes: Value) -> Value:
    return ConstantValue(issubclass(cls.constant(tx), _classes(tx, classes)))


def _classes(tx: Interpreter, classes: Value) -> Any:
    if isinstance(classes, TupleValue):
        return tuple(_classes(tx, c) for c in classes.items(tx))
    return classes.constant(tx)


@handles(callable)
def _callable(tx: Interpreter, obj: Value) -> Value:
    obj.look(tx)
    if isinstance(obj, StaticValue):
        return ConstantValue(callable(obj.obj))
    return ConstantValue(any("__call__" in vars(cls) for cls in obj.python_type().__mro__))


@handles(id)
def _id(tx: Interpreter, obj: Value) -> Value:
    raise Unsupported("unsupported call", "id()")


@handles(getattr)
def _getattr(tx: Interpreter, obj: Value, name: Value, default: Value | None = None) -> Value:
    wanted = name.constant(tx)
    if default is None:
        return obj.get_attr(tx, wanted)
    found = _find_attr(tx, obj, wanted)
    return default if found is None else found


@handles(hasattr)
def _hasattr(tx: Interpreter, obj: Value, name: Value) -> Value:
    return ConstantValue(_find_attr(tx, obj, name.constant(tx)) is not None)


def _find_attr(tx: Interpreter, obj: Value, name: str) -> Value | None:
    if isinstance(obj, ObjectValue):
        found = obj.find_attr(tx, name)
        if found is None and obj.source is not None and name not in obj.stored:
            tx.capture.guard("NO_ATTRIBUTE", obj.source, name)
        return found
    if isinstance(obj, TensorValue):
        return obj.get_attr(tx, name) if hasattr(obj.python_type(), name) else None
    if isinstance(obj, FunctionValue):
        return obj.get_attr(tx, name) if obj.fn is not None and hasattr(obj.fn, name) else None
    real = obj.constant(tx) if obj.is_constant() else None
    if real is not None and not hasattr(real, name):
        return None
    return obj.get_attr(tx, name)


@handles(setattr)
def _setattr(tx: Interpreter, obj: Value, name: Value, value: Value) -> Value:
    obj.set_attr(tx, name.constant(tx), value)
    return ConstantValue(None)


@handles(abs)
def _abs(tx: Interpreter, obj: Value) -> Value:
    return _unary(operator.abs, tx, obj)


@handles(bool)
def _bool(tx: Interpreter, obj: Value | None = None) -> Value:
    return ConstantValue(obj is not None and obj.truth(tx))


def _convert(cls: type, tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
    if args and isinstance(args[0], TensorValue):
        raise Unsupported("tensor value read", f"{cls.__name__}(tensor)")
    return fold(tx, cls, args, kwargs)


for _cls in (int, float, str, complex):
    HANDLERS[_cls] = functools.partial(_convert, _cls)


@handles(list)
def _list(tx: Interpreter, obj: Value | None = None) -> Value:
    return ListValue([] if obj is None else list(tx.list_of(obj)))


@handles(tuple)
def _tuple(tx: Interpreter, obj: Value | None = None) -> Value:
    if isinstance(obj, TupleValue) and obj.cls is tuple:
        return obj
    return TupleValue([] if obj is None else list(tx.list_of(obj)))


@handles(torch.Size)
def _size(tx: Interpreter, obj: Value) -> Value:
    return TupleValue(list(tx.list_of(obj)), torch.Size)


@handles(dict)
def _dict(tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
    made = DictValue({})
    made.method_update(tx, *args, **kwargs)
    return made


@handles(collections.OrderedDict)
def _ordered_dict(tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
    made = DictValue({}, collections.OrderedDict)
    made.method_update(tx, *args, **kwargs)
    return made


def _set(cls: type, tx: Interpreter, obj: Value | None = None) -> Value:
    return SetValue({} if obj is None else {hashable(tx, v): None for v in tx.list_of(obj)}, cls)


HANDLERS[set] = functools.partial(_set, set)
HANDLERS[frozenset] = functools.partial(_set, frozenset)


@handles(range)
def _range(tx: Interpreter, *args: Value) -> Value:
    return RangeValue(range(*(a.constant(tx) for a in args)))


@handles(slice)
def _slice(tx: Interpreter, *args: Value) -> Value:
    none = ConstantValue(None)
    parts = {1: lambda: [none, args[0], none], 2: lambda: [*args, none], 3: lambda: list(args)}[len(args)]()
    return SliceValue(parts)


@handles(iter)
def _iter(tx: Interpreter, obj: Value) -> Value:
    return obj.iterate(tx)


@handles(next)
def _next(tx: Interpreter, iterator: Value, default: Value | None = None) -> Value:
    if not isinstance(iterator, IteratorValue):
        raise Unsupported("unsupported iteration", str(iterator))
    found = iterator.next_value(tx) or default
    if found is None:
        raise Unsupported("exception", "StopIteration")
    return found


@handles(zip)
def _zip(tx: Interpreter, *args: Value, strict: Value | None = None) -> Value:
    if strict is not None and strict.truth(tx):
        rows = [tx.list_of(a) for a in args]
        if len({len(r) for r in rows}) > 1:
            raise Unsupported("exception", "zip() arguments differ in length")
        return IteratorValue([TupleValue(list(r)) for r in zip(*rows, strict=True)])
    iterators = [tx.iterator_of(a) for a in args]

    def step(tx: Interpreter) -> Value | None:
        row = []
        for iterator in iterators:
            value = iterator.next_value(tx)
            if value is None:
                return None
            row.append(value)
        return TupleValue(row) if row else None

    return MappedIteratorValue(step)


@handles(enumerate)
def _enumerate(tx: Interpreter, obj: Value, start: Value | None = None) -> Value:
    iterator = tx.iterator_of(obj)
    counter = itertools.count(0 if start is None else start.constant(tx))

    def step(tx: Interpreter) -> Value | None:
        value = iterator.next_value(tx)
        return None if value is None else TupleValue([ConstantValue(next(counter)), value])

    return MappedIteratorValue(step)


@handles(map)
def _map(tx: Interpreter, function: Value, *args: Value) -> Value:
    rows = _zip(tx, *args)
    assert isinstance(rows, IteratorValue)

    def step(tx: Interpreter) -> Value | None:
        row = rows.next_value(tx)
        return None if row is None else function.call(tx, row.items(tx), {})

    return MappedIteratorValue(step)


@handles(filter)
def _filter(tx: Interpreter, function: Value, obj: Value) -> Value:
    iterator = tx.iterator_of(obj)

    def step(tx: Interpreter) -> Value | None:
        while (value := iterator.next_value(tx)) is not None:
            kept = value if ConstantValue(None).same_object(function) else function.call(tx, [value], {})
            if kept.truth(tx):
                return value
        return None

    return MappedIteratorValue(step)


@handles(reversed)
def _reversed(tx: Interpreter, obj: Value) -> Value:
    return IteratorValue(list(reversed(obj.items(tx))))


@handles(sorted)
def _sorted(tx: Interpreter, obj: Value, *, key: Value | None = None, reverse: Value | None = None) -> Value:
    return ListValue(sorted_values(tx, tx.list_of(obj), key, reverse))


def sorted_values(tx: Interpreter, values: list[Value], key: Value | None, reverse: Value | None) -> list[Value]:
    none = key is None or ConstantValue(None).same_object(key)
    ranks = [(v if none or key is None else key.call(tx, [v], {})).constant(tx) for v in values]
    try:
        order = sorted(range(len(values)), key=ranks.__getitem__, reverse=reverse is not None and reverse.truth(tx))
    except TypeError as error:
        raise Unsupported("exception", str(error)) from None
    return [values[i] for i in order]


@handles(any)
def _any(tx: Interpreter, obj: Value) -> Value:
    iterator = tx.iterator_of(obj)
    while (value := iterator.next_value(tx)) is not None:
        if value.truth(tx):
            return ConstantValue(True)
    return ConstantValue(False)


@handles(all)
def _all(tx: Interpreter, obj: Value) -> Value:
    iterator = tx.iterator_of(obj)
    while (value := iterator.next_value(tx)) is not None:
        if not value.truth(tx):
            return ConstantValue(False)
    return ConstantValue(True)


@handles(sum)
def _sum(tx: Interpreter, obj: Value, start: Value | None = None) -> Value:
    total: Value = start or ConstantValue(0)
    for value in tx.list_of(obj):
        total = _binary(operator.add, tx, total, value)
    return total


def _extreme(fn: Any, tx: Interpreter, *args: Value, key: Value | None = None) -> Value:
    values = list(args) if len(args) > 1 else tx.list_of(args[0])
    if any(isinstance(v, TensorValue) for v in values):
        raise Unsupported("data-dependent branch", f"{fn.__name__} of tensors")
    ranks = [(v if key is None else key.call(tx, [v], {})).constant(tx) for v in values]
    try:
        found: int = fn(range(len(values)), key=ranks.__getitem__)
        return values[found]
    except (TypeError, ValueError) as error:
        raise Unsupported("exception", str(error)) from None


HANDLERS[min] = functools.partial(_extreme, min)
HANDLERS[max] = functools.partial(_extreme, max)


@handles(super)
def _super(tx: Interpreter, *args: Value) -> Value:
    if len(args) != 2:
        raise Unsupported("unsupported call", "super() in this form")
    return SuperValue(args[0].constant(tx), args[1])


@handles(functools.partial)
def _partial(tx: Interpreter, function: Value, *args: Value, **kwargs: Value) -> Value:
    return PartialValue(function, args, kwargs)


@handles(_nothing)
def _do_nothing(tx: Interpreter, *args: Value) -> Value:
    return ConstantValue(None)


@handles(property, staticmethod, classmethod, builtins.__build_class__)
def _defines_class(tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
    raise Unsupported("unsupported call", "a class defined inside the function")


# ---------------------------------------------------------------- classes


def construct(tx: Interpreter, cls: type, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """``cls(...)`` for classes whose instances are plain Python objects, namedtuples and enums."""
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return _namedtuple(tx, cls, args, kwargs)
    if issubclass(cls, enum.Enum) and len(args) == 1:
        return fold(tx, cls, args, kwargs)
    if issubclass(cls, BaseException):
        raise Unsupported("exception", _name(cls))
    plain = type(cls) is type and cls.__new__ is object.__new__ and "__slots__" not in vars(cls)
    init = inspect.getattr_static(cls, "__init__")
    refused = (torch.nn.Module, torch.Tensor, torch.autograd.Function)
    if not plain or issubclass(cls, refused) or cls.__module__.startswith("torch."):
        raise Unsupported("skipped function", f"{_name(cls)}()")
    made = ObjectValue(cls)
    if isinstance(init, types.FunctionType):
        result = FunctionValue.outside(tx.capture, init, None).call(tx, [made, *args], kwargs)
        if not ConstantValue(None).same_object(result):
            raise Unsupported("exception", "__init__() should return None")
    elif init is not object.__init__ or args or kwargs:
        raise Unsupported("unsupported call", f"{_name(cls)}()")
    return made


def _namedtuple(tx: Interpreter, cls: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    values = dict(zip(cls._fields, args, strict=False)) | dict(kwargs)
    for name in cls._fields:
        if name not in values:
            if name not in cls._field_defaults:
                raise Unsupported("exception", f"{cls.__name__}() is missing {name!r}")
            values[name] = tx.capture.wrap_static(cls._field_defaults[name])
    if len(args) > len(cls._fields) or values.keys() - set(cls._fields):
        raise Unsupported("exception", f"{cls.__name__}() got the wrong arguments")
    return TupleValue([values[n] for n in cls._fields], cls)


__all__ = ["HANDLERS", "call_static", "handles", "has_tensor", "is_leaf_function", "is_tensor_function", "pairs"]
