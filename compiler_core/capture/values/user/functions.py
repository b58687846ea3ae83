"""Python functions, methods and partials, their attributes, and the cells of closures."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.bytecode import disassemble_cached
from compiler_core.bytecode.flow import reachable
from compiler_core.capture.values.base import (
    ABSENT,
    UNBOUND,
    Args,
    Call,
    Kwargs,
    NamedMethodValue,
    ObservedException,
    Value,
    lookup_in_mro,
    observed_exception,
)
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.sequences import TupleValue
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.errors import CompilerBug, Unsupported
from compiler_core.guards.lifetimes import is_named
from compiler_core.guards.sources import (
    AttrSource,
    Box,
    CellContentsSource,
    ClosureCellSource,
    FreeCellSource,
    GetItemSource,
    LocalSource,
    Source,
)

if TYPE_CHECKING:
    from compiler_core.bytecode import Instruction
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.capture.outside_objects import OutsideObjects


class CellValue(Value):
    """A cell that the frame made, or, with a source, a cell of an outside closure."""

    def __init__(self, contents: Value | None = None, source: Source | None = None, real: Any = None) -> None:
        self._contents = contents
        self.source = source
        self.real = real
        self.users: list[tuple[types.CodeType, str]] = []
        """The code of the functions made with this cell, with the variable's name there."""

    def get(self, tx: Interpreter) -> Value:
        """Returns the contents."""
        if self._contents is None:
            assert self.source is not None
            try:
                obj = self.real.cell_contents
            except ValueError:
                raise Unsupported("exception", "a free variable is used before it is assigned") from None
            self._contents = tx.outside.wrap(obj, self.contents_source())
        if self._contents is UNBOUND:
            raise Unsupported("exception", "a free variable is used before it is assigned")
        return self._contents

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        return self.get(tx) if name == "cell_contents" else super().get_attr(tx, name)

    def is_empty(self) -> bool:
        """Whether the frame left it empty.  For a cell from outside it is not known without a guard."""
        return self._contents is UNBOUND

    @property
    def is_read(self) -> bool:
        """Whether capture has read or written the contents."""
        return self._contents is not None

    def contents_source(self) -> Source:
        assert self.source is not None
        return (
            LocalSource(self.source.name)
            if isinstance(self.source, FreeCellSource)
            else CellContentsSource(self.source)
        )

    def set(self, tx: Interpreter, value: Value) -> None:
        if self.source is not None:
            tx.effects.note_mutation(self)
        self._contents = value

    def is_final(self, tx: Interpreter) -> bool:
        """Whether nothing assigns to it from now on: neither the rest of a frame nor a function that has the cell.

        It is not known of a cell from outside: what made it may assign to it later, as a loop does whose body is
        compiled by itself.
        """
        if self.source is not None:
            return False
        frame: Interpreter | None = tx
        while frame is not None:
            for name in [name for name, cell in frame.cells.items() if cell is self]:
                rest = reachable(frame.instructions, frame.pc - 1)
                if _has_assignment(rest, name) or any(_assigns(code, name) for code in frame.code.co_consts):
                    return False
            frame = frame.parent
        return not any(_assigns(code, name) for code, name in self.users)

    def reconstruct(self, emit: Emitter) -> None:
        emit.new_cell(self)

    @property
    def contents(self) -> Value | None:
        """The contents as far as they are known; None if the cell is empty or was not read."""
        return None if self._contents is UNBOUND else self._contents


def _has_assignment(instructions: Iterable[Instruction], name: str) -> bool:
    return any(each.opname in ("STORE_DEREF", "DELETE_DEREF") and each.argval == name for each in instructions)


def _assigns(code: Any, name: str) -> bool:
    """Whether it is the code of a function that assigns to this free variable, or that has such a function in it."""
    if not isinstance(code, types.CodeType) or name not in code.co_freevars:
        return False
    return _has_assignment(disassemble_cached(code)[0], name) or any(_assigns(each, name) for each in code.co_consts)


RESUMED = ".<resumed>"
"""The suffix of the qualified names of resume functions.  Tracebacks recognise the frame that called one by it."""


