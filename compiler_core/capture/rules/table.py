"""The table of rules for calls: `@handles(len)` over a function makes it the rule for that callable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.sequences import ListValue, SliceValue, TupleValue
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.user.subclasses import SubclassValue
from compiler_core.errors import CompilerBug

Handler = Callable[..., Value]
HANDLERS: dict[Any, Handler] = {}


def handles(*callables: Any) -> Callable[[Handler], Handler]:
    def register(rule: Handler) -> Handler:
        for obj in callables:
            if obj in HANDLERS:
                raise CompilerBug(f"{name_of(obj)} has two rules: {HANDLERS[obj].__name__} and {rule.__name__}")
            HANDLERS[obj] = rule
        return rule

    return register


def name_of(obj: Any) -> str:
    name = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None) or repr(obj)
    module = getattr(obj, "__module__", None)
    return f"{module}.{name}" if module and module != "builtins" else name


def has_tensor(value: Value) -> bool:
    if isinstance(value, TensorValue):
        return True
    if isinstance(value, (ListValue, TupleValue)):
        return any(has_tensor(v) for v in value._values or ())
    if isinstance(value, SubclassValue):
        return has_tensor(value.contents)
    return isinstance(value, SliceValue) and any(map(has_tensor, value.parts))


__all__ = ["HANDLERS", "Handler", "handles", "has_tensor", "name_of"]
