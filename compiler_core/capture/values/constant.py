"""Python constants: numbers, strings, None, dtypes, devices and the like."""

from __future__ import annotations

import enum
import operator
import sys
import types
import typing
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.values.base import Value, index_of, raised
from compiler_core.errors import Unsupported
from compiler_core.guards.constants import NUMPY_NUMBERS
from compiler_core.guards.sources import Constant
from compiler_core.support.safe_repr import shown

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.guards.sources import Source

ATOMS = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis), type(NotImplemented))
TORCH_ATOMS = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.finfo, torch.iinfo)


def is_a(obj: Any, classes: Any) -> bool:
    """``isinstance(obj, classes)``, whatever an object of the user's, such as a mock, says that its class is."""
    return issubclass(type(obj), classes)


def is_atom(obj: Any) -> bool:
    """Whether `obj` is immutable, compares by value and may stand in a graph or a code object."""
    return type(obj) in ATOMS or is_a(obj, (*TORCH_ATOMS, *NUMPY_NUMBERS, enum.Enum))


class ConstantValue(Value):
    """A constant.  One from outside is guarded when something first depends on it, so that a
    loop counter that is only passed on costs no recompile."""

    def __init__(self, value: Any, source: Source | None = None) -> None:
        self.value = value
        self.source = source

    def __repr__(self) -> str:
        return shown(self.value)

    def python_type(self) -> type:
        return type(self.value)

    def look(self, tx: Interpreter) -> None:
        if self.source is not None:
            tx.capture.guard("EQUALS_MATCH", self.source, self.value)

    def is_constant(self) -> bool:
        return True

    def constant(self, tx: Interpreter) -> Any:
        self.look(tx)
        return self.value

    def truth(self, tx: Interpreter) -> bool:
        return bool(self.constant(tx))

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        from compiler_core.capture.values.user.functions import MethodOfValue

        obj = self.constant(tx)
        if isinstance(obj, enum.Enum):
            from compiler_core.capture.values.user.enums import member_attribute

            return member_attribute(tx, self, name)
        try:
            found = getattr(obj, name)
        except AttributeError:
            raise raised(AttributeError, f"{type(obj).__name__!r} object has no attribute {name!r}") from None
        if is_atom(found):
            return ConstantValue(found)
        if callable(found):
            return MethodOfValue(self, name)
        raise Unsupported("unsupported attribute", f"{obj!r}.{name}")

    def call_method(self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        obj = self.constant(tx)
        if isinstance(obj, str) and name == "join" and len(args) == 1:
            from compiler_core.capture.values.builtin.sequences import ListValue

            return fold(tx, obj.join, [ListValue(tx.list_of(args[0]))], {})
        if isinstance(obj, str) and name == "format":
            return _formatted(tx, obj, args, kwargs)
        return fold(tx, getattr(obj, name), args, kwargs)

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        return fold(tx, operator.getitem, [self, index_of(tx, key)], {})

    def contains(self, tx: Interpreter, item: Value) -> bool:
        return fold(tx, operator.contains, [self, item], {}).truth(tx)

    def length(self, tx: Interpreter) -> int:
        found: int = fold(tx, len, [self], {}).constant(tx)
        return found

    def items(self, tx: Interpreter) -> list[Value]:
        obj = self.constant(tx)
        if not isinstance(obj, (str, bytes)):
            raise raised(TypeError, f"{type(obj).__name__!r} object is not iterable")
        return [ConstantValue(v) for v in obj]

    def iterate(self, tx: Interpreter) -> Value:
        from compiler_core.capture.values.builtin.iterators import IteratorValue

        return IteratorValue(self.items(tx), self)

    def same_object(self, other: Value) -> bool:
        return isinstance(other, ConstantValue) and self.value is other.value

    def rebuild(self, emit: Emitter) -> None:
        if type(self.value) is str and sys.intern(self.value) is not self.value:
            # of a string that might be a name, code keeps the one that Python keeps for all such
            emit.constant(Constant(self.value))
            emit.load_attr("value")
        else:
            emit.constant(self.value)


NONE = ConstantValue(None)


def _formatted(tx: Interpreter, obj: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    from compiler_core.capture.rules.python.text import shown
    from compiler_core.capture.values.symbols import text

    if not kwargs and (symbolic := text(str.format, tx, ConstantValue(obj), *args)) is not None:
        return symbolic
    return computed(lambda: obj.format(*(shown(tx, a) for a in args), **{k: shown(tx, v) for k, v in kwargs.items()}))


def fold(tx: Interpreter, fn: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """Call `fn`, which has no side effect, on constants."""
    from compiler_core.capture.values.symbols import arithmetic, is_symbolic

    if not kwargs and is_symbolic(args) and (found := arithmetic(fn, tx, args)) is not None:
        return found
    raw = [a.constant(tx) for a in args]
    raw_kwargs = {k: v.constant(tx) for k, v in kwargs.items()}
    return computed(lambda: fn(*raw, **raw_kwargs))


def computed(compute: Callable[[], Any]) -> Value:
    """What Python computes now, or raises."""
    try:
        result = compute()
    except (Unsupported, RecursionError):
        raise
    except Exception as error:
        from compiler_core.capture.values.exceptions import from_error

        raise from_error(error) from None
    return from_python(result)


def from_python(obj: Any) -> Value:
    """A fresh Python object that capture itself computed, as a value."""
    from compiler_core.capture.values.builtin.mappings import DictValue
    from compiler_core.capture.values.builtin.sequences import ListValue, RangeValue, SliceValue, TupleValue
    from compiler_core.capture.values.builtin.sets import SetValue
    from compiler_core.capture.values.static import StaticValue
    from compiler_core.capture.values.symbols import from_number

    if is_atom(obj):
        return ConstantValue(obj)
    if isinstance(obj, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return from_number(obj)
    if type(obj) in (tuple, torch.Size):
        return TupleValue([from_python(v) for v in obj], type(obj))
    if type(obj) is list:
        return ListValue([from_python(v) for v in obj])
    if type(obj) is dict:
        return DictValue({k: from_python(v) for k, v in obj.items()})
    if type(obj) in (types.UnionType, types.GenericAlias) or isinstance(obj, typing._GenericAlias):  # type: ignore[attr-defined]
        return StaticValue(obj)
    if type(obj) in (set, frozenset):
        return SetValue.made(obj)
    if type(obj) is range:
        return RangeValue(obj)
    if type(obj) is slice:
        return SliceValue([from_python(v) for v in (obj.start, obj.stop, obj.step)])
    raise Unsupported("unsupported operation", f"a {type(obj).__name__} made at capture")