class FunctionValue(Value):
    """A Python function: `fn` from outside, or one that the frame made with MAKE_FUNCTION."""

    always_true = True
    cls = types.FunctionType

    def __init__(
        self,
        code: types.CodeType,
        f_globals: dict[str, Any],
        name: str,
        defaults: Sequence[Value] = (),
        kwdefaults: dict[str, Value] | None = None,
        closure: Sequence[CellValue] = (),
        fn: types.FunctionType | None = None,
        source: Source | None = None,
    ) -> None:
        self.code = code
        self.f_globals = f_globals
        self.name = name
        self.defaults = list(defaults)
        self.kwdefaults = dict(kwdefaults or {})
        self.closure = list(closure)
        self.fn = fn
        self.source = source
        self.stored: dict[str, Value] = {}
        """The ``__dict__`` of a function that the frame made."""
        self.special_attributes: dict[str, Value] = {}
        """Other attributes that the frame has set on it, such as ``__name__``."""
        self._annotations: Value | None = None
        """What its ``__annotate__`` returned (since 3.14)."""

    @classmethod
    def from_outside(cls, outside: OutsideObjects, fn: types.FunctionType, source: Source | None) -> FunctionValue:
        """Wraps a function from outside.  `source` is None if the function was found on a guarded class."""
        base = source or outside.guards.held(fn, fn.__qualname__)
        # for a function that is identified by its code (`install_guards`), the next call may have other defaults
        wrap = outside.wrap if source is not None and _is_identified_by_code(fn) else outside.wrap_attribute
        defaults = [
            wrap(d, GetItemSource(AttrSource(base, "__defaults__"), i)) for i, d in enumerate(fn.__defaults__ or ())
        ]
        kwdefaults = {
            k: wrap(d, GetItemSource(AttrSource(base, "__kwdefaults__"), k))
            for k, d in (fn.__kwdefaults__ or {}).items()
        }
        cells = enumerate(zip(fn.__closure__ or (), fn.__code__.co_freevars, strict=True))
        closure = [outside.cell(cell, ClosureCellSource(base, i, name)) for i, (cell, name) in cells]
        return cls(fn.__code__, fn.__globals__, fn.__qualname__, defaults, kwdefaults, closure, fn, source)

    def __repr__(self) -> str:
        return self.name

    def with_parameters(self) -> types.FunctionType:
        """Returns a function with the same parameters, whose defaults are values."""
        cells = tuple(types.CellType() for _ in self.closure)
        made = types.FunctionType(self.code, {}, None, tuple(self.defaults), cells)
        made.__qualname__, made.__kwdefaults__ = self.name, dict(self.kwdefaults)
        return made

    def install_guards(self, tx: Interpreter) -> None:
        if self.source is None or self.fn is None:
            return
        if _is_identified_by_code(self.fn):
            tx.guards.add("TYPE_MATCH", self.source, self.fn)
            tx.guards.add("ID_MATCH", AttrSource(self.source, "__code__"), self.fn.__code__)
            tx.guards.add("ID_MATCH", AttrSource(self.source, "__globals__"), self.fn.__globals__)
        else:
            tx.guards.add("ID_MATCH", self.source, self.fn)

    def constant(self, tx: Interpreter) -> Any:
        if self.fn is None:
            return super().constant(tx)
        tx.guards.add("ID_MATCH", self.source, self.fn)
        return self.fn

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        self.install_guards(tx)
        if name == "__code__":
            return StaticValue(self.code)
        if name == "__class__":
            return StaticValue(types.FunctionType)
        if name == "__get__":
            return NamedMethodValue(self, name)
        if name == "__annotations__" and (annotate := self.special_attributes.get("__annotate__")) is not None:
            if self._annotations is None:
                self._annotations = annotate.call(tx, [ConstantValue(1)], {})
            return self._annotations
        found = self._read_new(name) if self.fn is None else self._read_outside(tx, self.fn, name)
        if found is not None:
            return found
        if lookup_in_mro(types.FunctionType, name) is not ABSENT:
            raise Unsupported("unsupported attribute", f"{self}.{name}")
        raise observed_exception(AttributeError, f"'function' object has no attribute {name!r}")

    def _read_outside(self, tx: Interpreter, fn: types.FunctionType, name: str) -> Value | None:
        base = self.source or tx.guards.held(fn, self.name)
        attributes = tx.outside.attributes_of(fn, base)
        if name == "__dict__":
            from compiler_core.capture.values.user.object_attributes import InstanceDictValue  # built on this module

            return InstanceDictValue(attributes)
        if name in attributes.stored:
            found = attributes.stored[name]
            return None if found is UNBOUND else found
        if name in fn.__dict__ or name in (*_NEW_FUNCTION_ATTRIBUTES, "__kwdefaults__", "__annotations__"):
            return tx.outside.wrap(getattr(fn, name), AttrSource(base, name))
        if not hasattr(fn, name):
            tx.guards.add("NO_ATTRIBUTE", base, name)
        return None

    def _read_new(self, name: str) -> Value | None:
        if name == "__dict__":
            from compiler_core.capture.values.user.object_attributes import NewObjectDictValue  # built on this module

            return NewObjectDictValue(self)
        if name == "__annotations__":
            return self.special_attributes.setdefault(name, DictValue({}))
        if name in self.special_attributes:
            return self.special_attributes[name]
        return _NEW_FUNCTION_ATTRIBUTES[name](self) if name in _NEW_FUNCTION_ATTRIBUTES else self.stored.get(name)

    def as_key(self, tx: Interpreter) -> Any:
        return self if self.fn is None else super().as_key(tx)

    def call_method(self, tx: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        """``function.__get__(instance, cls)``."""
        return self if tx.is_none(args[0]) else MethodValue(self, args[0])

    def set_attr(self, tx: Interpreter, name: str, value: Value) -> None:
        self.install_guards(tx)
        is_plain = lookup_in_mro(types.FunctionType, name) is ABSENT
        if self.fn is not None and is_plain:
            base = self.source or tx.guards.held(self.fn, self.name)
            attributes = tx.outside.attributes_of(self.fn, base)
            tx.effects.note_attribute(attributes, name)
            attributes.stored[name] = value
        elif self.fn is not None:
            raise Unsupported("unsupported mutation", f"{self}.{name} of a function from outside")
        elif name in _SETTABLE:
            self.special_attributes[name] = value
        elif not is_plain:
            raise Unsupported("unsupported mutation", f"{self}.{name}")
        else:
            self.stored[name] = value

    def same_object(self, other: Value) -> bool:
        return self is other or (isinstance(other, FunctionValue) and self.fn is not None and self.fn is other.fn)

    def call(self, tx: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        self.install_guards(tx)
        return tx.call_function_value(self, list(args), kwargs)

    def reconstruct(self, emit: Emitter) -> None:
        if self.fn is not None:
            emit.load_outside_object(self.fn)
            return
        emit.call_object(make_function, [
            StaticValue(self.code), ConstantValue(sys.intern(self.name)), TupleValue(list(self.defaults)),
            DictValue(dict(self.kwdefaults)), TupleValue(list(self.closure)), StaticValue(Box(self.f_globals)),
            DictValue({**self.special_attributes, **self.stored}),
        ])  # fmt: skip


def _is_identified_by_code(fn: types.FunctionType) -> bool:
    """Whether a new function is made each time the surrounding code runs.

    Such a function is guarded on its code, globals, cells and defaults instead of its identity.  ``functools.wraps``
    gives it the name of another function.
    """
    if "<" in fn.__qualname__:
        return True
    return "<" in fn.__code__.co_qualname and not is_named(fn, fn.__module__, fn.__qualname__)


def make_function(
    code: types.CodeType,
    name: str,
    defaults: tuple[Any, ...],
    kwdefaults: dict[str, Any],
    closure: tuple[types.CellType, ...],
    f_globals: Any,
    attributes: dict[str, Any],
) -> types.FunctionType:
    """Called by generated code: makes a function that the frame made."""
    function = types.FunctionType(code, f_globals.value, code.co_name, defaults or None, closure)
    function.__kwdefaults__ = kwdefaults or None
    function.__qualname__ = name
    for attribute, value in attributes.items():
        setattr(function, attribute, value)
    return function


class MethodValue(Value):
    """A callable bound to a value: ``types.MethodType``."""

    always_true = True
    cls = types.MethodType

    def __init__(self, function: Value, owner: Value) -> None:
        self.function = function
        self.owner = owner

    def __repr__(self) -> str:
        return repr(self.function)

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if name == "__self__":
            return self.owner
        if name == "__func__":
            return self.function
        return self.function.get_attr(tx, name)

    def forwarded_call(self, tx: Interpreter, args: Args, kwargs: Kwargs) -> Call:
        return self.function, [self.owner, *args], kwargs

    def reconstruct(self, emit: Emitter) -> None:
        emit.call_object(types.MethodType, [self.function, self.owner])


class PartialValue(Value):
    """A ``functools.partial``."""

    always_true = True
    cls = functools.partial

    def __init__(self, function: Value, args: Args, kwargs: Kwargs) -> None:
        self.function = function
        self.args = list(args)
        self.keywords = DictValue(dict(kwargs))
        self.stored: dict[str, Value] = {}
        """Attributes that the frame has set."""

    @property
    def kwargs(self) -> dict[str, Value]:
        return self.keywords.known_items()

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if name == "func":
            return self.function
        if name == "args":
            return TupleValue(list(self.args))
        if name == "keywords":
            return self.keywords
        if name in self.stored:
            return self.stored[name]
        if name == "__dict__" and self.source is None:
            return DictValue(self.stored)
        if self.source is None and name not in vars(functools.partial) and name not in vars(object):
            raise observed_exception(AttributeError, f"'functools.partial' object has no attribute {name!r}")
        return super().get_attr(tx, name)

    def set_attr(self, tx: Interpreter, name: str, value: Value) -> None:
        if self.source is not None or name in ("func", "args", "keywords"):
            super().set_attr(tx, name, value)
        self.stored[name] = value

    def forwarded_call(self, tx: Interpreter, args: Args, kwargs: Kwargs) -> Call:
        return self.function, [*self.args, *args], {**self.kwargs, **kwargs}

    def reconstruct(self, emit: Emitter) -> None:
        if self.stored:
            parts = [self.function, TupleValue(self.args), self.keywords, DictValue(self.stored)]
            emit.call_object(make_partial, parts)
        else:
            emit.call_object(functools.partial, [self.function, *self.args], self.kwargs)


class CompiledValue(Value):
    """What ``torch.compile(function)`` returns in the frame.  A call of it is one of the function, which is inlined."""

    always_true = True
    cls = types.FunctionType

    def __init__(self, function: Value, options: dict[str, Value]) -> None:
        self.function = function
        self.options = options

    def forwarded_call(self, tx: Interpreter, args: Args, kwargs: Kwargs) -> Call:
        return self.function, list(args), kwargs

    def reconstruct(self, emit: Emitter) -> None:
        emit.call_object(torch.compile, [self.function], self.options)


def make_partial(
    function: Any, args: tuple[Any, ...], keywords: dict[str, Any], attributes: dict[str, Any]
) -> functools.partial[Any]:
    """Called by generated code: makes a partial on which the frame has set attributes."""
    partial = functools.partial(function, *args, **keywords)
    partial.__dict__.update(attributes)
    return partial


def bind_arguments(function: FunctionValue, args: list[Value], kwargs: Kwargs) -> dict[str, Value]:
    """Binds arguments to the names of parameters; raises the same TypeError as Python."""
    code = function.code
    names = code.co_varnames
    n_args, n_kwonly = code.co_argcount, code.co_kwonlyargcount
    local: dict[str, Value] = dict(zip(names[:n_args], args, strict=False))
    extra, rest = args[n_args:], dict(kwargs)
    for name in names[code.co_posonlyargcount : n_args + n_kwonly]:
        if name in rest:
            if name in local:
                raise _argument_error(function, args, kwargs)
            local[name] = rest.pop(name)
    for name, default in zip(names[n_args - len(function.defaults) : n_args], function.defaults, strict=True):
        local.setdefault(name, default)
    for name in names[n_args : n_args + n_kwonly]:
        if name not in local and name in function.kwdefaults:
            local[name] = function.kwdefaults[name]
    next_name = n_args + n_kwonly
    if code.co_flags & inspect.CO_VARARGS:
        local[names[next_name]] = TupleValue(extra)
        next_name, extra = next_name + 1, []
    if code.co_flags & inspect.CO_VARKEYWORDS:
        local[names[next_name]] = DictValue(dict(rest))
        rest = {}
    missing = [n for n in names[: n_args + n_kwonly] if n not in local]
    if extra or rest or missing:
        raise _argument_error(function, args, kwargs)
    return local


def _argument_error(function: FunctionValue, args: list[Value], kwargs: Kwargs) -> ObservedException:
    """Returns Python's TypeError for wrong arguments, which Python raises before it runs the function."""
    try:
        function.with_parameters()(*args, **kwargs)
    except TypeError as error:
        return observed_exception(TypeError, str(error))
    raise CompilerBug(f"{function.name}() accepts the arguments that bind_arguments rejected")


def _doc(function: FunctionValue) -> Value:
    first = next(iter(function.code.co_consts), None)
    return ConstantValue(first if isinstance(first, str) else None)


# attributes of a function that the frame made
_NEW_FUNCTION_ATTRIBUTES: dict[str, Callable[[FunctionValue], Value]] = {
    "__name__": lambda f: ConstantValue(f.code.co_name),
    "__qualname__": lambda f: ConstantValue(f.name),
    "__module__": lambda f: ConstantValue(f.f_globals.get("__name__")),
    "__doc__": _doc,
    "__defaults__": lambda f: TupleValue(list(f.defaults)) if f.defaults else NONE,
    "__closure__": lambda f: TupleValue(list(f.closure)) if f.closure else NONE,
    "__type_params__": lambda f: TupleValue([]),
    **({"__annotate__": lambda f: NONE} if sys.version_info >= (3, 14) else {}),
}
# attributes that a program may set, as ``functools.wraps`` does
_SETTABLE = ("__name__", "__qualname__", "__module__", "__doc__", "__annotations__", "__annotate__", "__type_params__")
