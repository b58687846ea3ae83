"""Rules for builtin functions, and for methods of `object` and `type`, which users call through ``super()``."""

from __future__ import annotations

import builtins
import collections
import functools
import operator
import sys
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.rules.python.copying import COPY_FILE, identity_key
from compiler_core.capture.rules.python.operators import binary, unary
from compiler_core.capture.rules.table import add_rules, handles, handles_each, handles_named
from compiler_core.capture.values.arrays import ArrayValue
from compiler_core.capture.values.base import (
    ABSENT,
    Args,
    Kwargs,
    ObservedException,
    Value,
    is_data_descriptor,
    lookup_in_mro,
    observed_exception,
    to_index,
    type_errors_left_to_python,
)
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue, errors_of_program, is_not_implemented
from compiler_core.capture.values.builtin.containers import ObjectKey, has_fixed_order
from compiler_core.capture.values.builtin.mappings import DefaultDictValue, DictValue, OrderedDictValue, mapping_proxy
from compiler_core.capture.values.builtin.sequences import DequeValue, ListValue, SliceValue, TupleValue
from compiler_core.capture.values.builtin.sets import SetValue, set_operand
from compiler_core.capture.values.builtin.static import StaticValue, fold
from compiler_core.capture.values.builtin.symbols import ReadValue, SymbolicNumber, symbol_for_numpy
from compiler_core.capture.values.contexts import NewWeakRefValue
from compiler_core.capture.values.reads import read
from compiler_core.capture.values.tensor import TensorValue, is_in_distribution, tensor_type_name
from compiler_core.capture.values.tensor_subclasses import SubclassTensorValue
from compiler_core.capture.values.user.functions import FunctionValue, MethodValue, PartialValue
from compiler_core.capture.values.user.modules import ModuleValue
from compiler_core.capture.values.user.object_attributes import InstanceValue
from compiler_core.capture.values.user.objects import ObjectValue, SuperValue
from compiler_core.errors import Unsupported
from compiler_core.guards.lifetimes import is_library, is_python_class, weak_cache
from compiler_core.torch_private import GenerationTracker, get_tracing_state, log_api_usage_once

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter


