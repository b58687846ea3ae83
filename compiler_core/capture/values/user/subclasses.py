"""Instances of users' subclasses of Python's containers, such as namedtuples and dicts like `ModelOutput`.

Such an object has attributes like any other, and contents: the value of an instance of the builtin class.  Methods
that its class does not define in Python are called on the contents.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import UNBOUND, Value
from compiler_core.capture.values.builtin.constant import NONE
from compiler_core.capture.values.builtin.mappings import CONTAINERS, DictValue, key_value
from compiler_core.capture.values.builtin.sequences import SequenceValue, TupleValue, field_index
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.capture.values.user.object_attributes import BUILTIN_METHODS
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.capture.values.user.super import BoundBuiltinValue
from compiler_core.errors import Unsupported
from compiler_core.guards.lifetimes import is_python_class, weak_cache
from compiler_core.guards.sources import Source

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter


class SubclassValue(ObjectValue):
    """An instance of a subclass, written in Python, of one of `CONTAINERS`."""

    def __init__(
        self, cls: type, contents: SequenceValue | DictValue, real: Any = None, source: Source | None = None
    ) -> None:
        super().__init__(cls, real, source)
        self.contents = contents
        contents.owner = self

    @classmethod
    def from_outside(cls, obj: Any, source: Source) -> SubclassValue:
        obj_class: Any = type(obj)
        base: Any = container_base(obj_class)
        assert base is not None
        return cls(type(obj), CONTAINERS[base](None, base, source, obj), obj, source)

    def special_method(self, tx: Interpreter, name: str) -> Value | None:
        found = inspect.getattr_static(self.cls, name, None)
        return BoundBuiltinValue(found, self) if _of_container(found) else super().special_method(tx, name)

    def _class_attr(self, tx: Interpreter, name: str, found: Any) -> Value:
        return BoundBuiltinValue(found, self) if _of_container(found) else super()._class_attr(tx, name, found)

    def _read_descriptor(self, tx: Interpreter, name: str, descriptor: Any) -> Value | None:
        if getattr(descriptor, "__objclass__", None) in (deque, defaultdict):
            return self.contents.get_attr(tx, name)
        index = field_index(descriptor)
        return super()._read_descriptor(tx, name, descriptor) if index is None else self.contents.unpack(tx)[index]

    def call_builtin(self, tx: Interpreter, descriptor: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        """Calls a method of the builtin class that this class derives from."""
        name, base = descriptor.__name__, self.contents.cls
        if inspect.getattr_static(base, name, None) is not descriptor:
            raise Unsupported("unsupported call", f"{descriptor.__qualname__} of a {self.cls.__name__}")
        if name == "__getitem__" and isinstance(self.contents, DictValue):
            missing = self.special_method(tx, "__missing__")
            if missing is not None and not self.contents.contains(tx, args[0]):
                return missing.call(tx, args, {})
        if base not in (dict, list, tuple) and name in _NEW_INSTANCE_METHODS:
            raise Unsupported("unsupported call", f"{descriptor.__qualname__} of a {self.cls.__name__}")
        if name in ("__or__", "__ror__", "copy"):
            contents_of(self)
        if base is OrderedDict and name not in _CONTENTS_METHODS and not _has_builtin_item_access(self.cls):
            return self._call_ordered_dict(tx, name, args, kwargs)
        return self.contents.call_method(tx, name, list(args), kwargs)

    def _call_ordered_dict(self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
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

    def children(self) -> Sequence[Value]:
        return [*self.contents.children(), *super().children()]

    def reconstruct(self, emit: Emitter) -> None:
        values = {k: v for k, v in self.stored.items() if v is not UNBOUND}
        plain = self.contents.as_builtin()
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
    return base if base in CONTAINERS and base is not cls else None


def make_subclass(cls: type, base: Any, contents: Any, attributes: dict[str, Any]) -> Any:
    """Called by generated code: makes an instance that the frame made."""
    instance = base.__new__(cls, contents) if base is tuple else base.__new__(cls)
    if base is deque:
        base.__init__(instance, contents, contents.maxlen)
    elif base is list:
        base.extend(instance, contents)
    elif base is not tuple:
        for key, value in contents.items():
            base.__setitem__(instance, key, value)
    if base is defaultdict:
        instance.default_factory = contents.default_factory
    for name, value in attributes.items():
        object.__setattr__(instance, name, value)
    return instance


def new_instance(tx: Interpreter, cls: type, args: Sequence[Value]) -> SubclassValue:
    """``base.__new__(cls, *args)``.  Only tuples get their contents from ``__new__``."""
    base: Any = container_base(cls)
    if base is tuple:
        return SubclassValue(cls, TupleValue(list(tx.list_of(args[0])) if args else []))
    empty: Any = {} if issubclass(base, dict) else []
    return SubclassValue(cls, CONTAINERS[base](empty, base))
