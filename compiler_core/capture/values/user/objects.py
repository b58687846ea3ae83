"""Instances of Python classes: their special methods, and how they are reconstructed.

An instance of a user's subclass of one of Python's containers, such as a namedtuple or a dict like `ModelOutput`, has
attributes like any other, and contents: the value of an instance of the builtin class.  Methods that its class does not
define in Python are called on the contents.
"""

from __future__ import annotations

import enum
import inspect
import itertools
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import (
    ABSENT,
    UNBOUND,
    Args,
    Call,
    Kwargs,
    NamedMethodValue,
    ObservedException,
    Value,
    guard_class_attribute,
    is_class_property,
    is_descriptor,
    lookup_in_mro,
    observed_exception,
    to_index,
    type_errors_left_to_python,
)
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue, exception_from_error, is_atom
from compiler_core.capture.values.builtin.containers import (
    MappedIteratorValue,
    is_compared_as_tuple,
    iterate_over,
    object_key,
)
from compiler_core.capture.values.builtin.mappings import CONTAINERS, DictValue, key_value
from compiler_core.capture.values.builtin.sequences import SequenceValue, TupleValue, field_index
from compiler_core.capture.values.builtin.sets import SetValue
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.capture.values.user.functions import FunctionValue, MethodValue
from compiler_core.capture.values.user.object_attributes import BUILTIN_METHODS, InstanceValue, descriptor_get
from compiler_core.errors import Unsupported
from compiler_core.guards.lifetimes import is_python_class, weak_cache
from compiler_core.guards.sources import AttrSource, Source

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter


def _known_type(value: Value) -> type | None:
    """Returns the type of a value, or None if it is not known, as of some iterators."""
    try:
        return value.python_type()
    except Unsupported:
        return None


class ObjectValue(InstanceValue):
    """An instance whose class is plain Python, from outside or made in the frame."""

    def __init__(self, cls: type, real: Any = None, source: Source | None = None) -> None:
        super().__init__(cls, real, source)
        self._return_value: Value = NONE

    def forwarded_call(self, tx: Interpreter, args: Args, kwargs: Kwargs) -> Call | None:
        method = self.special_method(tx, "__call__")
        if method is None:
            raise Unsupported("unsupported call", f"a {self.cls.__name__}")
        return method, list(args), kwargs

    def truth(self, tx: Interpreter) -> bool:
        method = self.special_method(tx, "__bool__")
        if method is not None:
            result = method.call(tx, [], {})
            if result.python_type() is not bool:
                name = result.python_type().__name__
                raise observed_exception(TypeError, f"__bool__ should return bool, returned {name}")
            return result.truth(tx)
        if self.special_method(tx, "__len__") is not None:
            return self.length(tx) > 0
        if any(lookup_in_mro(self.cls, name) is not ABSENT for name in ("__bool__", "__len__")):
            raise Unsupported("unsupported operation", f"truth of a {self.cls.__name__}")
        self.install_guards(tx)
        return True

    def checked(self, tx: Interpreter, function: Callable[[Any], Any], name: str, result: Value) -> Any:
        """Returns ``function(self)``, whose special method `name` has returned `result`.

        Python checks what such methods return; so it is asked, with a stand-in.
        """
        returned = result.constant(tx)
        stand_in = type(self.cls.__name__, (), {name: lambda _: returned})()
        try:
            return function(stand_in)
        except Exception as error:
            raise exception_from_error(error) from None

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        return self._special_call(tx, "__getitem__", [key])

    def set_item(self, tx: Interpreter, key: Value, value: Value) -> None:
        self._special_call(tx, "__setitem__", [key, value])

    def del_item(self, tx: Interpreter, key: Value) -> None:
        self._special_call(tx, "__delitem__", [key])

    def contains(self, tx: Interpreter, item: Value) -> bool:
        if lookup_in_mro(self.cls, "__contains__") is ABSENT:
            with type_errors_left_to_python("the right side of in"):
                return any(tx.is_same_or_equal(value, item) for value in iterate_over(tx, self))
        return self._special_call(tx, "__contains__", [item]).truth(tx)

    def length(self, tx: Interpreter) -> int:
        length: int = self.checked(tx, len, "__len__", to_index(tx, self._special_call(tx, "__len__", [])))
        return length

    def iterate(self, tx: Interpreter) -> Value:
        method = self.special_method(tx, "__iter__")
        if method is not None:
            iterator = method.call(tx, [], {})
            kind = _known_type(iterator)
            if kind is not None and not hasattr(kind, "__next__"):
                raise observed_exception(TypeError, f"iter() returned non-iterator of type '{kind.__name__}'")
            return iterator
        if self.special_method(tx, "__getitem__") is None:
            raise Unsupported("unsupported iteration", f"a {self.cls.__name__}")
        return self._iterate_by_index()

    def _iterate_by_index(self) -> Value:
        """Returns an iterator that calls ``__getitem__`` with 0, 1, ... until it raises IndexError."""
        counter = itertools.count()

        def step(tx: Interpreter) -> Value | None:
            try:
                return self.get_item(tx, ConstantValue(next(counter)))
            except ObservedException as error:
                if error.matches(IndexError):
                    return None
                raise

        return MappedIteratorValue(step)

    def next_value(self, tx: Interpreter) -> Value | None:
        tx.capture.count_iteration()
        try:
            return self.next_or_stop(tx)
        except ObservedException as error:
            if not error.matches(StopIteration):
                raise
            from compiler_core.capture.values.user.exceptions import exception_value

            self._return_value = exception_value(error).get_attr(tx, "value")
            return None

    def next_or_stop(self, tx: Interpreter) -> Value:
        return self._special_call(tx, "__next__", [])

    def return_value(self) -> Value:
        return self._return_value

    def unpack(self, tx: Interpreter) -> list[Value]:
        return tx.list_of(self)

    def as_key(self, tx: Interpreter) -> Any:
        return object_key(tx, self)

    def mapping_pairs(self, tx: Interpreter) -> Iterator[tuple[Any, Value]] | None:
        return self._read_pairs(tx) if hasattr(self.cls, "keys") else None

    def _read_pairs(self, tx: Interpreter) -> Iterator[tuple[Any, Value]]:
        for key in iterate_over(tx, self.get_attr(tx, "keys").call(tx, [], {})):
            yield key.as_key(tx), self.get_item(tx, key)

    # --- across a break

    def reconstruct(self, emit: Emitter) -> None:
        values = {k: v for k, v in self.stored.items() if v is not UNBOUND}
        emit.call_object(make_object, [StaticValue(self.cls), DictValue(dict(values))])


