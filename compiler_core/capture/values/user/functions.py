"""Python functions, methods and partials."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import Raised, Value, raised
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.sequences import TupleValue
from compiler_core.capture.values.constant import ConstantValue
from compiler_core.capture.values.static import StaticValue
from compiler_core.capture.values.user.cells import CellValue
from compiler_core.errors import CompilerBug
from compiler_core.guards.sources import Attribute, ClosureCell, Constant, Item, Source

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter

RESUMED = ".<resumed>"
"""Ends the qualified name of a resume function's code, by which tracebacks know the frame that called it."""


class FunctionValue(Value):
    """A Python function, from outside (`fn`) or made in the frame by MAKE_FUNCTION."""

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
        """What lies in its ``__dict__``, and below what else was set; of one made in the frame."""
        self.special_attributes: dict[str, Value] = {}

    @classmethod
    def outside(cls, tx_capture: Any, fn: types.FunctionType, source: Source | None) -> FunctionValue:
        """A function from outside; `source` None where it was found through a guarded class."""
        base = source or tx_capture.held(fn, fn.__qualname__)
        # where other functions of the same code may come (`look`), their defaults may be other functions and classes
        wrap = tx_capture.wrap if source is not None and _is_known_by_code(fn) else tx_capture.wrap_attribute
        defaults = [wrap(d, Item(Attribute(base, "__defaults__"), i)) for i, d in enumerate(fn.__defaults__ or ())]
        kwdefaults = {
            k: wrap(d, Item(Attribute(base, "__kwdefaults__"), k)) for k, d in (fn.__kwdefaults__ or {}).items()
        }
        closure = [tx_capture.cell(c, ClosureCell(base, i)) for i, c in enumerate(fn.__closure__ or ())]
        return cls(fn.__code__, fn.__globals__, fn.__qualname__, defaults, kwdefaults, closure, fn, source)

    def __repr__(self) -> str:
        return self.name

    def python_type(self) -> type:
        return types.FunctionType

    def look(self, tx: Interpreter) -> None:
        if self.source is None or self.fn is None:
            return
        if _is_known_by_code(self.fn):
            tx.capture.guard("TYPE_MATCH", self.source, self.fn)
            tx.capture.guard("ID_MATCH", Attribute(self.source, "__code__"), self.fn.__code__)
            tx.capture.guard("ID_MATCH", Attribute(self.source, "__globals__"), self.fn.__globals__)
        else:
            tx.capture.guard("ID_MATCH", self.source, self.fn)

    def truth(self, tx: Interpreter) -> bool:
        return True

    def constant(self, tx: Interpreter) -> Any:
        if self.fn is None:
            return super().constant(tx)
        if self.source is not None:
            tx.capture.guard("ID_MATCH", self.source, self.fn)
        return self.fn

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        self.look(tx)
        if name == "__code__":
            return StaticValue(self.code)
        if name == "__class__":
            return StaticValue(types.FunctionType)
        if name == "__get__":
            return MethodOfValue(self, name)
        from compiler_core.capture.values.user import function_attributes

        return function_attributes.read(tx, self, name)

    def call_method(self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        """``function.__get__(instance, cls)``"""
        return self if tx.is_none(args[0]) else MethodValue(self, args[0])

    def set_attr(self, tx: Interpreter, name: str, value: Value) -> None:
        from compiler_core.capture.values.user import function_attributes

        self.look(tx)
        function_attributes.write(self, name, value)

    def same_object(self, other: Value) -> bool:
        return self is other or (isinstance(other, FunctionValue) and self.fn is not None and self.fn is other.fn)

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        self.look(tx)
        return tx.call_function_value(self, list(args), kwargs)

    def children(self) -> Sequence[Value]:
        if self.fn is not None:
            return ()
        set_here = [*self.stored.values(), *self.special_attributes.values()]
        return [*self.defaults, *self.kwdefaults.values(), *self.closure, *set_here]

    def rebuild(self, emit: Emitter) -> None:
        if self.fn is not None:
            emit.outside(self.fn)
            return
        emit.call_object(make_function, [
            StaticValue(self.code), ConstantValue(self.name), TupleValue(list(self.defaults)),
            DictValue(dict(self.kwdefaults)), TupleValue(list(self.closure)), StaticValue(Constant(self.f_globals)),
            DictValue({**self.special_attributes, **self.stored}),
        ])  # fmt: skip


def _is_known_by_code(fn: types.FunctionType) -> bool:
    """Whether it is made anew whenever the code around it runs: what it does is its code, its globals, its cells and
    its defaults."""
    return "<" in fn.__qualname__


def make_function(
    code: types.CodeType,
    name: str,
    defaults: tuple[Any, ...],
    kwdefaults: dict[str, Any],
    closure: tuple[types.CellType, ...],
    f_globals: Any,
    attributes: dict[str, Any],
) -> types.FunctionType:
    """Called by generated code to make a function that the frame made."""
    made = types.FunctionType(code, f_globals.value, code.co_name, defaults or None, closure)
    made.__kwdefaults__ = kwdefaults or None
    made.__qualname__ = name
    for attribute, value in attributes.items():
        setattr(made, attribute, value)
    return made


class MethodValue(Value):
    """A Python function bound to a value."""

    def __init__(self, function: Value, owner: Value) -> None:
        self.function = function
        self.owner = owner

    def __repr__(self) -> str:
        return repr(self.function)

    def python_type(self) -> type:
        return types.MethodType

    def truth(self, tx: Interpreter) -> bool:
        return True

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if name == "__self__":
            return self.owner
        if name == "__func__":
            return self.function
        return self.function.get_attr(tx, name)

    def comes_to(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> tuple[Value, list[Value], dict[str, Value]]:
        return self.function, [self.owner, *args], kwargs

    def children(self) -> Sequence[Value]:
        return [self.function, self.owner]

    def rebuild(self, emit: Emitter) -> None:
        emit.call_object(types.MethodType, [self.function, self.owner])


class MethodOfValue(Value):
    """A method, by name, of a tensor, container, constant or other value with ``call_method``."""

    def __init__(self, owner: Any, name: str) -> None:
        self.owner = owner
        self.name = name

    def __repr__(self) -> str:
        return f"{self.owner}.{self.name}"

    def python_type(self) -> type:
        return types.BuiltinMethodType

    def truth(self, tx: Interpreter) -> bool:
        return True

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if name == "__self__":
            assert isinstance(self.owner, Value)
            return self.owner
        return super().get_attr(tx, name)

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        found: Value = self.owner.call_method(tx, self.name, list(args), kwargs)
        return found

    def children(self) -> Sequence[Value]:
        return [self.owner]

    def rebuild(self, emit: Emitter) -> None:
        emit.value(self.owner)
        emit.load_attr(self.name)


class PartialValue(Value):
    """``functools.partial`` made in the frame or outside."""

    def __init__(self, function: Value, args: Sequence[Value], kwargs: dict[str, Value]) -> None:
        self.function = function
        self.args = list(args)
        self.keywords = DictValue(dict(kwargs))
        self.stored: dict[str, Value] = {}
        """Attributes that the frame gave it."""

    @property
    def kwargs(self) -> dict[str, Value]:
        return self.keywords.held_by_key()

    def python_type(self) -> type:
        return functools.partial

    def truth(self, tx: Interpreter) -> bool:
        return True

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        if name == "func":
            return self.function
        if name == "args":
            return TupleValue(list(self.args))
        if name == "keywords":
            return self.keywords
        return self.stored[name] if name in self.stored else super().get_attr(tx, name)

    def set_attr(self, tx: Interpreter, name: str, value: Value) -> None:
        if self.source is not None or name in ("func", "args", "keywords"):
            super().set_attr(tx, name, value)
        self.stored[name] = value

    def comes_to(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> tuple[Value, list[Value], dict[str, Value]]:
        return self.function, [*self.args, *args], {**self.kwargs, **kwargs}

    def children(self) -> Sequence[Value]:
        return [self.function, *self.args, *self.kwargs.values(), *self.stored.values()]

    def rebuild(self, emit: Emitter) -> None:
        if self.stored:
            parts = [self.function, TupleValue(self.args), self.keywords, DictValue(self.stored)]
            emit.call_object(make_partial, parts)
        else:
            emit.call_object(functools.partial, [self.function, *self.args], self.kwargs)


def make_partial(
    function: Any, args: tuple[Any, ...], keywords: dict[str, Any], attributes: dict[str, Any]
) -> functools.partial[Any]:
    """Called by generated code to make a partial that was given attributes."""
    made = functools.partial(function, *args, **keywords)
    made.__dict__.update(attributes)
    return made


def bind(function: FunctionValue, args: list[Value], kwargs: dict[str, Value]) -> dict[str, Value]:
    """Arguments to local names, as Python binds them."""
    code = function.code
    names = code.co_varnames
    n_args, n_kwonly = code.co_argcount, code.co_kwonlyargcount
    local: dict[str, Value] = dict(zip(names[:n_args], args, strict=False))
    extra, rest = args[n_args:], dict(kwargs)
    for name in names[code.co_posonlyargcount : n_args + n_kwonly]:
        if name in rest:
            if name in local:
                raise _refusal(function, args, kwargs)
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
        raise _refusal(function, args, kwargs)
    return local


def _refusal(function: FunctionValue, args: list[Value], kwargs: dict[str, Value]) -> Raised:
    """What Python says of wrong arguments, before it runs anything of the function."""
    cells = tuple(types.CellType() for _ in function.closure)
    same = types.FunctionType(function.code, {}, None, tuple(function.defaults), cells)
    same.__qualname__, same.__kwdefaults__ = function.name, function.kwdefaults
    try:
        same(*args, **kwargs)
    except TypeError as error:
        return raised(TypeError, str(error))
    raise CompilerBug(f"{function.name}() takes the arguments that were refused")
