"""Where a value came from: how to print it, fetch it, load it in bytecode and reach its guards.

A source is a path from the frame: a local or global name, then attributes and items.  It answers
four questions and no more: `text` (for people), `fetch` (its value in a frame), `load` (bytecode
that pushes it) and `manager` (its node in the C++ guard tree).
"""

from __future__ import annotations

import contextvars
import functools
import sys
import types
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.support.safe_repr import shown

if TYPE_CHECKING:
    from compiler_core.guards import GuardTree
    from compiler_core.guards.emitter import Emitter


# A guard on a number in a dict is not checked again while the dict's version is the same; in CPython 3.13.0
# storing an attribute of an object does not change the version of its __dict__ (python/cpython#125608).
VERSIONS_ARE_STALE = (3, 13) <= sys.version_info < (3, 13, 1)


@dataclass(frozen=True)
class Scope:
    """The outside world of a frame at its entry."""

    f_locals: dict[str, Any]
    f_globals: dict[str, Any]
    closure: dict[str, types.CellType]
    """Free variables of the frame's function, by name."""


class Source:
    """Base of all sources; equal paths are equal values."""

    makes_new = False
    """Whether each load gives another object."""

    @property
    def text(self) -> str:
        raise NotImplementedError

    def fetch(self, scope: Scope) -> Any:
        raise NotImplementedError

    def load(self, emit: Emitter) -> None:
        raise NotImplementedError

    def manager(self, tree: GuardTree) -> Any:
        raise NotImplementedError


def root_of(source: Source) -> Source:
    """Where the path starts: a local, a global or an object that is held."""
    while (base := getattr(source, "base", None)) is not None:
        source = base
    return source


@dataclass(frozen=True)
class Local(Source):
    """An argument, or the contents of a free variable, of the compiled frame."""

    name: str

    @property
    def text(self) -> str:
        return f"L[{self.name!r}]"

    def fetch(self, scope: Scope) -> Any:
        return scope.f_locals[self.name]

    def load(self, emit: Emitter) -> None:
        emit.load_local(self.name)

    def manager(self, tree: GuardTree) -> Any:
        return tree.local(self)


@dataclass(frozen=True)
class FreeCell(Source):
    """The cell itself of a free variable (its contents are the `Local` of that name)."""

    name: str

    @property
    def text(self) -> str:
        return f"cell({self.name!r})"

    def fetch(self, scope: Scope) -> Any:
        return scope.closure[self.name]

    def load(self, emit: Emitter) -> None:
        emit.load_cell(self.name)

    def manager(self, tree: GuardTree) -> Any:
        raise NotImplementedError("a frame's own cells are fixed by its function")


@dataclass(frozen=True)
class Held(Source):
    """An object that the generated code holds as a constant (the globals of an inlined function)."""

    held: Constant
    name: str

    @property
    def text(self) -> str:
        return self.name

    def fetch(self, scope: Scope) -> Any:
        return self.held.value

    def load(self, emit: Emitter) -> None:
        emit.constant(self.held)
        emit.load_attr("value")

    def manager(self, tree: GuardTree) -> Any:
        return tree.globals_of(self)


@dataclass(frozen=True, eq=False)
class Constant:
    """A hashable box, so that code objects stay hashable whatever they hold."""

    value: Any

    @property
    def address(self) -> int:
        return id(self.value)

    @property
    def name(self) -> str:
        return str(self.value.__qualname__)


@dataclass(frozen=True)
class Global(Source):
    """A global of the frame, or (with `module`) of the module of an inlined function."""

    name: str
    module: Held | None = None

    @property
    def text(self) -> str:
        return f"G[{self.name!r}]" if self.module is None else f"{self.module.text}.{self.name}"

    def fetch(self, scope: Scope) -> Any:
        return (scope.f_globals if self.module is None else self.module.fetch(scope))[self.name]

    def load(self, emit: Emitter) -> None:
        if self.module is None:
            emit.load_global(self.name)
        else:
            emit.source(self.module)
            emit.constant(self.name)
            emit.subscript()

    def manager(self, tree: GuardTree) -> Any:
        base = tree.frame_globals() if self.module is None else tree.manager(self.module)
        return base.dict_getitem_manager(self.name, self.text, tree.value(self), tree.kind)