def make_object(cls: type, attributes: dict[str, Any]) -> Any:
    """Called by generated code: makes an instance that the frame made."""
    instance: Any = object.__new__(cls)
    for name, value in attributes.items():
        object.__setattr__(instance, name, value)
    return instance


def type_or_object(value: Value) -> type:
    """Returns the type of a value, or object if it is not known."""
    try:
        return value.python_type()
    except Unsupported:
        return object


class NamespaceValue(ObjectValue):
    """A SimpleNamespace."""

    def __init__(self, real: Any = None, source: Source | None = None) -> None:
        super().__init__(types.SimpleNamespace, real, source)

    def find_attr(self, tx: Interpreter, name: str) -> Value | None:
        return self.generic_get_attr(tx, name)

    def set_attr(self, tx: Interpreter, name: str, value: Value) -> None:
        self.install_guards(tx)
        self.store(tx, name, value)

    def special_method(self, tx: Interpreter, name: str) -> Value | None:
        if name in vars(types.SimpleNamespace):  # comparisons and repr, in C
            raise Unsupported("unsupported call", f"SimpleNamespace.{name}")
        return super().special_method(tx, name)

    def reconstruct(self, emit: Emitter) -> None:
        emit.call_object(self.cls, [], {k: v for k, v in self.stored.items() if v is not UNBOUND})


