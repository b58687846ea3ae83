"""The base class of symbolic values, and exceptions that captured code observes.

There is one subclass of `Value` for each kind of object.  An operation that a class does not define raises
`Unsupported`, which becomes a graph break, so a missing case costs a break and never gives a wrong result.

A value with a `source` is an object from outside the frame.  Before capture depends on such an object, it calls
`install_guards`, which adds the guards under which the compiled code may be used again.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
import types
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.errors import Unsupported
from compiler_core.guards.lifetimes import WeakBox, is_library, is_python_class, module_of, weak_cache
from compiler_core.guards.sources import AttrSource, class_entry, entry_of_class
from compiler_core.support.texts import safe_repr

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.guards.sources import Source


class ObservedException(Unsupported):
    """The program raises `exception` here.

    A handler in captured code may catch it.  If there is none, the graph breaks and Python raises it again.  All that
    led to the exception must be guarded.  Where that is impossible, or the type or message is unknown, raise
    ``Unsupported("exception", ...)`` instead, which no captured handler catches.
    """

    def __init__(self, exception: Value, has_context: bool = False) -> None:
        super().__init__("exception", str(exception))
        self.exception = exception
        """A `NewException` until something needs the value; `values/user/exceptions.py` makes it."""
        self.has_context = has_context
        """Whether the ``__context__`` of the exception is already set, so that raising it again leaves it alone."""

    def matches(self, cls: type[BaseException]) -> bool:
        return issubclass(self.exception.python_type(), cls)


def observed_exception(cls: type[BaseException], *args: Any) -> ObservedException:
    """Returns what to raise where Python raises ``cls(*args)``.  The arguments are values or Python constants."""
    return ObservedException(NewException(cls, args))


@contextmanager
def type_errors_left_to_python(what: str) -> Iterator[None]:
    """Context manager for an operation that says in its own words that it cannot take a value: the graph breaks where
    the program raises a TypeError, and Python raises it."""
    try:
        yield
    except ObservedException as error:
        if not error.matches(TypeError):
            raise
        raise Unsupported("exception", what) from None


def check_keywords(function: Any, names: Collection[str]) -> None:
    """Raises Unsupported if a function of C does not take arguments by these names, as its signature says."""
    taken = _keywords_of(function) if names else None
    if taken is not None and not taken.issuperset(names):
        raise Unsupported("exception", f"{function.__qualname__}() with an unexpected keyword argument")


@functools.cache
def _keywords_of(function: Any) -> frozenset[str] | None:
    """Returns the names of the arguments that a function takes by name; None if that is not known, or it takes any."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        is_method = isinstance(function, types.MethodDescriptorType) and function.__name__ != "update"
        return frozenset() if is_method else None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))


