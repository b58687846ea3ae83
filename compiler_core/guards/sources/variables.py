"""Sources without a base: locals, globals, constants, cells of the frame, context variables."""

from __future__ import annotations

import contextvars
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from compiler_core.guards.sources.base import Scope, Source, shown_name

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.guards import GuardTree


@dataclass(frozen=True)
class LocalSource(Source):
    """An argument of the compiled frame, or the contents of one of its free variables."""

    name: str
    expression: str = field(default="", compare=False)
    """What the user wrote, if the name is that of a parameter of a resume function."""

    @property
    def text(self) -> str:
        return f"L[{self.name!r}]"

    @property
    def shown(self) -> str:
        return self.expression or shown_name(self.name)

    def fetch(self, scope: Scope) -> Any:
        return scope.f_locals[self.name]

    def load(self, emit: Emitter) -> None:
        emit.load_local(self.name)

    def manager(self, tree: GuardTree) -> Any:
        return tree.local_manager(self)


@dataclass(frozen=True)
class FreeCellSource(Source):
    """The cell of a free variable.  (Its contents are the `LocalSource` of that name.)"""

    name: str

    @property
    def text(self) -> str:
        return f"cell({self.name!r})"

    @property
    def shown(self) -> str:
        return self.name

    def fetch(self, scope: Scope) -> Any:
        return scope.closure[self.name]

    def load(self, emit: Emitter) -> None:
        emit.load_cell(self.name)

    def manager(self, tree: GuardTree) -> Any:
        raise NotImplementedError("a frame's own cells are fixed by its function")


@dataclass(frozen=True)
class ConstantSource(Source):
    """An object that the generated code holds as a constant, such as the globals of an inlined function."""

    box: Box
    name: str

    @property
    def text(self) -> str:
        return self.name

    def fetch(self, scope: Scope) -> Any:
        return self.box.value

    def load(self, emit: Emitter) -> None:
        emit.constant(self.box)
        emit.load_attr("value")

    def manager(self, tree: GuardTree) -> Any:
        return tree.constant_manager(self)


@dataclass(frozen=True, eq=False)
class Box:
    """A hashable reference to an object.  Code objects must be hashable, whatever their constants are."""

    value: Any

    @property
    def address(self) -> int:
        return id(self.value)

    @property
    def name(self) -> str:
        return str(self.value.__qualname__)


@dataclass(frozen=True)
class GlobalSource(Source):
    """A global of the frame, or, with `module`, of the module of an inlined function."""

    name: str
    module: ConstantSource | None = None

    @property
    def text(self) -> str:
        return f"G[{self.name!r}]" if self.module is None else f"{self.module.text}.{self.name}"

    @property
    def shown(self) -> str:
        return self.name if self.module is None else f"{self.module.shown}.{self.name}"

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
        if self in tree.item_groups:
            return tree.item_groups[self].manager(self, tree)
        base = tree.globals_manager() if self.module is None else tree.manager(self.module)
        return base.dict_getitem_manager(self.name, self.text, tree.value(self), tree.manager_type)


UNSET: Any = object()
"""Stands for the value of a context variable that has none."""


def read_context_var(var: contextvars.ContextVar[Any]) -> Any:
    """Returns the value of a context variable, or `UNSET`.  Generated code calls it, too."""
    return var.get(UNSET)


@dataclass(frozen=True)
class ContextVarSource(Source):
    """The value of a `contextvars.ContextVar` in the current context, or `UNSET`."""

    base: Source

    @property
    def text(self) -> str:
        return f"{self.base.text}.get()"

    @property
    def shown(self) -> str:
        return f"{self.base.shown}.get()"

    def fetch(self, scope: Scope) -> Any:
        return read_context_var(self.base.fetch(scope))

    def load(self, emit: Emitter) -> None:
        emit.call_loaded(read_context_var, [lambda: emit.source(self.base)])

    def manager(self, tree: GuardTree) -> Any:
        return tree.manager(self.base).lambda_manager(read_context_var, self.text, tree.value(self), tree.manager_type)
