"""Sources that read an attribute, a cell or a referent of another object."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from compiler_core.guards.sources.base import VERSIONS_ARE_STALE, Scope, Source

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.guards import GuardTree


@dataclass(frozen=True)
class AttrSource(Source):
    """``base.name``.

    `table` is the dict that holds it: ``__dict__``, or a table of an nn.Module such as ``_parameters``.  None stands
    for whatever ``getattr`` finds, such as a slot or an attribute of the class.
    """

    base: Source
    name: str
    table: str | None = None

    @property
    def text(self) -> str:
        return f"{self.base.text}.{self.name}"

    @property
    def shown(self) -> str:
        if self.name in ("__code__", "_modules"):  # which function it is, which modules it has
            return self.base.shown
        is_item = self.table == "_modules" and self.name.isdecimal()  # of a Sequential or ModuleList
        return f"{self.base.shown}[{self.name}]" if is_item else f"{self.base.shown}.{self.name}"

    def fetch(self, scope: Scope) -> Any:
        owner = self.base.fetch(scope)
        if self._bypasses_getattribute(owner):
            return object.__getattribute__(owner, self.name)
        return getattr(owner, self.name)

    def _bypasses_getattribute(self, owner: Any) -> bool:
        """Whether the attribute must be read without calling a ``__getattribute__`` that the class overrides."""
        getter: Any = type(owner).__getattribute__
        return self.table == "__dict__" and getter is not object.__getattribute__

    def load(self, emit: Emitter) -> None:
        if self._bypasses_getattribute(self.base.fetch(emit.capture.guards.scope)):
            loads = [lambda: emit.source(self.base), lambda: emit.constant(self.name)]
            emit.call_loaded(object.__getattribute__, loads)
        elif self.table in (None, "__dict__"):
            emit.source(self.base)
            emit.load_attr(self.name)
        else:  # without calling a __getattr__ of the user's
            emit.source(InstanceDictSource(self.base))
            for key in (self.table, self.name):
                emit.constant(key)
                emit.subscript()

    @property
    def is_read_by_getattr(self) -> bool:
        """Whether guards read it with ``getattr``."""
        return self.table is None or (self.table == "__dict__" and VERSIONS_ARE_STALE)

    def manager(self, tree: GuardTree) -> Any:
        if self in tree.item_groups:
            return tree.item_groups[self].manager(self, tree)
        value, base = tree.value(self), tree.manager(self.base)
        if self.is_read_by_getattr:
            return base.getattr_manager(self.name, self.text, value, tree.manager_type)
        if self.table == "__dict__" or self.table is None:
            found = tree.manager(InstanceDictSource(self.base))
        else:
            found = tree.table_manager(self.base, self.table)
        return found.dict_getitem_manager(self.name, self.text, value, tree.manager_type)


@dataclass(frozen=True)
class InstanceDictSource(Source):
    """``base.__dict__``"""

    base: Source

    @property
    def text(self) -> str:
        return f"{self.base.text}.__dict__"

    @property
    def shown(self) -> str:
        return f"{self.base.shown}.__dict__"

    def fetch(self, scope: Scope) -> Any:
        return self.base.fetch(scope).__dict__

    def load(self, emit: Emitter) -> None:
        emit.source(self.base)
        emit.load_attr("__dict__")

    def manager(self, tree: GuardTree) -> Any:
        return tree.manager(self.base).get_generic_dict_manager(self.text, tree.value(self), tree.manager_type)


def call_weakref(ref: weakref.ref[Any]) -> Any:
    """Returns the object that a weak reference refers to, or None.  Generated code calls it, too."""
    return ref()


@dataclass(frozen=True)
class WeakRefCallSource(Source):
    """``base()``: the object that a weak reference refers to, or None."""

    base: Source

    @property
    def text(self) -> str:
        return f"{self.base.text}()"

    @property
    def shown(self) -> str:
        return f"{self.base.shown}()"

    def fetch(self, scope: Scope) -> Any:
        return call_weakref(self.base.fetch(scope))

    def load(self, emit: Emitter) -> None:
        emit.call_loaded(call_weakref, [lambda: self.base.load(emit)])

    def manager(self, tree: GuardTree) -> Any:
        return tree.manager(self.base).weakref_call_manager(self.text, tree.value(self), tree.manager_type)


@dataclass(frozen=True)
class ClosureCellSource(Source):
    """Cell `index` of a function's closure.  `variable`: the name that the function has for it."""

    base: Source
    index: int
    variable: str = field(default="", compare=False)

    @property
    def text(self) -> str:
        return f"{self.base.text}.__closure__[{self.index}]"

    @property
    def shown(self) -> str:
        return f"{self.variable} of {self.base.shown}" if self.variable else self.text

    def fetch(self, scope: Scope) -> Any:
        return self.base.fetch(scope).__closure__[self.index]

    def load(self, emit: Emitter) -> None:
        emit.source(self.base)
        emit.load_attr("__closure__")
        emit.constant(self.index)
        emit.subscript()

    def manager(self, tree: GuardTree) -> Any:
        closure = tree.value(self.base).__closure__
        name = f"{self.base.text}.__closure__"
        whole = tree.manager(self.base).getattr_manager("__closure__", name, closure, tree.manager_type)
        return whole.tuple_getitem_manager(self.index, self.text, tree.value(self), tree.manager_type)


@dataclass(frozen=True)
class CellContentsSource(Source):
    """The contents of a cell that was reached through a function's closure."""

    base: Source

    @property
    def text(self) -> str:
        return f"{self.base.text}.cell_contents"

    @property
    def shown(self) -> str:
        return self.base.shown

    def fetch(self, scope: Scope) -> Any:
        return self.base.fetch(scope).cell_contents

    def load(self, emit: Emitter) -> None:
        emit.source(self.base)
        emit.load_attr("cell_contents")

    def manager(self, tree: GuardTree) -> Any:
        return tree.manager(self.base).getattr_manager("cell_contents", self.text, tree.value(self), tree.manager_type)


@dataclass(frozen=True)
class ClassEntrySource(Source):
    """The entry `name` of a class or of the first of its bases that has it: a descriptor is not called."""

    base: Source
    name: str

    @property
    def text(self) -> str:
        return f"class_entry({self.base.text}, {self.name!r})"

    @property
    def shown(self) -> str:
        return f"{self.base.shown}.{self.name}"

    def fetch(self, scope: Scope) -> Any:
        return class_entry(self.base.fetch(scope), self.name)

    def load(self, emit: Emitter) -> None:
        emit.call_loaded(class_entry, [lambda: emit.source(self.base), lambda: emit.constant(self.name)])

    def manager(self, tree: GuardTree) -> Any:
        name = self.name
        find = lambda cls: class_entry(cls, name)  # noqa: E731
        return tree.manager(self.base).lambda_manager(find, self.text, tree.value(self), tree.manager_type)


def class_entry(cls: type, name: str, default: Any = None) -> Any:
    """Returns the entry `name` of `cls` or of the first of its bases that has it, without calling a descriptor."""
    for each in cls.__mro__ or ():  # None while Python makes the class
        if name in each.__dict__:
            return each.__dict__[name]
    return default
