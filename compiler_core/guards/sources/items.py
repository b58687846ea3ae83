"""Sources that read an item of a container."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from compiler_core.guards.sources.base import Scope, Source
from compiler_core.support.safe_repr import safe_repr

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.guards import GuardTree


@dataclass(frozen=True)
class GetItemSource(Source):
    """``base[key]`` of a list, tuple or dict; `key` is a Python constant."""

    base: Source
    key: Any
    field: str = ""
    """Its name if `base` is a named tuple."""

    @property
    def text(self) -> str:
        return f"{self.base.text}[{safe_repr(self.key)}]"

    @property
    def shown(self) -> str:
        owner = self.base.shown
        if self.field:
            return f"{owner}.{self.field}"
        if isinstance(self.key, str) and owner.endswith(".__dict__"):
            of = owner.removesuffix(".__dict__")
            return of if self.key == "_modules" else f"{of}.{self.key}"
        return f"{owner}[{safe_repr(self.key)}]"

    def fetch(self, scope: Scope) -> Any:
        return self.base.fetch(scope)[self.key]

    def load(self, emit: Emitter) -> None:
        emit.source(self.base)
        emit.constant(self.key)
        emit.subscript()

    def manager(self, tree: GuardTree) -> Any:
        container = tree.value(self.base)
        if self in tree.item_groups and type(container) in (dict, list, tuple):
            return tree.item_groups[self].manager(self, tree)
        base, value = tree.manager(self.base), tree.value(self)
        if type(container) is dict:
            return base.dict_getitem_manager(self.key, self.text, value, tree.manager_type)
        if type(container) is list:
            return base.list_getitem_manager(self.key, self.text, value, tree.manager_type)
        if type(container) is tuple:
            return base.tuple_getitem_manager(self.key, self.text, value, tree.manager_type)
        return base.getitem_manager(self.key, self.text, value, tree.manager_type)


@dataclass(frozen=True)
class BuiltinItemSource(Source):
    """An item of an object whose class overrides the ``__getitem__`` of `builtin`, read by that of `builtin`."""

    base: Source
    key: Any
    builtin: Any

    @property
    def text(self) -> str:
        return f"{self.builtin.__name__}.__getitem__({self.base.text}, {safe_repr(self.key)})"

    @property
    def shown(self) -> str:
        return f"{self.base.shown}[{safe_repr(self.key)}]"

    def fetch(self, scope: Scope) -> Any:
        return self.builtin.__getitem__(self.base.fetch(scope), self.key)

    def load(self, emit: Emitter) -> None:
        loads = [lambda: emit.source(self.base), lambda: emit.constant(self.key)]
        emit.call_loaded(self.builtin.__getitem__, loads)

    def manager(self, tree: GuardTree) -> Any:
        base, value = tree.manager(self.base), tree.value(self)
        # these read the builtin's contents without calling methods of the class
        if issubclass(self.builtin, dict):
            return base.dict_getitem_manager(self.key, self.text, value, tree.manager_type)
        get = base.list_getitem_manager if self.builtin is list else base.tuple_getitem_manager
        return get(self.key, self.text, value, tree.manager_type)
