"""LIBRARY, the guard on names of libraries: functions of modules and methods of classes, which programs may replace.

Libraries rarely change, so the guard compares the version of the dict in which a name was found: one comparison for
each dict at each call.  The names themselves are compared only after their dict has changed.
"""

from __future__ import annotations

import functools
import gc
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.guards.kinds import IMMUTABLE_EXAMPLE, MISSING, GuardKind, GuardSpec, guard_kind
from compiler_core.guards.lifetimes import is_library, is_python_class, module_of, weak_cache
from compiler_core.guards.sources import Box, ConstantSource
from compiler_core.records.recompiles import Mismatch
from compiler_core.support.interrupts import guard_function

if TYPE_CHECKING:
    from compiler_core.guards.tree import GuardTree
    from compiler_core.records import ItemId


@dataclass
class DictLookups:
    """The names that were looked up in one dict, each with its value, or MISSING if the dict does not have the name."""

    names: dict[str, Any]
    home: str
    """The module or class whose dict `names` is, as text."""
    line: ItemId | None
    found: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str) -> None:
        if name not in self.found:
            self.found[name] = self.names.get(name, MISSING)

    def guard(self) -> GuardSpec:
        return GuardSpec("LIBRARY", ConstantSource(Box(self.names), self.home), self.found, self.line)


class LibraryLookups:
    """The names that one capture has looked up in libraries."""

    def __init__(self, on_new_guard: Callable[[str], None] = lambda text: None) -> None:
        """`on_new_guard` is called with the beginning of a guard's text when the first name of its dict is added."""
        self._by_dict: dict[int, DictLookups] = {}
        self._on_new_guard = on_new_guard

    def add(self, names: dict[str, Any], home: str | type, name: str, line: ItemId | None) -> None:
        """Adds a lookup of `name` in the dict `names` of `home`, which is a class or the name of a module."""
        if id(names) not in self._by_dict:
            text = home if isinstance(home, str) else f"{home.__module__}.{home.__qualname__}"
            self._by_dict[id(names)] = DictLookups(names, text, line)
            self._on_new_guard(_code_prefix(text))
        self._by_dict[id(names)].add(name)

    def add_class_attribute(self, cls: type, name: str, line: ItemId | None) -> None:
        """Adds the lookups of ``getattr(cls, name)``: in the class and its bases, up to the first with the name."""
        for each in cls.__mro__:
            if is_python_class(each):
                self.add(class_dict(each), each, name, line)
            if name in each.__dict__:
                return

    def add_lookups_of(self, fn: types.FunctionType, line: ItemId | None) -> None:
        """Adds the names that `fn` looks up when it runs.  `fn` is called by the graph and not captured."""
        for names, home, name in _names_read(fn):
            self.add(names, home, name, line)

    def guards(self) -> list[GuardSpec]:
        return [lookups.guard() for lookups in self._by_dict.values()]


def class_dict(cls: Any) -> dict[str, Any]:
    """Returns the dict behind the proxy ``cls.__dict__``; its version changes with the class."""
    is_permanent = is_library(module_of(cls)) and "<locals>" not in cls.__qualname__  # FX makes a class for each graph
    return _library_class_dict(cls) if is_permanent else _class_dict(cls)


def _class_dict(cls: Any) -> dict[str, Any]:
    found = next(d for d in gc.get_referents(cls.__dict__) if isinstance(d, dict))
    assert found.keys() == cls.__dict__.keys()
    return found


_library_class_dict = functools.cache(_class_dict)  # the dict keeps its class alive; a library's is never freed


@weak_cache
def _names_read(fn: types.FunctionType) -> tuple[tuple[dict[str, Any], str, str], ...]:
    lookups = _walk_names_read(fn, set())
    return tuple({(id(names), name): (names, home, name) for names, home, name in lookups}.values())


def _walk_names_read(fn: types.FunctionType, seen: set[Any]) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yields the lookups that the code of `fn` may do, as (dict, module or class, name).

    They are names of globals, attributes of modules among the globals, methods of tensors, and the lookups of the
    functions of the same module that `fn` may call.
    """
    seen.add(fn)
    read, home = _co_names(fn.__code__), str(fn.__globals__.get("__name__"))
    namespaces = [(fn.__globals__, home)]  # grows while it is iterated over
    for namespace, module in namespaces:
        for name in read:
            if name not in namespace or name.startswith("__"):
                continue
            yield namespace, module, name
            found = namespace[name]
            if isinstance(found, types.ModuleType) and is_library(found.__name__):
                if all(vars(found) is not known for known, _ in namespaces):
                    namespaces.append((vars(found), found.__name__))
            elif isinstance(found, types.FunctionType) and found not in seen and found.__module__ == home:
                yield from _walk_names_read(found, seen)
    for name in read:
        if not name.startswith("__") and hasattr(torch.Tensor, name):
            yield class_dict(torch.Tensor), "torch.Tensor", name


def _co_names(code: types.CodeType) -> list[str]:
    inner = (name for const in code.co_consts if isinstance(const, types.CodeType) for name in _co_names(const))
    return [*code.co_names, *inner]


# ---------------------------------------------------------------- the guard


def _code_prefix(home: str) -> str:
    return f"unchanged({home!r}, "


@guard_kind("LIBRARY")
class LibraryUnchanged(GuardKind):
    """A dict of a library still has these values for these names."""

    def code(self, source: str, value: dict[str, Any]) -> str:
        return f"{_code_prefix(source)}{', '.join(value)})"

    def expected(self, value: dict[str, Any]) -> str:
        return f"{', '.join(value)} as they were"

    def difference(self, obj: dict[str, Any], value: dict[str, Any]) -> Mismatch | None:
        for name, found in value.items():
            if obj.get(name, MISSING) is not found:
                return Mismatch("function", "as it was", "replaced" if name in obj else "gone", item=name)
        return None

    def install(self, tree: GuardTree, guard: GuardSpec, code_parts: list[str]) -> None:
        """Attaches the check to the first item of the dict, as an item that is skipped until the version changes."""
        names, found = tree.value(guard.source), guard.value
        holds = guard_function(lambda _: self.difference(names, found) is None)
        dict_manager = tree.library_dict_manager(names, guard.source.text)
        item = dict_manager.dict_getitem_manager(next(iter(names)), code_parts[0], IMMUTABLE_EXAMPLE, tree.manager_type)
        item.add_lambda_guard(holds, code_parts, None)
