"""Names of libraries that capture looked up: functions of modules and methods of classes, which programs may replace.

Libraries hardly ever change, so what capture found there is checked by the version of the dict that it was found in:
one comparison for each dict at each call.  The names themselves are compared only after a change of their dict.
"""

from __future__ import annotations

import functools
import gc
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.guards.lifetimes import is_library, is_python_class, module_of, weak_cache
from compiler_core.guards.sources import Constant, Held
from compiler_core.support.interrupts import guard_function

if TYPE_CHECKING:
    from compiler_core.guards.kinds import GuardSpec
    from compiler_core.guards.tree import GuardTree
    from compiler_core.records import ItemId

MISSING: Any = object()
_IMMUTABLE = 0  # as an example value, it marks an item as one to skip while the dict has its version


@dataclass
class LookedUp:
    """What was found in one dict: the value of each name, MISSING for a name that it does not have."""

    names: dict[str, Any]
    home: str
    line: ItemId | None
    found: dict[str, Any] = field(default_factory=dict)

    def look(self, name: str) -> None:
        if name not in self.found:
            self.found[name] = self.names.get(name, MISSING)

    def spec(self) -> GuardSpec:
        from compiler_core.guards.kinds import GuardSpec

        return GuardSpec("LIBRARY", Held(Constant(self.names), self.home), self.found, self.line)


class LibraryNames:
    """All that one capture has looked up in libraries."""

    def __init__(self, note: Callable[[str], None] = lambda text: None) -> None:
        """`note` is told how the text of each guard begins, once there will be one."""
        self._by_dict: dict[int, LookedUp] = {}
        self._note = note

    def look(self, names: dict[str, Any], home: str | type, name: str, line: ItemId | None) -> None:
        """`home`: the module's name, or the class."""
        if id(names) not in self._by_dict:
            text = home if isinstance(home, str) else f"{home.__module__}.{home.__qualname__}"
            self._by_dict[id(names)] = LookedUp(names, text, line)
            self._note(beginning(text))
        self._by_dict[id(names)].look(name)

    def look_in_class(self, cls: type, name: str, line: ItemId | None) -> None:
        """As ``getattr(cls, name)`` looks: in the class and its bases, up to the first that has the name."""
        for each in cls.__mro__:
            if is_python_class(each):
                self.look(class_dict(each), each, name, line)
            if name in each.__dict__:
                return

    def look_inside(self, fn: types.FunctionType, line: ItemId | None) -> None:
        """The names that `fn`, which is called and not captured, looks up when it runs."""
        for names, home, name in _names_read(fn):
            self.look(names, home, name, line)

    def specs(self) -> list[GuardSpec]:
        return [each.spec() for each in self._by_dict.values()]


def class_dict(cls: Any) -> dict[str, Any]:
    """The dict behind ``cls.__dict__``, whose version changes with the class."""
    return _library_class_dict(cls) if is_library(module_of(cls)) else _class_dict(cls)


def _class_dict(cls: Any) -> dict[str, Any]:
    found = next(d for d in gc.get_referents(cls.__dict__) if isinstance(d, dict))
    assert found.keys() == cls.__dict__.keys()
    return found


_library_class_dict = functools.cache(_class_dict)  # it leads to the class: only of those that are never freed


@weak_cache
def _names_read(fn: types.FunctionType) -> tuple[tuple[dict[str, Any], str, str], ...]:
    return tuple({(id(names), name): (names, home, name) for names, home, name in _walk(fn, set())}.values())


def _walk(fn: types.FunctionType, seen: set[Any]) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Names in the code of `fn` that are globals, or attributes of modules that are, or methods of tensors; and those
    in functions of its own module that it may call."""
    seen.add(fn)
    read, home = _co_names(fn.__code__), str(fn.__globals__.get("__name__"))
    spaces = [(fn.__globals__, home)]
    for space, name_of_space in spaces:
        for name in read:
            if name not in space or name.startswith("__"):
                continue
            yield space, name_of_space, name
            found = space[name]
            if isinstance(found, types.ModuleType) and is_library(found.__name__):
                entry = (vars(found), found.__name__)
                if all(entry[0] is not known for known, _ in spaces):
                    spaces.append(entry)
            elif isinstance(found, types.FunctionType) and found not in seen and found.__module__ == home:
                yield from _walk(found, seen)
    for name in read:
        if not name.startswith("__") and hasattr(torch.Tensor, name):
            yield class_dict(torch.Tensor), "torch.Tensor", name


def _co_names(code: types.CodeType) -> list[str]:
    inner = (name for const in code.co_consts if isinstance(const, types.CodeType) for name in _co_names(const))
    return [*code.co_names, *inner]


# ---------------------------------------------------------------- the guard


def beginning(home: str) -> str:
    return f"unchanged({home!r}, "


def difference(names: dict[str, Any], found: dict[str, Any]) -> str | None:
    """The first name that stands for something else now."""
    for name, value in found.items():
        if names.get(name, MISSING) is not value:
            return f"{name} was replaced" if name in names else f"{name} is gone"
    return None


def install(tree: GuardTree, spec: GuardSpec, parts: list[str]) -> None:
    names, found = tree.value(spec.source), spec.value
    holds: Callable[[Any], bool] = lambda _: difference(names, found) is None  # noqa: E731
    first = next(iter(names))
    seal = tree.library(names, spec.source.text).dict_getitem_manager(first, parts[0], _IMMUTABLE, tree.kind)
    seal.add_lambda_guard(guard_function(holds), parts, None)