@handles(print)
def _print(tx: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
    raise Unsupported("print", "print()")


@handles(len)
def _len(tx: Interpreter, obj: Value) -> Value:
    if isinstance(obj, SubclassTensorValue):
        return obj.get_attr(tx, "__len__").call(tx, [], {})
    if isinstance(obj, TensorValue) and obj.fake(tx).dim() > 0:
        return obj.call_method(tx, "size", [ConstantValue(0)], {})  # it may be symbolic
    return ConstantValue(obj.length(tx))


@handles(type)
def _type(tx: Interpreter, obj: Value, /) -> Value:
    obj.guard_type(tx)
    return tx.outside.wrap(obj.python_type())


@handles(isinstance)
def _isinstance(tx: Interpreter, obj: Value, classes: Value) -> Value:
    if isinstance(classes, TupleValue):
        return ConstantValue(any(_isinstance(tx, obj, c).truth(tx) for c in classes.unpack(tx)))
    wanted = _classes(tx, classes)
    if not isinstance(wanted, (type, types.UnionType)):
        _check_classes(isinstance, None, wanted)
    if isinstance(wanted, types.UnionType):
        return ConstantValue(any(_isinstance(tx, obj, StaticValue(c)).truth(tx) for c in wanted.__args__))
    obj.guard_type(tx)
    if isinstance(obj, ObjectValue) and lookup_in_mro(obj.cls, "__class__") is not vars(object)["__class__"]:
        raise Unsupported("unsupported call", f"isinstance of {obj}, which overrides __class__")
    check = lookup_in_mro(type(wanted), "__instancecheck__")
    if isinstance(check, types.FunctionType) and not is_library(check.__module__):
        if obj.python_type() is wanted:
            return ConstantValue(True)
        result = FunctionValue.from_outside(tx.outside, check, None).call(tx, [classes, obj], {})
        return ConstantValue(result.truth(tx))
    if isinstance(obj, SymbolicNumber):
        return ConstantValue(isinstance(obj.python_type()(), wanted))
    if isinstance(obj, ConstantValue):
        return ConstantValue(isinstance(obj.value, wanted))
    if isinstance(obj, TensorValue):
        return ConstantValue(_is_tensor_of(tx, obj, wanted))
    if isinstance(obj, (ObjectValue, StaticValue)) and getattr(obj, "real", None) is not None:
        return ConstantValue(isinstance(obj.real, wanted))  # type: ignore[union-attr]
    if isinstance(obj, StaticValue):
        return ConstantValue(isinstance(obj.obj, wanted))
    return ConstantValue(issubclass(obj.python_type(), wanted))


def _is_tensor_of(tx: Interpreter, tensor: TensorValue, wanted: Any) -> bool:
    if (name := tensor_type_name(wanted)) is not None:
        return bool(tensor.fake(tx).type() == name)
    return isinstance(tensor.real, wanted) if tensor.real is not None else issubclass(tensor.python_type(), wanted)


@handles(issubclass)
def _issubclass(tx: Interpreter, cls: Value, classes: Value) -> Value:
    given, wanted = cls.constant(tx), _classes(tx, classes)
    _check_classes(issubclass, given, wanted)
    return ConstantValue(issubclass(given, wanted))


def _check_classes(function: Any, given: Any, classes: Any) -> None:
    """Raises what the program gets if it asks `isinstance` or `issubclass` about what is no class."""
    with errors_of_program(TypeError):
        function(given, classes)


def _classes(tx: Interpreter, classes: Value) -> Any:
    if isinstance(classes, TupleValue):
        return tuple(_classes(tx, c) for c in classes.unpack(tx))
    return classes.constant(tx)


@handles(callable)
def _callable(tx: Interpreter, obj: Value) -> Value:
    obj.install_guards(tx)
    if isinstance(obj, StaticValue):
        return ConstantValue(callable(obj.obj))
    return ConstantValue(any("__call__" in vars(cls) for cls in obj.python_type().__mro__))


@handles(id)
def _id(tx: Interpreter, obj: Value) -> Value:
    if tx.code.co_filename == COPY_FILE:
        return identity_key(tx, obj)
    if isinstance(obj, StaticValue) or (isinstance(obj, FunctionValue) and obj.fn is not None):
        return ConstantValue(id(obj.constant(tx)))
    real: Any = getattr(obj, "real", None)
    is_one_object = isinstance(obj, (InstanceValue, ModuleValue)) or isinstance(real, torch.nn.Parameter)
    if not is_one_object or obj.source is None:  # another tensor differs at each call
        raise Unsupported("unsupported call", "id()")
    tx.guards.add("ID_MATCH", obj.source, real)
    return ConstantValue(id(real))


@handles(type.__subclasses__)
def _subclasses(tx: Interpreter, cls: Value) -> Value:
    found = tx.guards.ask(_subclasses_of(cls.constant(tx)), f"{cls}.__subclasses__")
    return ListValue([StaticValue(reference()) for reference in found])


@weak_cache
def _subclasses_of(cls: type) -> Callable[[], list[weakref.ref[type]]]:
    """Returns a query of weak references to the subclasses."""
    base = weakref.ref(cls)

    def query() -> list[weakref.ref[type]]:
        found: Any = base()
        classes: list[type] = [] if found is None else type.__subclasses__(found)
        return [weakref.ref(each) for each in classes]

    return query


@handles(weakref.ref)
def _weak_reference(tx: Interpreter, obj: Value, callback: Value = NONE) -> Value:
    is_outside = isinstance(obj, InstanceValue) and obj.source is not None
    is_class = isinstance(obj, StaticValue) and isinstance(obj.obj, type)
    if not (is_outside or is_class) or not tx.is_none(callback):
        raise Unsupported("unsupported call", f"weakref.ref({obj})")
    return NewWeakRefValue(obj)


@handles(types.MethodType)
def _bound_method(tx: Interpreter, function: Value, owner: Value) -> Value:
    if not isinstance(function, (FunctionValue, StaticValue)) or tx.is_none(owner):
        raise Unsupported("unsupported call", f"types.MethodType({function}, {owner})")
    return MethodValue(function, owner)


@handles(sys.exc_info)
def _exception_info(tx: Interpreter) -> Value:
    handled = _exception(tx)
    if handled is NONE:
        return TupleValue([NONE, NONE, NONE])
    return TupleValue([StaticValue(handled.python_type()), handled, Value()])


@handles(sys.exception)
def _exception(tx: Interpreter) -> Value:
    handled = tx.handled_exception()
    if handled is not None:
        return handled
    if sys.exception() is not None:
        raise Unsupported("unsupported call", "sys.exc_info() while a caller handles an exception")
    tx.guards.add("RETURNS", tx.guards.held(_no_exception, "no exception is handled"), True)
    return NONE


def _no_exception() -> bool:
    """Whether no caller of the frame handles an exception."""
    return sys.exc_info()[0] is None


@handles(getattr)
def _getattr(tx: Interpreter, obj: Value, name: Value, default: Value | None = None, /) -> Value:
    wanted = _attribute_name(tx, name)
    if default is None:
        return obj.get_attr(tx, wanted)
    found = _find_attr(tx, obj, wanted)
    return default if found is None else found


@handles(vars)
def _vars(tx: Interpreter, obj: Value, /) -> Value:
    found = _find_attr(tx, obj, "__dict__")
    if found is None:
        raise Unsupported("exception", "vars() of an object without a __dict__")
    return found


def _attribute_name(tx: Interpreter, name: Value) -> str:
    wanted = name.constant(tx)
    if not isinstance(wanted, str):
        raise Unsupported("exception", f"an attribute name that is a {type(wanted).__name__}")
    return wanted


@handles(hasattr)
def _hasattr(tx: Interpreter, obj: Value, name: Value, /) -> Value:
    wanted = _attribute_name(tx, name)
    if isinstance(obj.cls, type) and not is_python_class(obj.cls):
        found = lookup_in_mro(obj.cls, wanted)
        if found is not ABSENT and not is_data_descriptor(found):  # nothing can change a class made in C
            obj.guard_type(tx)
            return ConstantValue(True)
    return ConstantValue(_find_attr(tx, obj, wanted) is not None)


def _find_attr(tx: Interpreter, obj: Value, name: str) -> Value | None:
    if isinstance(obj, StaticValue) and not isinstance(obj.obj, type) and not hasattr(obj.constant(tx), name):
        if isinstance(obj.obj, types.ModuleType) and is_library(obj.obj.__name__):
            tx.guards.add_library_name(vars(obj.obj), obj.obj.__name__, name)
        elif isinstance(obj.obj, types.ModuleType):
            source = obj.source or tx.guards.held(obj.obj, obj.obj.__name__)
            tx.guards.add("NO_ATTRIBUTE", source, name)
        return None
    try:
        return obj.get_attr(tx, name)
    except ObservedException as error:
        if error.matches(AttributeError):
            return None
        raise


@handles(setattr)
def _setattr(tx: Interpreter, obj: Value, name: Value, value: Value) -> Value:
    obj.set_attr(tx, _attribute_name(tx, name), value)
    return NONE


@handles(delattr)
def _delattr(tx: Interpreter, obj: Value, name: Value) -> Value:
    obj.del_attr(tx, _attribute_name(tx, name))
    return NONE


@handles(bool)
def _bool(tx: Interpreter, obj: Value | None = None, /) -> Value:
    if isinstance(obj, TensorValue) and (found := tx.truth_of_flag(obj)) is not None:
        return ConstantValue(found)
    if isinstance(obj, TensorValue):
        raise Unsupported("distribution check" if is_in_distribution(tx) else "tensor value read", "bool(tensor)")
    return ConstantValue(obj is not None and obj.truth(tx))


# the special methods that each conversion tries, in order
_CONVERSIONS = {
    int: ("__int__", "__index__", "__trunc__"),
    float: ("__float__", "__index__"),
    complex: ("__complex__", "__float__", "__index__"),
    round: ("__round__",),
}


@handles_each(*_CONVERSIONS)
def _convert(convert: Any, tx: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
    if args and isinstance(args[0], ArrayValue) and args[0].is_number:
        args = (args[0].tensor(tx), *args[1:])
    if args and isinstance(args[0], (TensorValue, ReadValue)):
        return _convert_read(convert, tx, args, kwargs)
    if convert in (int, float) and len(args) == 1 and (number := symbol_for_numpy(tx, args[0])) is not None:
        return _convert(convert, tx, number)
    if args and isinstance(args[0], ObjectValue):
        for name in _CONVERSIONS[convert]:
            if (method := args[0].special_method(tx, name)) is not None:
                result = method.call(tx, args[1:], kwargs)
                if convert is round:
                    return result
                return ConstantValue(args[0].checked(tx, convert, name, result))
    return fold(tx, convert, args, kwargs)


def _convert_read(convert: Any, tx: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """A conversion of a tensor, or of a number that is read from one, where it raises and warns of nothing."""
    value, *others = args
    if convert is round and isinstance(value, ReadValue) and len(args) == 2 and value.cls is float:
        if others[0].python_type() is int:
            return ReadValue(round, [value, ConstantValue(others[0].constant(tx))], float)
    if not others and not kwargs:
        if isinstance(value, ReadValue) and (convert is float or (convert is int and value.cls is not float)):
            return ReadValue(convert, [value], convert)
        if isinstance(value, TensorValue) and not value.fake(tx).requires_grad:  # float() warns of those
            is_int = not value.fake(tx).dtype.is_floating_point
            if convert is float or (convert is int and is_int):
                return read(tx, value, convert, convert)
    raise Unsupported("tensor value read", f"{convert.__name__}(tensor)")


@handles(divmod)
def _divmod(tx: Interpreter, left: Value, right: Value) -> Value:
    is_reflected = not isinstance(left, (ObjectValue, ArrayValue))
    owner, other = (right, left) if is_reflected else (left, right)
    if isinstance(owner, ObjectValue) and (not isinstance(other, ObjectValue) or other.cls is owner.cls):
        method = owner.special_method(tx, "__rdivmod__" if is_reflected else "__divmod__")
        if method is not None and not is_not_implemented(result := method.call(tx, [other], {})):
            return result
    if isinstance(left, SymbolicNumber) or isinstance(right, SymbolicNumber):
        return TupleValue([binary(op, tx, left, right) for op in (operator.floordiv, operator.mod)])
    return fold(tx, divmod, [left, right])


@handles(hash)
def _hash(tx: Interpreter, obj: Value) -> Value:
    raw = obj.as_key(tx)
    if isinstance(raw, ObjectKey):
        return ConstantValue(raw.hashed)
    if not has_fixed_order(raw):  # a hash of an address, which is not that of the program's object
        raise Unsupported("unsupported call", f"hash of {obj}")
    return ConstantValue(hash(raw))


@handles(tuple)
def _tuple(tx: Interpreter, obj: Value | None = None) -> Value:
    if isinstance(obj, TupleValue) and obj.cls is tuple:
        obj.install_guards(tx)
        return obj
    return TupleValue([] if obj is None else list(tx.list_of(obj)))


@handles(torch.Size)
def _size(tx: Interpreter, obj: Value | None = None) -> Value:
    values = [] if obj is None else list(tx.list_of(obj))
    if not all(issubclass(value.python_type(), int) or isinstance(value, SymbolicNumber) for value in values):
        raise Unsupported("exception", "torch.Size() of what are no integers")
    return TupleValue(values, torch.Size)


@handles(dict)
def _dict(tx: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
    if len(args) > 1:
        raise observed_exception(TypeError, f"dict expected at most 1 argument, got {len(args)}")
    container = DictValue({})
    container.method_update(tx, *args, **kwargs)
    return container


@handles(vars(dict)["fromkeys"], vars(collections.OrderedDict)["fromkeys"])
def _dict_from_keys(tx: Interpreter, cls: Value, keys: Value, value: Value = NONE) -> Value:
    container = cls.call(tx, [], {})
    for key in tx.list_of(keys):
        container.set_item(tx, key, value)
    return container


@handles(collections.OrderedDict)
def _ordered_dict(tx: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
    container = OrderedDictValue({}, collections.OrderedDict)
    with type_errors_left_to_python("the argument of OrderedDict"):
        container.method_update(tx, *args, **kwargs)
    return container


@handles(collections.defaultdict)
def _default_dict(tx: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
    if args and not tx.is_none(args[0]) and lookup_in_mro(args[0].python_type(), "__call__") is ABSENT:
        raise observed_exception(TypeError, "first argument must be callable or None")
    container = DefaultDictValue({}, collections.defaultdict)
    container.method___init__(tx, *args, **kwargs)
    return container


@handles(collections.deque)
def _deque(tx: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
    container = DequeValue([])
    container.method___init__(tx, *args, **kwargs)
    return container


@handles(types.MappingProxyType)
def _mapping_proxy(tx: Interpreter, obj: Value) -> Value:
    if not isinstance(obj, DictValue):
        raise Unsupported("unsupported call", f"MappingProxyType({obj})")
    return mapping_proxy(tx, obj)


@handles_each(set, frozenset)
def _set(cls: type, tx: Interpreter, obj: Value | None = None, /) -> Value:
    if cls is frozenset and isinstance(obj, SetValue) and obj.cls is frozenset:
        obj.install_guards(tx)
        return obj
    members = () if obj is None else set_operand(tx, obj)
    container = SetValue.from_members(cls(members))
    container.added = dict.fromkeys(members)
    return container


@handles(slice)
def _slice(tx: Interpreter, *args: Value) -> Value:
    if not 1 <= len(args) <= 3:
        raise Unsupported("exception", f"slice() of {len(args)} arguments")
    if len(args) == 1:
        return SliceValue([NONE, args[0], NONE])
    return SliceValue([*args, NONE] if len(args) == 2 else list(args))


@handles(super)
def _super(tx: Interpreter, *args: Value) -> Value:
    if len(args) != 2:
        raise Unsupported("unsupported call", "super() in this form")
    return SuperValue.create(tx, args[0].constant(tx), args[1])


@handles(functools.partial)
def _partial(tx: Interpreter, function: Value, /, *args: Value, **kwargs: Value) -> Value:
    if isinstance(function, PartialValue) and not function.stored:  # Python joins them, unless it has attributes
        outside = next((obj for obj, value in tx.outside.values_by_id.values() if value is function), None)
        if outside is None or outside.__reduce__()[2][3] is None:
            return PartialValue(function.function, [*function.args, *args], {**function.kwargs, **kwargs})
    return PartialValue(function, args, kwargs)


@handles(builtins.__build_class__)
def _class_statement(tx: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
    raise Unsupported("class statement")


@handles(property, staticmethod, classmethod)
def _descriptor(tx: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
    raise Unsupported("unsupported call", "property, staticmethod or classmethod")


def _plain(owner: Value, name: str) -> ObjectValue:
    if not isinstance(owner, ObjectValue) or isinstance(owner, ModuleValue):
        raise Unsupported("unsupported call", f"object.{name} of {owner}")
    return owner


# since 3.14 exceptions have that of `object`
@handles(*{c.__getattribute__ for c in (object, BaseException, dict, list)})
def _getattribute(tx: Interpreter, owner: Value, name: Value) -> Value:
    if not isinstance(owner, ObjectValue):
        raise Unsupported("unsupported call", f"object.__getattribute__ of {owner}")
    wanted = name.constant(tx)
    found = owner.generic_get_attr(tx, wanted)
    if found is None:
        raise observed_exception(AttributeError, f"{owner.cls.__name__!r} object has no attribute {wanted!r}")
    return found


@handles(object.__setattr__)
def _object_setattr(tx: Interpreter, owner: Value, name: Value, value: Value) -> Value:
    if isinstance(owner, ModuleValue) and owner.source is None:  # in Module.__init__
        owner.store(tx, name.constant(tx), value)
    else:
        _plain(owner, "__setattr__").generic_set_attr(tx, name.constant(tx), value)
    return NONE


@handles(object.__delattr__)
def _object_delattr(tx: Interpreter, owner: Value, name: Value) -> Value:
    _plain(owner, "__delattr__").generic_del_attr(tx, name.constant(tx))
    return NONE


@handles(object.__init__)
def _init(tx: Interpreter, owner: Value, /, *args: Value, **kwargs: Value) -> Value:
    cls = owner.python_type()
    if args or kwargs:
        if lookup_in_mro(cls, "__init__") is object.__init__ and lookup_in_mro(cls, "__new__") is not object.__new__:
            return NONE
        raise Unsupported("exception", f"object.__init__() of a {cls.__name__} with arguments")
    return NONE


@handles(object.__init_subclass__, get_tracing_state, log_api_usage_once, GenerationTracker.tag.__func__)
@handles_named("torch.fx.experimental.symbolic_shapes._advise_is_size")
def _nothing(tx: Interpreter, /, *args: Value) -> Value:
    """Does what these functions do in a captured frame, such as that with which stock torch.compile tags new modules,
    or that which ``torch._check_is_size`` calls when it has checked the number."""
    return NONE


@handles_named("torch.fx.experimental.symbolic_shapes.has_free_unbacked_symbols")
def _has_free_unbacked_symbols(tx: Interpreter, value: Value) -> Value:
    """PyTorch 2.14 asks in `flex_attention`; the sizes of a program are numbers when it runs."""
    return ConstantValue(False)


add_rules(
    {
        abs: lambda tx, obj: unary(operator.abs, tx, obj),
        pow: lambda tx, base, exp, mod=None: (
            binary(operator.pow, tx, base, exp) if mod is None else fold(tx, pow, [base, exp, mod])
        ),
        list: lambda tx, obj=None: ListValue([] if obj is None else list(tx.list_of(obj))),
        range: lambda tx, *args: fold(tx, range, [to_index(tx, a) for a in args]),
        object.__eq__: lambda tx, owner, other: ConstantValue(True if tx.is_same(owner, other) else NotImplemented),
    }
)
