"""Rules for the standard library: `operator` with its getters, dataclasses, inspect, logging, singledispatch."""

from __future__ import annotations

import collections
import dataclasses
import functools
import inspect
import logging
import operator
import types
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from compiler_core.capture.rules.python.operators import binary
from compiler_core.capture.rules.table import add_rules, handles, handles_each
from compiler_core.capture.values.base import (
    Args,
    Kwargs,
    NamedMethodValue,
    Value,
    constants,
    lookup_in_mro,
    observed_exception,
)
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue, errors_of_program
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.sequences import TupleValue
from compiler_core.capture.values.builtin.static import StaticValue, from_python
from compiler_core.capture.values.contexts import CatchWarningsValue
from compiler_core.capture.values.user.functions import FunctionValue, MethodValue
from compiler_core.capture.values.user.objects import NamespaceValue, ObjectValue
from compiler_core.errors import Unsupported
from compiler_core.guards.lifetimes import is_library, module_of
from compiler_core.guards.sources import AttrSource, GetItemSource

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.guards.sources import Source


class GetterValue(Value):
    """An ``operator.itemgetter``, ``attrgetter`` or ``methodcaller``."""

    always_true = True

    def __init__(self, cls: Any, args: Args, kwargs: Kwargs, source: Source | None = None, real: Any = None) -> None:
        self.cls = cls
        self.args = list(args)
        self.kwargs = kwargs
        self.source = source
        self.real = real

    @classmethod
    def from_outside(cls, obj: Any, source: Source) -> GetterValue:
        """Returns the value of a getter from outside, which is immutable and guarded by its identity."""
        factory, args = obj.__reduce__()[:2]
        kwargs: dict[str, Any] = {}
        if type(obj) is operator.methodcaller and factory is not operator.methodcaller:  # with keywords: a partial
            kwargs, args = factory.keywords, (*factory.args, *args)
        named = {k: from_python(v) for k, v in kwargs.items()}
        return cls(type(obj), [from_python(a) for a in args], named, source, obj)

    def install_guards(self, tx: Interpreter) -> None:
        tx.guards.add("ID_MATCH", self.source, self.real)

    def call(self, tx: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        self.install_guards(tx)
        if len(args) != 1 or kwargs:
            raise observed_exception(TypeError, f"{self.cls.__name__} expected 1 argument, got {len(args)}")
        if self.cls is operator.methodcaller:
            name, *rest = self.args
            return args[0].get_attr(tx, name.constant(tx)).call(tx, rest, self.kwargs)
        get = _item if self.cls is operator.itemgetter else _attribute
        found = [get(tx, args[0], a) for a in self.args]
        return found[0] if len(found) == 1 else TupleValue(found)

    def reconstruct(self, emit: Any) -> None:
        emit.call_object(self.cls, self.args, self.kwargs)


def _item(tx: Interpreter, obj: Value, key: Value) -> Value:
    return obj.get_item(tx, key)


def _attribute(tx: Interpreter, obj: Value, path: Value) -> Value:
    for name in path.constant(tx).split("."):
        obj = obj.get_attr(tx, name)
    return obj


@handles_each(operator.itemgetter, operator.attrgetter, operator.methodcaller)
def _make(cls: Any, tx: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
    if not args or (kwargs and cls is not operator.methodcaller):
        raise observed_exception(TypeError, f"{cls.__name__} expected at least 1 argument, got 0")
    return GetterValue(cls, args, kwargs)


@handles(operator.setitem)
def _setitem(tx: Interpreter, obj: Value, key: Value, value: Value) -> Value:
    obj.set_item(tx, key, value)
    return NONE


@handles(operator.delitem)
def _delitem(tx: Interpreter, obj: Value, key: Value) -> Value:
    obj.del_item(tx, key)
    return NONE


@handles(operator.indexOf)
def _index_of(tx: Interpreter, obj: Value, item: Value) -> Value:
    values = tx.list_of(obj)
    for i, value in enumerate(values):
        if tx.is_same_or_equal(value, item):
            return ConstantValue(i)
    raise observed_exception(ValueError, "sequence.index(x): x not in sequence")


def _class_of(tx: Interpreter, value: Value) -> Any:
    """Returns a class itself, or the class of an instance."""
    value.install_guards(tx)
    return value.obj if isinstance(value, StaticValue) and isinstance(value.obj, type) else value.python_type()


@handles(dataclasses.fields)
def _fields(tx: Interpreter, obj: Value) -> Value:
    cls: Any = _class_of(tx, obj)
    if not hasattr(cls, "__dataclass_fields__"):
        raise Unsupported("exception", "must be called with a dataclass type or instance")
    if not is_library(module_of(cls)):
        table = AttrSource(tx.guards.held(cls, cls.__qualname__), "__dataclass_fields__")
        tx.guards.add("ID_MATCH", table, cls.__dataclass_fields__)
    return TupleValue([StaticValue(f) for f in dataclasses.fields(cls)])


@handles(inspect.signature)
def _signature(tx: Interpreter, fn: Value) -> Value:
    fn.install_guards(tx)
    return SignatureValue(inspect.signature(_real_callable(fn)))


def _real_callable(fn: Value) -> Any:
    if isinstance(fn, FunctionValue) and fn.fn is not None:
        return fn.fn
    if isinstance(fn, FunctionValue) and not fn.special_attributes and not fn.stored:
        return fn.with_parameters()
    if isinstance(fn, StaticValue) and isinstance(fn.obj, type):
        return fn.obj
    if isinstance(fn, MethodValue):
        return types.MethodType(_real_callable(fn.function), fn)  # bound to anything
    raise Unsupported("unsupported call", f"inspect.signature({fn})")


class ParameterValue(StaticValue):
    """An ``inspect.Parameter``."""

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if name == "default" and isinstance(self.obj.default, Value):  # of a function that the frame made
            return self.obj.default
        if self.source is not None and name in ("default", "annotation"):
            self.install_guards(tx)
            return tx.outside.wrap(getattr(self.obj, name), AttrSource(self.source, name))
        return super().get_attr(tx, name)


class BoundArgumentsValue(Value):
    """The result of ``signature.bind(...)``, which keeps values where Python's object has objects."""

    always_true = True
    cls = inspect.BoundArguments

    def __init__(self, bound: inspect.BoundArguments) -> None:
        self.signature = bound.signature
        parameters = self.signature.parameters
        self.arguments = DictValue({k: _argument(parameters[k], v) for k, v in bound.arguments.items()})

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if name == "arguments":
            return self.arguments
        if name == "signature":
            return SignatureValue(self.signature)
        if name == "args":
            return TupleValue([*self._bound(tx).args])
        if name == "kwargs":
            return DictValue(self._bound(tx).kwargs)
        if name == "apply_defaults":
            return NamedMethodValue(self, name)
        return super().get_attr(tx, name)

    def _bound(self, tx: Interpreter) -> inspect.BoundArguments:
        given: dict[str, Any] = {}
        for name, value in self.arguments.mapping(tx).items():
            kind = self.signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                given[name] = tuple(value.unpack(tx))
            elif kind is inspect.Parameter.VAR_KEYWORD and isinstance(value, DictValue):
                given[name] = dict(value.mapping(tx))
            else:
                given[name] = value
        return inspect.BoundArguments(self.signature, given)

    def call_method(self, tx: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        """``apply_defaults()``"""
        bound = self._bound(tx)
        given = set(bound.arguments)
        bound.apply_defaults()
        found: dict[Any, Value] = {}
        for key, value in bound.arguments.items():
            is_outside = key not in given and not isinstance(value, Value) and value not in ((), {})
            parameter = self.signature.parameters[key]
            found[key] = tx.outside.wrap(value) if is_outside else _argument(parameter, value)
        self.arguments = DictValue(found)
        return NONE


def _argument(parameter: inspect.Parameter, given: Any) -> Value:
    """Returns the value that ``BoundArguments.arguments`` has for a parameter."""
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return TupleValue([*given])
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return DictValue(dict(given))
    assert isinstance(given, Value)
    return given


class SignatureValue(Value):
    """An ``inspect.Signature``, whose parameters can be read, and bound to arguments."""

    always_true = True
    cls = inspect.Signature

    def __init__(self, signature: inspect.Signature, source: Source | None = None) -> None:
        self.signature = signature
        self.source = source

    def install_guards(self, tx: Interpreter) -> None:
        tx.guards.add("ID_MATCH", self.source, self.signature)

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        self.install_guards(tx)
        if name == "parameters":
            place = None if self.source is None else AttrSource(self.source, name)
            parameters: dict[Any, Value] = {
                k: ParameterValue(p, None if place is None else GetItemSource(place, k))
                for k, p in self.signature.parameters.items()
            }
            return DictValue(parameters, types.MappingProxyType, place, self.signature.parameters)
        if name in ("bind", "bind_partial"):
            return NamedMethodValue(self, name)
        return super().get_attr(tx, name)

    def call_method(self, tx: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        """``bind(...)`` and ``bind_partial(...)``"""
        self.install_guards(tx)
        with errors_of_program(TypeError):
            bound = getattr(self.signature, name)(*args, **kwargs)
        return BoundArgumentsValue(bound)


@handles(collections._count_elements)  # type: ignore[attr-defined]
def _count_elements(tx: Interpreter, mapping: Value, iterable: Value) -> Value:
    """Counts the items of an iterable; `collections.Counter` calls it."""
    for item in tx.list_of(iterable):
        count = mapping.get_attr(tx, "get").call(tx, [item, ConstantValue(0)], {})
        mapping.set_item(tx, item, ConstantValue(count.constant(tx) + 1))
    return NONE


@handles(types.SimpleNamespace)
def _namespace(tx: Interpreter, /, *args: Value, **kwargs: Value) -> Value:
    if args:
        raise observed_exception(TypeError, "no positional arguments expected")
    namespace = NamespaceValue()
    namespace.stored.update(kwargs)
    return namespace


# ---------------------------------------------------------------- loggers
#
# Calls of loggers whose level is off do nothing, and a guard asks the logger at each call.


_LEVELS: dict[Any, int] = {
    logging.Logger.debug: logging.DEBUG,
    logging.Logger.info: logging.INFO,
    logging.Logger.warning: logging.WARNING,
    logging.Logger.error: logging.ERROR,
    logging.Logger.critical: logging.CRITICAL,
}


@handles_each(*_LEVELS)
def _log(fn: Any, tx: Interpreter, logger: Value, msg: Value, /, *args: Value, **kwargs: Value) -> Value:
    if _is_enabled(tx, logger, _LEVELS[fn]) is False:
        return NONE
    raise Unsupported("print", f"{fn.__qualname__}, part of the standard library")


@handles(logging.Logger.isEnabledFor)
def _is_enabled_for(tx: Interpreter, logger: Value, level: Value) -> Value:
    enabled = _is_enabled(tx, logger, level.constant(tx))
    if enabled is None:
        raise Unsupported("unsupported call", f"isEnabledFor of {logger}")
    return ConstantValue(enabled)


def _is_enabled(tx: Interpreter, logger: Value, level: int) -> bool | None:
    """Asks a logger, with a guard, whether it is enabled for a level; None for a logger with another answer."""
    if not isinstance(logger, ObjectValue) or logger.source is None or logger.stored:
        return None
    real = logger.real
    if type(real).isEnabledFor is not logging.Logger.isEnabledFor:
        return None
    logger.install_guards(tx)
    tx.guards.add("ID_MATCH", logger.source, real)
    query = tx.guards.held(_query(real, level), f"getLogger({real.name!r}).isEnabledFor({level})")
    enabled: bool = real.isEnabledFor(level)
    tx.guards.add("RETURNS", query, enabled)
    return enabled


@functools.lru_cache(256)  # so that the calls of a frame share a guard
def _query(logger: logging.Logger, level: int) -> functools.partial[bool]:
    """Returns what asks a logger whether it is enabled for a level."""
    return functools.partial(logger.isEnabledFor, level)


# ---------------------------------------------------------------- functools.singledispatch
#
# The class of an argument decides which implementation is called.
#
# Python asks a cache with weak keys first, which a graph cannot hold.  The choice follows from the classes that are
# registered, which are guarded; the cache is left as it is.


_PLAIN_CHECK = vars(type)["__subclasscheck__"]
_DISPATCH = functools.singledispatch(lambda _: None).dispatch.__code__


def dispatched(tx: Interpreter, function: FunctionValue, args: list[Value]) -> Value | None:
    """Returns the implementation that ``dispatch`` of such a function chooses for a class; None if `function` is
    another, or if a class may be a virtual subclass of one that is registered."""
    if function.code is not _DISPATCH or len(args) != 1:
        return None
    cells = dict(zip(function.code.co_freevars, function.closure, strict=True))
    registry, cls = cells["registry"].get(tx), args[0].constant(tx)
    is_virtual = not tx.is_none(cells["cache_token"].get(tx))
    if is_virtual or not isinstance(cls, type) or not isinstance(registry, DictValue):
        return None
    implementations = registry.mapping(tx)
    if any(lookup_in_mro(type(each), "__subclasscheck__") is not _PLAIN_CHECK for each in implementations):
        return None
    try:
        return implementations[_chosen(cls, implementations)]
    except RuntimeError:  # two classes are as near
        return None


def _chosen(cls: type, classes: Iterable[type]) -> type:
    """Returns the one of these classes that is chosen for `cls`."""
    chooser: Any = functools.singledispatch(lambda _: None)
    made = {chooser.register(each, functools.partial(lambda _: None)): each for each in classes}
    return made[chooser.dispatch(cls)]


add_rules(
    {
        operator.truth: lambda tx, obj: ConstantValue(obj.truth(tx)),
        operator.is_not: lambda tx, left, right: ConstantValue(not tx.is_same(left, right)),
        operator.concat: lambda tx, left, right: binary(operator.add, tx, left, right),
        operator.countOf: lambda tx, obj, item: ConstantValue(
            sum(tx.is_same_or_equal(v, item) for v in tx.list_of(obj))
        ),
        operator.call: lambda tx, obj, /, *args, **kwargs: obj.call(tx, args, kwargs),
    }
)


# ---------------------------------------------------------------- warnings

_ACTIONS = ("ignore", "default", "always", "module", "once")
"""The actions of filters that raise nothing."""


@handles(warnings.catch_warnings)
def _catch_warnings(tx: Interpreter, **kwargs: Value) -> Value:
    settings = constants(tx, (), kwargs)[1]
    if settings.get("module") is not None:
        raise Unsupported("skipped function", "warnings.catch_warnings() of a module")
    of_filter = {name: value for name, value in settings.items() if name not in ("record", "module")}
    on_entry = None if of_filter.get("action") is None else _filter(warnings.simplefilter, [], of_filter)
    return CatchWarningsValue(settings, on_entry)


@handles_each(warnings.simplefilter, warnings.filterwarnings)
def _set_filter(function: Any, tx: Interpreter, *args: Value, **kwargs: Value) -> Value:
    filters = tx.graph.warnings.filters
    if filters is None:
        raise Unsupported("skipped function", f"warnings.{function.__name__}, part of the standard library")
    filters.append(_filter(function, *constants(tx, args, kwargs)))
    return NONE


def _filter(function: Any, args: list[Any], kwargs: dict[str, Any]) -> functools.partial[None]:
    """Returns a call of `warnings` that sets a filter, with the action first, if Python takes its arguments."""
    action = args[0] if args else kwargs.pop("action", None)
    if action not in _ACTIONS:
        raise Unsupported("skipped function", f"warnings.{function.__name__}({action!r})")
    call = functools.partial(function, action, *args[1:], **kwargs)
    try:
        with warnings.catch_warnings():
            call()
    except Exception as error:
        raise Unsupported("exception", f"{type(error).__name__}: {error}") from None
    return call
