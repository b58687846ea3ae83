"""Rules for the `operator` module: its functions, and the callables that it makes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.capture.rules.python.operators import binary
from compiler_core.capture.rules.table import handles, handles_each
from compiler_core.capture.values.base import Value, observed_exception
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue, from_python
from compiler_core.capture.values.builtin.sequences import TupleValue

if TYPE_CHECKING:
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.guards.sources import Source


class GetterValue(Value):
    """An ``operator.itemgetter``, ``attrgetter`` or ``methodcaller``."""

    def __init__(
        self, cls: Any, args: Sequence[Value], kwargs: dict[str, Value], source: Source | None = None, real: Any = None
    ) -> None:
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

    def python_type(self) -> type:
        found: type = self.cls
        return found

    def install_guards(self, tx: Interpreter) -> None:
        if self.source is not None:
            tx.capture.guards.add("ID_MATCH", self.source, self.real)

    def truth(self, tx: Interpreter) -> bool:
        return True

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        self.install_guards(tx)
        if len(args) != 1 or kwargs:
            raise observed_exception(TypeError, f"{self.cls.__name__} expected 1 argument, got {len(args)}")
        if self.cls is operator.methodcaller:
            name, *rest = self.args
            return args[0].get_attr(tx, name.constant(tx)).call(tx, rest, self.kwargs)
        get = _item if self.cls is operator.itemgetter else _attribute
        found = [get(tx, args[0], a) for a in self.args]
        return found[0] if len(found) == 1 else TupleValue(found)

    def children(self) -> Sequence[Value]:
        return [*self.args, *self.kwargs.values()]

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


@handles(operator.truth)
def _truth(tx: Interpreter, obj: Value) -> Value:
    return ConstantValue(obj.truth(tx))


@handles(operator.is_not)
def _is_not(tx: Interpreter, left: Value, right: Value) -> Value:
    return ConstantValue(not tx.is_same(left, right))


@handles(operator.setitem)
def _setitem(tx: Interpreter, obj: Value, key: Value, value: Value) -> Value:
    obj.set_item(tx, key, value)
    return NONE


@handles(operator.delitem)
def _delitem(tx: Interpreter, obj: Value, key: Value) -> Value:
    obj.del_item(tx, key)
    return NONE


@handles(operator.concat)
def _concat(tx: Interpreter, left: Value, right: Value) -> Value:
    return binary(operator.add, tx, left, right)


@handles(operator.countOf)
def _count_of(tx: Interpreter, obj: Value, item: Value) -> Value:
    return ConstantValue(sum(tx.is_same_or_equal(v, item) for v in tx.list_of(obj)))


@handles(operator.call)
def _call(tx: Interpreter, obj: Value, /, *args: Value, **kwargs: Value) -> Value:
    return obj.call(tx, args, kwargs)