class Value:
    """A symbolic value.  `source` is None for an object that the frame made."""

    source: Source | None = None
    cls: Any = None
    """The type of the object, where it is known: of all values of a class, or of this one."""
    always_true = False
    """Whether ``bool(self)`` is True, because the type has neither ``__bool__`` nor ``__len__``."""

    def python_type(self) -> type:
        """Returns the type that ``type(x)`` would give; raises Unsupported if it is not known."""
        if self.cls is None:
            raise Unsupported("unsupported operation", f"the type of {self} is not known")
        found: type = self.cls
        return found

    def install_guards(self, tx: Interpreter) -> None:
        """Adds the guards on what this value is.  Called once something depends on it."""

    def guard_type(self, tx: Interpreter) -> None:
        """Adds the guards on what type this value has.  Called once something depends on that alone."""
        self.install_guards(tx)

    def constant(self, tx: Interpreter) -> Any:
        """Returns the Python object, with a guard on it; raises Unsupported if it is not a constant at capture."""
        raise Unsupported("unsupported operation", f"{self} is not a constant")

    def is_constant(self) -> bool:
        return False

    def truth(self, tx: Interpreter) -> bool:
        """``bool(self)``."""
        if self.always_true:
            return True
        raise Unsupported("unsupported operation", f"truth of {self}")

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        raise Unsupported("unsupported attribute", f"{self}.{name}")

    def special_method(self, tx: Interpreter, name: str) -> Value | None:
        """Returns the bound special method `name` if a class of the user's defines it in Python, else None."""
        return None

    def set_attr(self, tx: Interpreter, name: str, value: Value) -> None:
        raise Unsupported("unsupported mutation", f"{self}.{name} = ...")

    def del_attr(self, tx: Interpreter, name: str) -> None:
        raise Unsupported("unsupported mutation", f"del {self}.{name}")

    def call(self, tx: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        """``self(*args, **kwargs)``."""
        forwarded = self.forwarded_call(tx, args, kwargs)
        if forwarded is None:
            raise Unsupported("unsupported call", str(self))
        function, inner_args, inner_kwargs = forwarded
        return function.call(tx, inner_args, inner_kwargs)

    def forwarded_call(self, tx: Interpreter, args: Args, kwargs: Kwargs) -> Call | None:
        """Returns (function, args, kwargs) if a call of this value is only a call of `function`, else None.

        A graph break inside a forwarded call can be resumed inside it.
        """
        return None

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        raise Unsupported("unsupported operation", f"{self}[...]")

    def set_item(self, tx: Interpreter, key: Value, value: Value) -> None:
        raise Unsupported("unsupported mutation", f"{self}[...] = ...")

    def del_item(self, tx: Interpreter, key: Value) -> None:
        raise Unsupported("unsupported mutation", f"del {self}[...]")

    def contains(self, tx: Interpreter, item: Value) -> bool:
        raise Unsupported("unsupported operation", f"... in {self}")

    def length(self, tx: Interpreter) -> int:
        raise Unsupported("unsupported operation", f"len of {self}")

    def unpack(self, tx: Interpreter) -> list[Value]:
        """Returns all values that iterating over it yields; raises Unsupported if they are not known at capture."""
        raise Unsupported("unsupported iteration", str(self))

    def iterate(self, tx: Interpreter) -> Value:
        """``iter(self)``."""
        return tx.new_iterator(self.unpack(tx))

    def next_value(self, tx: Interpreter) -> Value | None:
        """``next(self)``, or None at the end."""
        raise Unsupported("unsupported iteration", f"next of {self}")

    def next_or_stop(self, tx: Interpreter) -> Value:
        """``next(self)``, which raises StopIteration at the end."""
        found = self.next_value(tx)
        if found is None:
            raise self.stop_iteration(tx)
        return found

    def stop_iteration(self, tx: Interpreter) -> ObservedException:
        """Returns the StopIteration that ends this iterator."""
        result = self.return_value()
        return observed_exception(StopIteration, *([] if result is None or tx.is_none(result) else [result]))

    def return_value(self) -> Value | None:
        """Returns the value of ``yield from self`` after the iterator has ended, or None if that is Python's None."""
        return None

    def same_object(self, other: Value) -> bool:
        """``self is other``.  There is one value for each outside object, so the identity of values decides."""
        return self is other

    def as_key(self, tx: Interpreter) -> Any:
        """Returns the key that represents the value in a dict or set; raises TypeError as ``hash`` does."""
        raw = self.constant(tx)
        try:
            hash(raw)
        except TypeError as error:
            raise observed_exception(TypeError, str(error)) from None
        return raw

    def mapping_pairs(self, tx: Interpreter) -> Iterator[tuple[Any, Value]] | None:
        """Returns the keys and values of ``dict(self)`` if it has ``keys()``, else None."""
        return None

    def reconstruct(self, emit: Emitter) -> None:
        """Emits bytecode that pushes an equal new object.  Called only for values without a source.

        The values that it pushes are those that are needed after the graph (`rebuilt_from`).
        """
        raise Unsupported("unsupported operation", f"{self} cannot be reconstructed after a graph break")

    def __repr__(self) -> str:
        return f"{type(self).__name__.removesuffix('Value').lower()}"


Args = Sequence[Value]
Kwargs = dict[str, Value]
Call = tuple[Value, list[Value], Kwargs]
"""A function with the arguments with which it is called."""


class OutsideValue(Value):
    """An object from outside that is guarded by its type; it can be passed on, and what else a subclass says."""

    def __init__(self, real: Any, source: Source) -> None:
        self.real = real
        self.source = source

    def python_type(self) -> type:
        return type(self.real)

    def install_guards(self, tx: Interpreter) -> None:
        tx.guards.add("TYPE_MATCH", self.source, self.real)


_LOCKS = (type(threading.Lock()), type(threading.RLock()))


def is_lock(value: Value) -> bool:
    """Whether a value is a lock from outside, which other threads may hold."""
    return isinstance(value, OutsideValue) and type(value.real) in _LOCKS


class NewException(Value):
    """Stands for ``cls(*args)``, an exception that Python would raise; the arguments are values or Python constants."""

    def __init__(self, cls: type[BaseException], args: Sequence[Any]) -> None:
        self.cls = cls
        self.args = args

    def __repr__(self) -> str:
        shown = [str(a) if isinstance(a, Value) else safe_repr(a) for a in self.args]
        return f"{self.cls.__name__}: {', '.join(shown)}".removesuffix(": ")


def constants(tx: Interpreter, args: Iterable[Value], kwargs: Mapping[str, Value]) -> tuple[list[Any], dict[str, Any]]:
    """Returns the arguments of a call as Python constants."""
    return [a.constant(tx) for a in args], {k: v.constant(tx) for k, v in kwargs.items()}


def to_index(tx: Interpreter, value: Value) -> Value:
    """``operator.index(value)`` for an object of the user's; other values are returned unchanged."""
    method = value.special_method(tx, "__index__")
    if method is None:
        return value
    result = method.call(tx, [], {})
    kind = result.python_type()
    if not issubclass(kind, int):
        raise observed_exception(TypeError, f"__index__ returned non-int (type {kind.__name__})")
    if kind is not int:
        raise Unsupported(
            "unsupported operation", f"an __index__ that returns a {kind.__name__}, of which Python warns"
        )
    return result


class NullValue(Value):
    """CPython's NULL on the stack."""

    def reconstruct(self, emit: Emitter) -> None:
        emit.push_null()


NULL = NullValue()


class UnboundValue(Value):
    """Stands for a local, cell or attribute that has no value: deleted, or not yet assigned."""


UNBOUND = UnboundValue()


class NamedMethodValue(Value):
    """A bound method of a value that has ``call_method``, such as a tensor, container or constant."""

    always_true = True
    cls = types.BuiltinMethodType

    def __init__(self, owner: Any, name: str) -> None:
        self.owner = owner
        self.name = name

    def __repr__(self) -> str:
        return f"{self.owner}.{self.name}"

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if name == "__self__":
            assert isinstance(self.owner, Value)
            return self.owner
        return super().get_attr(tx, name)

    def call(self, tx: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        found: Value = self.owner.call_method(tx, self.name, list(args), kwargs)
        return found

    def reconstruct(self, emit: Emitter) -> None:
        emit.value(self.owner)
        emit.load_attr(self.name)


# ---------------------------------------------------------------- facts about classes
#
# Which are plain Python, and guards on their attributes, which may change between calls.


ABSENT: Any = object()


def lookup_in_mro(cls: type, name: str) -> Any:
    """Returns the entry `name` of `cls` or of the first of its bases that has it, or ABSENT, not of a metaclass."""
    return class_entry(cls, name, ABSENT)


def missing_attribute(cls: type, name: str) -> ObservedException:
    """Returns what to raise where an instance of `cls` has no attribute of this name; classes of C are named with their
    module."""
    is_of_module = not is_python_class(cls) and cls.__module__ != "builtins"
    shown = f"{cls.__module__}.{cls.__name__}" if is_of_module else cls.__name__
    return observed_exception(AttributeError, f"{shown!r} object has no attribute {name!r}")


def is_data_descriptor(obj: Any) -> bool:
    """Returns whether `obj`, found in a class, comes before the entry of an instance's ``__dict__``."""
    return hasattr(type(obj), "__set__") or hasattr(type(obj), "__delete__")


def is_descriptor(obj: Any) -> bool:
    """Returns whether reading an attribute calls the ``__get__`` of `obj`, which was found in a class."""
    return hasattr(type(obj), "__get__")


def is_of_pytorch(function: types.FunctionType) -> bool:
    """Whether the code is PyTorch's.  ``__module__`` does not show it: functools.wraps copies it."""
    return function.__code__.co_filename.startswith(_TORCH)


_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep


_CODE_OF_CLASSES = (
    types.FunctionType,
    property,
    staticmethod,
    classmethod,
    functools._lru_cache_wrapper,
    functools.cached_property,
)


@weak_cache
def is_plain_class(cls: Any) -> bool:
    """Whether `cls` and all its bases except object and Generic were made by class statements."""
    return cls is not object and all(is_python_class(c) or c in (object, typing.Generic) for c in cls.__mro__)


def is_class_property(found: Any) -> bool:
    """Whether a read of this entry of a class calls the getter of a property with the class (until Python 3.12)."""
    inside: Any = found.__func__ if isinstance(found, classmethod) else None
    return sys.version_info < (3, 13) and type(inside) is property and isinstance(inside.fget, types.FunctionType)


def guard_class_attribute(tx: Interpreter, cls: type, name: str, found: Any) -> None:
    """Guards a function, property or the like that was found as an attribute of a class; it may be replaced.

    Constants are guarded on their value instead.
    """
    if is_library(module_of(cls)):
        tx.guards.add_class_names(cls, name)
    elif isinstance(found, _CODE_OF_CLASSES):
        held = tx.guards.held(cls, cls.__qualname__)
        if isinstance(found, classmethod) and isinstance(found.__func__, types.FunctionType):
            tx.guards.add("ID_MATCH", AttrSource(AttrSource(held, name), "__func__"), found.__func__)
        elif isinstance(found, classmethod):
            if not is_class_property(found):
                raise Unsupported(
                    "unsupported attribute", f"{name}, a classmethod of a {type(found.__func__).__name__}"
                )
            inside: Any = found.__func__
            entry = entry_of_class(held, name)
            tx.guards.add("TYPE_MATCH", entry, found)
            tx.guards.add("TYPE_MATCH", AttrSource(entry, "__func__"), inside)
            tx.guards.add("ID_MATCH", AttrSource(AttrSource(entry, "__func__"), "fget"), inside.fget)
        elif type(found) is property and isinstance(held.box, WeakBox):
            # there are no weak references to properties, and the property's functions may refer to the class
            tx.guards.add("TYPE_MATCH", AttrSource(held, name), found)
            for accessor in ("fget", "fset", "fdel"):
                tx.guards.add("ID_MATCH", AttrSource(AttrSource(held, name), accessor), getattr(found, accessor))
        else:
            tx.guards.add("ID_MATCH", AttrSource(held, name), getattr(cls, name))


_GENERIC_SETATTR = (object.__setattr__, BaseException.__setattr__, threading.local.__setattr__)


@weak_cache
def has_custom_setattr(cls: type) -> bool:
    """Whether `cls` overrides ``__setattr__`` of object, or of a builtin class where it does the same."""
    return class_entry(cls, "__setattr__") not in _GENERIC_SETATTR