class SubclassValue(ObjectValue):
    """An instance of a subclass, written in Python, of a set or of one of `CONTAINERS`."""

    def __init__(
        self, cls: type, contents: SequenceValue | DictValue | SetValue, real: Any = None, source: Source | None = None
    ) -> None:
        super().__init__(cls, real, source)
        self.contents = contents
        contents.owner = self

    @classmethod
    def from_outside(cls, obj: Any, source: Source) -> SubclassValue:
        obj_class: Any = type(obj)
        base: Any = container_base(obj_class)
        assert base is not None
        contents: Any = (
            CONTAINERS[base](None, base, source, obj) if base in CONTAINERS else SetValue(obj, base, source, obj)
        )
        return cls(type(obj), contents, obj, source)

    def as_key(self, tx: Interpreter) -> Any:
        if not isinstance(self.contents, TupleValue) or not is_compared_as_tuple(self.cls):
            return super().as_key(tx)
        key = tuple.__new__(self.cls, [v.as_key(tx) for v in self.contents.unpack(tx)])
        tx.outside.tuple_keys[id(key)] = key, self
        return key

    def special_method(self, tx: Interpreter, name: str) -> Value | None:
        found = lookup_in_mro(self.cls, name)
        return BoundBuiltinValue(found, self) if _of_container(found) else super().special_method(tx, name)

    def _class_attr(self, tx: Interpreter, name: str, found: Any) -> Value:
        return BoundBuiltinValue(found, self) if _of_container(found) else super()._class_attr(tx, name, found)

    def _read_descriptor(self, tx: Interpreter, name: str, descriptor: Any) -> Value | None:
        if getattr(descriptor, "__objclass__", None) in (deque, defaultdict):
            return self.contents.get_attr(tx, name)
        index = field_index(descriptor)
        return super()._read_descriptor(tx, name, descriptor) if index is None else self.contents.unpack(tx)[index]

    def call_builtin(self, tx: Interpreter, descriptor: Any, args: Args, kwargs: Kwargs) -> Value:
        """Calls a method of the builtin class that this class derives from."""
        name, base = descriptor.__name__, self.contents.cls
        if lookup_in_mro(base, name) is not descriptor:
            raise Unsupported("unsupported call", f"{descriptor.__qualname__} of a {self.cls.__name__}")
        if name == "__getitem__" and isinstance(self.contents, DictValue):
            missing = self.special_method(tx, "__missing__")
            if missing is not None and not self.contents.contains(tx, args[0]):
                return missing.call(tx, args, {})
        if base in (deque, OrderedDict, defaultdict) and name in _NEW_INSTANCE_METHODS:
            raise Unsupported("unsupported call", f"{descriptor.__qualname__} of a {self.cls.__name__}")
        if name in ("__or__", "__ror__", "copy"):
            contents_of(self)
        if base is OrderedDict and name not in _CONTENTS_METHODS and not _has_builtin_item_access(self.cls):
            return self._call_ordered_dict(tx, name, args, kwargs)
        return self.contents.call_method(tx, name, list(args), kwargs)

    def _call_ordered_dict(self, tx: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        """Calls a method of OrderedDict whose C code calls ``__setitem__`` of the subclass."""
        if name not in ("update", "__init__"):
            raise Unsupported("unsupported call", f"OrderedDict.{name} of a {self.cls.__name__}")
        added = DictValue({})
        added.method_update(tx, *args, **kwargs)
        for key, value in added.mapping(tx).items():
            self.set_item(tx, key_value(tx, key), value)
        return NONE

    def mapping_pairs(self, tx: Interpreter) -> Iterator[tuple[Any, Value]] | None:
        is_copied = self.contents.cls is dict and inspect.getattr_static(self.cls, "__iter__") is vars(dict)["__iter__"]
        if is_copied and isinstance(self.contents, DictValue):  # Python does not call methods of the class either
            return iter(list(self.contents.mapping(tx).items()))
        return super().mapping_pairs(tx)

    def reconstruct(self, emit: Emitter) -> None:
        values = {k: v for k, v in self.stored.items() if v is not UNBOUND}
        found = self.contents
        plain = found.listed(emit) if isinstance(found, SetValue) else found.as_builtin()
        emit.call_object(
            make_subclass, [StaticValue(self.cls), StaticValue(self.contents.cls), plain, DictValue(values)]
        )


def contents_of(value: Value) -> Value:
    """Returns the builtin container in an instance of a user's subclass of it; other values unchanged."""
    if not isinstance(value, SubclassValue):
        return value
    is_dict = isinstance(value.contents, DictValue)
    if is_dict and not _of_container(inspect.getattr_static(value.cls, "__iter__")):
        raise Unsupported("unsupported operation", f"a {value.cls.__name__}, a dict that overrides __iter__")
    return value.contents


# methods that return a new instance of the subclass, by calling the class
_NEW_INSTANCE_METHODS = ("copy", "__copy__", "__or__", "__ror__", "__add__", "__mul__", "__rmul__")


def _of_container(found: Any) -> bool:
    """Whether this attribute of a class is a method of the builtin container."""
    return isinstance(found, BUILTIN_METHODS) and found.__objclass__ is not object


# methods of OrderedDict that call no methods of the subclass
_CONTENTS_METHODS = frozenset(
    "__getitem__ __setitem__ __delitem__ __contains__ __len__ __iter__ __reversed__ keys values items get clear "
    "move_to_end".split()
)


def _has_builtin_item_access(cls: type) -> bool:
    names = ("__setitem__", "__getitem__", "__delitem__")
    return all(isinstance(inspect.getattr_static(cls, n), BUILTIN_METHODS) for n in names)


@weak_cache
def container_base(cls: Any) -> type | None:
    """Returns the builtin container that `cls` derives from, if all classes between the two are Python classes."""
    base = next((c for c in cls.__mro__ if not is_python_class(c)), object)
    return base if (base in CONTAINERS or base in SETS) and base is not cls else None


SETS = (set, frozenset)


def make_subclass(cls: type, base: Any, contents: Any, attributes: dict[str, Any]) -> Any:
    """Called by generated code: makes an instance that the frame made."""
    instance = base.__new__(cls, contents) if base in (tuple, frozenset) else base.__new__(cls)
    if base is deque:
        base.__init__(instance, contents, contents.maxlen)
    elif base is list:
        base.extend(instance, contents)
    elif base is set:
        base.update(instance, contents)
    elif base not in (tuple, frozenset):
        for key, value in contents.items():
            base.__setitem__(instance, key, value)
    if base is defaultdict:
        instance.default_factory = contents.default_factory
    for name, value in attributes.items():
        object.__setattr__(instance, name, value)
    return instance


def new_instance(tx: Interpreter, cls: type, args: Args) -> SubclassValue:
    """``base.__new__(cls, *args)``.  Only tuples and frozensets get their contents from ``__new__``."""
    base: Any = container_base(cls)
    if base is tuple:
        return SubclassValue(cls, TupleValue(list(tx.list_of(args[0])) if args else []))
    if base in SETS:
        given = args[:1] if base is frozenset else ()
        return SubclassValue(cls, SetValue([v.as_key(tx) for each in given for v in tx.list_of(each)], base))
    empty: Any = {} if issubclass(base, dict) else []
    return SubclassValue(cls, CONTAINERS[base](empty, base))


_SET_BY_FORWARD = frozenset({"to_save", "dirty_tensors", "non_differentiable", "saved_for_forward"})
"""What the methods of ``ctx`` set, for autograd to read when the forward has returned: any object, unchanged."""


class AutogradContextValue(ObjectValue):
    """A ``ctx``, which has attributes of C++ besides those of its ``__dict__``."""

    def _read_descriptor(self, tx: Interpreter, name: str, descriptor: Any) -> Value | None:
        if isinstance(descriptor, types.GetSetDescriptorType):
            if name in self.stored:
                return self.stored[name]
            if name == "needs_input_grad" and self.source is not None:
                return tx.outside.wrap(self.real.needs_input_grad, AttrSource(self.source, name))
        return super()._read_descriptor(tx, name, descriptor)

    def generic_set_attr(self, tx: Interpreter, name: str, value: Value) -> None:
        is_flag = name == "materialize_grads" and value.is_constant() and isinstance(value.constant(tx), bool)
        if name in _SET_BY_FORWARD or is_flag:
            self.store(tx, name, value)
        else:
            super().generic_set_attr(tx, name, value)


# ---------------------------------------------------------------- super()
#
# With it: methods of builtin classes bound to objects of users' classes, and attributes of enums' members.


class SuperValue(Value):
    """``super(after, owner)``.  `owner` is an object, or, in classmethods, a class."""

    def __init__(self, after: type, owner: Value) -> None:
        self.after = after
        self.owner = owner

    @classmethod
    def create(cls, tx: Interpreter, after: type, owner: Value) -> SuperValue:
        """Makes ``super(after, owner)``, with a guard on the class of `owner`."""
        owner.install_guards(tx)
        value = cls(after, owner)
        if not (isinstance(after, type) and (value._is_class_owner or after in owner.python_type().__mro__)):
            raise Unsupported("exception", "super(type, obj): obj must be an instance or subtype of type")
        return value

    @property
    def _is_class_owner(self) -> bool:
        owner = self.owner.obj if isinstance(self.owner, StaticValue) else None
        return isinstance(owner, type) and issubclass(owner, self.after)

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        start = self.owner.constant(tx) if self._is_class_owner else self.owner.python_type()
        mro = start.__mro__
        if self.after not in mro:
            raise Unsupported("unsupported attribute", f"super().{name} in a metaclass")
        classes = mro[mro.index(self.after) + 1 :]
        if (stored := tx.effects.class_value(classes, name)) is not None:
            return stored
        for cls in classes:
            if name in cls.__dict__:
                found = cls.__dict__[name]
                guard_class_attribute(tx, cls, name, found)
                if self._is_class_owner:
                    return self._read_from_class(tx, found, name)
                return self._bind(tx, found, name, start, cls)
        raise Unsupported("exception", f"super has no attribute {name!r}")

    def _bind(self, tx: Interpreter, found: Any, name: str, start: type, cls: type) -> Value:
        if isinstance(found, BUILTIN_METHODS):
            return BoundBuiltinValue(found, self.owner)
        if isinstance(found, types.BuiltinFunctionType):  # a builtin class's __new__
            return StaticValue(found)
        if isinstance(found, types.GetSetDescriptorType):
            return StaticValue(found.__get__).call(tx, [self.owner], {})
        if is_descriptor(found):
            return descriptor_get(tx, found, name, self.owner, start, cls)
        return tx.outside.wrap_attribute(found, AttrSource(tx.guards.held(cls, cls.__qualname__), name))

    def _read_from_class(self, tx: Interpreter, found: Any, name: str) -> Value:
        if isinstance(found, types.FunctionType):
            return FunctionValue.from_outside(tx.outside, found, None)
        if isinstance(found, staticmethod):
            return tx.outside.wrap(found.__func__)
        if is_class_property(found):
            return tx.outside.wrap(found.__func__.fget).call(tx, [self.owner], {})
        if isinstance(found, classmethod):
            return MethodValue(tx.outside.wrap(found.__func__), self.owner)
        if isinstance(found, (types.BuiltinFunctionType, *BUILTIN_METHODS)):
            return StaticValue(found)
        if isinstance(found, types.ClassMethodDescriptorType):  # object.__init_subclass__
            return BoundBuiltinValue(found, self.owner)
        raise Unsupported("unsupported attribute", f"super().{name} of a class")

    def reconstruct(self, emit: Emitter) -> None:
        emit.call_object(super, [StaticValue(self.after), self.owner])


class BoundBuiltinValue(Value):
    """A method of a builtin class bound to an object of a user's class, such as ``super().__setitem__``."""

    always_true = True

    def __init__(self, descriptor: Any, owner: Value) -> None:
        self.descriptor = descriptor
        self.owner = owner

    def __repr__(self) -> str:
        return f"{self.owner}.{self.descriptor.__name__}"

    def python_type(self) -> type:
        is_slot = isinstance(self.descriptor, types.WrapperDescriptorType)
        return types.MethodWrapperType if is_slot else types.BuiltinMethodType

    def call(self, tx: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        return StaticValue(self.descriptor).call(tx, [self.owner, *args], kwargs)

    def reconstruct(self, emit: Emitter) -> None:
        emit.call_object(self.descriptor.__get__, [self.owner])


def member_attribute(tx: Interpreter, member: ConstantValue, name: str) -> Value:
    """Returns an attribute of a member.  Methods and properties that its class defines in Python are captured."""
    obj = member.constant(tx)
    found = lookup_in_mro(type(obj), name)
    function = found.fget if isinstance(found, property) else found
    if isinstance(function, types.FunctionType) and name not in vars(obj):
        guard_class_attribute(tx, type(obj), name, found)
        inlined = FunctionValue.from_outside(tx.outside, function, None)
        return inlined.call(tx, [member], {}) if isinstance(found, property) else MethodValue(inlined, member)
    try:
        value: Any = getattr(obj, name)
    except AttributeError:
        raise observed_exception(AttributeError, f"{type(obj).__name__!r} object has no attribute {name!r}") from None
    if is_atom(value):
        return ConstantValue(value)
    if isinstance(value, (types.BuiltinMethodType, types.MethodWrapperType)) and not isinstance(found, enum.property):
        return NamedMethodValue(member, name)
    return tx.outside.wrap(value)