@dataclass(frozen=True)
class Attribute(Source):
    """``base.name``.  `table` says where it lies: ``__dict__``, a module's ``_parameters`` and
    so on, or None for whatever ``getattr`` finds (a slot, an attribute of the class)."""

    base: Source
    name: str
    table: str | None = None

    @property
    def text(self) -> str:
        return f"{self.base.text}.{self.name}"

    def fetch(self, scope: Scope) -> Any:
        owner = self.base.fetch(scope)
        return object.__getattribute__(owner, self.name) if self._own(owner) else getattr(owner, self.name)

    def _own(self, owner: Any) -> bool:
        """Whether it is to be read past a ``__getattribute__`` in Python."""
        getter: Any = type(owner).__getattribute__
        return self.table == "__dict__" and getter is not object.__getattribute__

    def load(self, emit: Emitter) -> None:
        if self._own(self.base.fetch(emit.capture.scope)):
            loads = [lambda: emit.source(self.base), lambda: emit.constant(self.name)]
            emit.call_loaded(object.__getattribute__, loads)
        elif self.table in (None, "__dict__"):
            emit.source(self.base)
            emit.load_attr(self.name)
        else:  # past a __getattr__ in Python
            emit.source(InstanceDict(self.base))
            for key in (self.table, self.name):
                emit.constant(key)
                emit.subscript()

    def manager(self, tree: GuardTree) -> Any:
        value, base = tree.value(self), tree.manager(self.base)
        if self.table is None or (self.table == "__dict__" and VERSIONS_ARE_STALE):
            return base.getattr_manager(self.name, self.text, value, tree.kind)
        found = tree.manager(InstanceDict(self.base))
        if self.table != "__dict__":
            table = tree.value(self.base).__dict__[self.table]
            found = found.dict_getitem_manager(self.table, f"{self.base.text}.{self.table}", table, tree.kind)
        return found.dict_getitem_manager(self.name, self.text, value, tree.kind)


@dataclass(frozen=True)
class InstanceDict(Source):
    """``base.__dict__``"""

    base: Source

    @property
    def text(self) -> str:
        return f"{self.base.text}.__dict__"

    def fetch(self, scope: Scope) -> Any:
        return self.base.fetch(scope).__dict__

    def load(self, emit: Emitter) -> None:
        emit.source(self.base)
        emit.load_attr("__dict__")

    def manager(self, tree: GuardTree) -> Any:
        return tree.manager(self.base).get_generic_dict_manager(self.text, tree.value(self), tree.kind)


@dataclass(frozen=True)
class Item(Source):
    """``base[key]`` of a list, tuple or dict; `key` is a Python constant."""

    base: Source
    key: Any

    @property
    def text(self) -> str:
        return f"{self.base.text}[{shown(self.key)}]"

    def fetch(self, scope: Scope) -> Any:
        return self.base.fetch(scope)[self.key]

    def load(self, emit: Emitter) -> None:
        emit.source(self.base)
        emit.constant(self.key)
        emit.subscript()

    def manager(self, tree: GuardTree) -> Any:
        container = tree.value(self.base)
        if self in tree.parts and type(container) in (dict, list, tuple):
            return tree.parts[self].manager(self, tree)
        base, value = tree.manager(self.base), tree.value(self)
        if type(container) is dict:
            return base.dict_getitem_manager(self.key, self.text, value, tree.kind)
        if type(container) is list:
            return base.list_getitem_manager(self.key, self.text, value, tree.kind)
        if type(container) is tuple:
            return base.tuple_getitem_manager(self.key, self.text, value, tree.kind)
        return base.getitem_manager(self.key, self.text, value, tree.kind)


@dataclass(frozen=True)
class BuiltinItem(Source):
    """An item of an object whose class has a ``__getitem__`` of its own over that of `builtin`."""

    base: Source
    key: Any
    builtin: Any

    @property
    def text(self) -> str:
        return f"{self.builtin.__name__}.__getitem__({self.base.text}, {shown(self.key)})"

    def fetch(self, scope: Scope) -> Any:
        return self.builtin.__getitem__(self.base.fetch(scope), self.key)

    def load(self, emit: Emitter) -> None:
        loads = [lambda: emit.source(self.base), lambda: emit.constant(self.key)]
        emit.call_loaded(self.builtin.__getitem__, loads)

    def manager(self, tree: GuardTree) -> Any:
        base, value = tree.manager(self.base), tree.value(self)
        # these read the builtin's contents, whatever the class makes of them
        if issubclass(self.builtin, dict):
            return base.dict_getitem_manager(self.key, self.text, value, tree.kind)
        get = base.list_getitem_manager if self.builtin is list else base.tuple_getitem_manager
        return get(self.key, self.text, value, tree.kind)


@dataclass(frozen=True)
class FromArray(Source):
    """``torch.from_numpy(base)``, the `number`-th tensor made of this array"""

    base: Source
    number: int
    makes_new = True

    @property
    def text(self) -> str:
        return f"torch.from_numpy({self.base.text})"

    def fetch(self, scope: Scope) -> Any:
        return torch.from_numpy(self.base.fetch(scope))

    def load(self, emit: Emitter) -> None:
        emit.call_loaded(torch.from_numpy, [lambda: emit.source(self.base)])

    def manager(self, tree: GuardTree) -> Any:
        return tree.manager(self.base).lambda_manager(torch.from_numpy, self.text, tree.value(self), tree.kind)


