"""The table of rules for calls.

`@handles(len)` makes the decorated function the rule for that callable: it gets the interpreter and the values of the
arguments.  `@handles_each(min, max)` makes it the rule for several callables and passes the callable first.
`add_rules` has rows for rules that are one expression.
"""

from __future__ import annotations

import collections
import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import torch

from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.sequences import ListValue, SliceValue, TupleValue
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.user.objects import SubclassValue
from compiler_core.errors import CompilerBug

Handler = Callable[..., Value]
HANDLERS: dict[Any, Handler] = {}
BY_NAME: dict[str, Handler] = {}
"""The rules for functions whose modules take long to import, by module and name."""


def handles(*callables: Any) -> Callable[[Handler], Handler]:
    """Makes the decorated function ``rule(tx, *args, **kwargs)`` the rule for each of `callables`.

    Raises CompilerBug if one has a rule already.
    """

    def register(rule: Handler) -> Handler:
        for obj in callables:
            _add(obj, rule)
        return rule

    return register


def handles_each(*callables: Any) -> Callable[[Handler], Handler]:
    """Makes the decorated function ``rule(fn, tx, *args, **kwargs)`` the rule for each of `callables`, passed as `fn`.

    Raises CompilerBug if one has a rule already.
    """

    def register(rule: Handler) -> Handler:
        for obj in callables:
            _add(obj, functools.partial(rule, obj))
        return rule

    return register


def add_rules(rules: dict[Any, Handler]) -> None:
    """Adds rules, each ``rule(tx, *args, **kwargs)``, by their callables.

    Raises CompilerBug if one has a rule already.
    """
    for obj, rule in rules.items():
        _add(obj, rule)


def handles_named(name: str) -> Callable[[Handler], Handler]:
    """Makes the decorated function the rule for the function of this name in a module that is not imported now."""

    def register(rule: Handler) -> Handler:
        BY_NAME[name] = rule
        return rule

    return register


def _add(obj: Any, rule: Handler) -> None:
    if obj in HANDLERS:
        raise CompilerBug(f"{name_of(obj)} has two rules: {_rule_name(HANDLERS[obj])} and {_rule_name(rule)}")
    HANDLERS[obj] = rule


def _rule_name(rule: Any) -> str:
    return str(rule.func.__name__ if isinstance(rule, functools.partial) else rule.__name__)


def name_of(obj: Any) -> str:
    """Returns the qualified name of an object, for messages."""
    name = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None) or repr(obj)
    module = getattr(obj, "__module__", None)
    return f"{module}.{name}" if module and module != "builtins" else name


def public_name(obj: Any) -> str:
    """Returns the shortest name by which an imported module has an object, for messages: ``torch.optim.Adam``.

    A method has the name of its class: ``DataLoader.__len__``.
    """
    module, name = getattr(obj, "__module__", None), getattr(obj, "__qualname__", "")
    if not module or not name or "." in name:
        return name or name_of(obj)
    if module == os.path.__name__:
        return f"os.path.{name}"
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        package = ".".join(parts[:end])
        if package in sys.modules and vars(sys.modules[package]).get(name) is obj:
            return f"{package}.{name}"
    return name_of(obj)


def has_tensor(value: Value) -> bool:
    """Whether a value is a tensor, or a list, tuple or slice that contains one."""
    if isinstance(value, TensorValue):
        return True
    if isinstance(value, (ListValue, TupleValue)):
        if value._values is None:
            # whoever takes the items loads and guards the sequence
            return _holds_tensor(value.real) or any(map(has_tensor, value.known_values()))
        return any(map(has_tensor, value._values))
    if isinstance(value, SubclassValue):
        return has_tensor(value.contents)
    return isinstance(value, SliceValue) and any(map(has_tensor, value.bounds))


def _holds_tensor(real: Any, depth: int = 2) -> bool:
    """Whether a list, tuple or deque from outside contains a tensor; an overridden ``__iter__`` is not called."""
    kinds: tuple[type[Any], ...] = (list, tuple, collections.deque)
    for cls in kinds:
        if isinstance(real, cls) and depth:
            return any(_holds_tensor(each, depth - 1) for each in cls.__iter__(real))
    return isinstance(real, torch.Tensor)


__all__ = [
    "BY_NAME",
    "HANDLERS",
    "Handler",
    "add_rules",
    "handles",
    "handles_each",
    "handles_named",
    "has_tensor",
    "name_of",
    "public_name",
]