@dataclass(frozen=True)
class Extent(Source):
    """``base.size()[index]`` or ``base.stride()[index]`` of a tensor; `method` says which."""

    base: Source
    method: str
    index: int

    @property
    def text(self) -> str:
        return f"{self.base.text}.{self.method}()[{self.index}]"

    def fetch(self, scope: Scope) -> Any:
        return getattr(self.base.fetch(scope), self.method)()[self.index]

    def load(self, emit: Emitter) -> None:
        emit.source(self.base)
        emit.call_method(self.method, [])
        emit.constant(self.index)
        emit.subscript()

    def manager(self, tree: GuardTree) -> Any:
        method, index = self.method, self.index
        read = lambda tensor: getattr(tensor, method)()[index]  # noqa: E731
        return tree.manager(self.base).lambda_manager(read, self.text, tree.value(self), tree.kind)


@dataclass(frozen=True)
class Computed(Source):
    """``function(*args)`` of sources and constants: a number that Python computes of others."""

    name: str
    function: Any
    args: tuple[Any, ...]

    @property
    def text(self) -> str:
        shown_args = [arg.text if isinstance(arg, Source) else shown(arg) for arg in self.args]
        return f"{self.name}({', '.join(shown_args)})"

    def fetch(self, scope: Scope) -> Any:
        return self.function(*(arg.fetch(scope) if isinstance(arg, Source) else arg for arg in self.args))

    def load(self, emit: Emitter) -> None:
        emit.call_loaded(self.function, [functools.partial(_load_argument, arg, emit) for arg in self.args])

    def manager(self, tree: GuardTree) -> Any:
        raise NotImplementedError("conditions on it are checked in Python")


def _load_argument(arg: Any, emit: Emitter) -> None:
    if isinstance(arg, Source):
        arg.load(emit)
    else:
        emit.constant(arg)


UNSET: Any = object()
"""Stands for what a context variable without a value holds."""


def read_context_var(var: contextvars.ContextVar[Any]) -> Any:
    return var.get(UNSET)


@dataclass(frozen=True)
class ContextValue(Source):
    """What a `contextvars.ContextVar` holds in the current context, or `UNSET`."""

    base: Source

    @property
    def text(self) -> str:
        return f"{self.base.text}.get()"

    def fetch(self, scope: Scope) -> Any:
        return read_context_var(self.base.fetch(scope))

    def load(self, emit: Emitter) -> None:
        emit.call_loaded(read_context_var, [lambda: emit.source(self.base)])

    def manager(self, tree: GuardTree) -> Any:
        return tree.manager(self.base).lambda_manager(read_context_var, self.text, tree.value(self), tree.kind)


def referent(ref: weakref.ref[Any]) -> Any:
    return ref()


@dataclass(frozen=True)
class Referent(Source):
    """What a weak reference refers to, or None."""

    base: Source

    @property
    def text(self) -> str:
        return f"{self.base.text}()"

    def fetch(self, scope: Scope) -> Any:
        return referent(self.base.fetch(scope))

    def load(self, emit: Emitter) -> None:
        emit.call_loaded(referent, [lambda: self.base.load(emit)])

    def manager(self, tree: GuardTree) -> Any:
        return tree.manager(self.base).weakref_call_manager(self.text, tree.value(self), tree.kind)


@dataclass(frozen=True)
class ClosureCell(Source):
    """Cell `index` of a function's closure."""

    base: Source
    index: int

    @property
    def text(self) -> str:
        return f"{self.base.text}.__closure__[{self.index}]"

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
        whole = tree.manager(self.base).getattr_manager("__closure__", name, closure, tree.kind)
        return whole.tuple_getitem_manager(self.index, self.text, tree.value(self), tree.kind)


@dataclass(frozen=True)
class CellContents(Source):
    """What lies in a cell that was reached through a function's closure."""

    base: Source

    @property
    def text(self) -> str:
        return f"{self.base.text}.cell_contents"

    def fetch(self, scope: Scope) -> Any:
        return self.base.fetch(scope).cell_contents

    def load(self, emit: Emitter) -> None:
        emit.source(self.base)
        emit.load_attr("cell_contents")

    def manager(self, tree: GuardTree) -> Any:
        return tree.manager(self.base).getattr_manager("cell_contents", self.text, tree.value(self), tree.kind)


@dataclass(frozen=True)
class ClassEntry(Source):
    """What the class at `base`, or the first of its bases that has `name`, holds as `name`: a descriptor itself."""

    base: Source
    name: str

    @property
    def text(self) -> str:
        return f"class_entry({self.base.text}, {self.name!r})"

    def fetch(self, scope: Scope) -> Any:
        return class_entry(self.base.fetch(scope), self.name)

    def load(self, emit: Emitter) -> None:
        emit.call_loaded(class_entry, [lambda: emit.source(self.base), lambda: emit.constant(self.name)])

    def manager(self, tree: GuardTree) -> Any:
        name = self.name
        find = lambda cls: class_entry(cls, name)  # noqa: E731
        return tree.manager(self.base).lambda_manager(find, self.text, tree.value(self), tree.kind)


def class_entry(cls: type, name: str, default: Any = None) -> Any:
    """What `cls` or the first of its bases that has `name` holds as `name`."""
    for each in cls.__mro__ or ():  # it has none as Python makes it
        if name in each.__dict__:
            return each.__dict__[name]
    return default
