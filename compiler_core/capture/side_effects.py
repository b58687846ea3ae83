"""Changes of outside objects, kept while capturing and replayed in order after the graph has run.

A container, cell or object from outside is mirrored by one value; that value holds the state
that Python would have left.  Replaying writes each changed object once, in the order in which
the program first changed it; all new contents are loaded before anything is written, so that a
swap reads what was there before.
"""

from __future__ import annotations

import contextlib
import types
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import UNBOUND, Value
from compiler_core.capture.values.builtin.containers import ContainerValue
from compiler_core.capture.values.builtin.context_vars import TokenValue
from compiler_core.capture.values.builtin.deques import DequeValue
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.sequences import ListValue
from compiler_core.capture.values.builtin.sets import SetValue, replace_set
from compiler_core.capture.values.tensor import TensorValue
from compiler_core.capture.values.user.cells import CellValue
from compiler_core.capture.values.user.objects import ObjectValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import FreeCell, Held

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter


class SideEffects:
    """What one capture changed outside itself."""

    def __init__(self) -> None:
        self._changed: dict[int, Value] = {}
        self._attributes: dict[tuple[int, str], tuple[ObjectValue | TensorValue, str]] = {}
        self._globals: dict[tuple[int, str], tuple[Held | None, str, Value]] = {}
        self.tokens: list[TokenValue] = []
        """Of the context variables that are set and not reset, in order."""
        self.frozen = ""
        """What a change now would be, which the graph must break at; empty where changes are fine."""

    def __bool__(self) -> bool:
        return bool(self._changed or self._attributes or self._globals or self.tokens)

    def last_token(self) -> TokenValue | None:
        return self.tokens[-1] if self.tokens else None

    def mutated(self, value: Value) -> None:
        """The contents of an outside list, dict or cell are about to change."""
        self._check_frozen()
        if not isinstance(value, (ListValue, DictValue, SetValue, CellValue)):
            raise Unsupported("unsupported mutation", str(value))
        self._changed.setdefault(id(value), value)

    def attribute(self, obj: ObjectValue | TensorValue, name: str) -> None:
        """An attribute of an outside object or of a tensor is about to be set or deleted (`obj.stored` says)."""
        self._check_frozen()
        if obj.stored.get(name) is UNBOUND:
            raise Unsupported("unsupported mutation", f"{name} is deleted and set again, which puts it last")
        self._attributes.setdefault((id(obj), name), (obj, name))

    def _check_frozen(self) -> None:
        if self.frozen:
            raise Unsupported("unsupported mutation", self.frozen)

    def store_global(self, module: Held | None, name: str, value: Value) -> None:
        """A global of the frame, or of an inlined function's `module`, is set; UNBOUND deletes it."""
        self._check_frozen()
        self._globals[(id(module), name)] = (module, name, value)

    def global_value(self, module: Held | None, name: str) -> Value | None:
        found = self._globals.get((id(module), name))
        return found[2] if found else None

    def owners(self) -> list[Any]:
        """The outside containers and objects that changed."""
        objects = [obj for obj, _ in self._attributes.values() if obj.source is not None]
        return [*objects, *(v for v in self._changed.values() if not isinstance(v, CellValue))]

    def writes_globals(self, *of: Held | None) -> bool:
        """Whether globals were stored: any, or those of these modules."""
        return any(not of or module in of for module, _, _ in self._globals.values())

    def writes_cells(self, own: bool = False) -> bool:
        """Whether cells of outside functions changed; `own`: also those of the frame's own function."""
        cells = [v for v in self._changed.values() if isinstance(v, CellValue)]
        return any(own or not isinstance(cell.source, FreeCell) for cell in cells)

    def values(self) -> list[Value]:
        """All values that replaying needs."""
        found: list[Value] = [*self.tokens]
        found += [v for _, _, v in self._globals.values()]
        found += [obj.stored[name] for obj, name in self._attributes.values()]
        found += [obj for obj, _ in self._attributes.values()]
        for value in self._changed.values():
            if isinstance(value, CellValue):
                found += [value._contents] if value._contents is not None else []
            elif isinstance(value, ContainerValue):
                found += value.held()
        return [v for v in found if v is not UNBOUND]

    def replay(self, emit: Emitter) -> None:
        """Generate the writes: first load everything, then write."""
        for token in self.tokens:
            emit.keep(token)
        writes = [self._global_write(emit, *g) for g in self._globals.values()]
        writes += [self._attribute_write(emit, *a) for a in self._attributes.values()]
        writes += [self._contents_write(emit, v) for v in self._changed.values()]
        for write in writes:
            write()

    def _global_write(self, emit: Emitter, module: Held | None, name: str, value: Value) -> Any:
        if value is UNBOUND:
            return lambda: self._global_delete(emit, name)
        emit.keep_unless_fixed(value)

        def write() -> None:
            emit.load_kept(value)
            if module is None:
                emit.store_global(name)
            else:
                module.load(emit)
                emit.constant(name)
                emit.store_subscript()

        return write

    def _global_delete(self, emit: Emitter, name: str) -> None:
        # it may have come into being in this frame, and then only this store makes it exist
        emit.constant(None)
        emit.store_global(name)
        emit.delete_global(name)

    def _attribute_write(self, emit: Emitter, obj: ObjectValue | TensorValue, name: str) -> Any:
        owner, value = emit.keep(obj), obj.stored[name]
        if value is not UNBOUND:
            emit.keep_unless_fixed(value)

        def write() -> None:
            if value is UNBOUND:
                emit.call_loaded(delete_attribute, [lambda: emit.load_temp(owner), lambda: emit.constant(name)])
                emit.pop()
            elif isinstance(obj, ObjectValue) and obj.stores_directly:
                loads = [lambda: emit.load_temp(owner), lambda: emit.constant(name), lambda: emit.load_kept(value)]
                emit.call_loaded(object.__setattr__, loads)
                emit.pop()
            else:
                emit.load_kept(value)
                emit.load_temp(owner)
                emit.store_attr(name)

        return write

    def _contents_write(self, emit: Emitter, value: Value) -> Any:
        assert value.source is not None
        if isinstance(value, CellValue):
            return self._cell_write(emit, value)
        owner = emit.keep(value)
        assert isinstance(value, ContainerValue)
        contents = emit.keep_with(lambda: value.rebuild_contents(emit))
        replace = _replacement(value)

        def write() -> None:
            emit.call_loaded(replace, [lambda: emit.load_temp(owner), lambda: emit.load_temp(contents)])
            emit.pop()

        return write

    def _cell_write(self, emit: Emitter, cell: CellValue) -> Any:
        assert cell._contents is not None and cell.source is not None
        contents, source = cell._contents, cell.source
        emit.keep_unless_fixed(contents)

        def write() -> None:
            if isinstance(source, FreeCell):
                emit.load_kept(contents)
                emit.store_cell(source.name)
            else:
                emit.call_loaded(fill_cell, [lambda: source.load(emit), lambda: emit.load_kept(contents)])
                emit.pop()

        return write


def _replacement(value: ContainerValue) -> Any:
    """The function that gives an outside container its new contents."""
    if isinstance(value, ListValue) and value._values is None:
        return list.extend
    if isinstance(value, DequeValue):
        return replace_deque
    if isinstance(value, ListValue):
        return replace_list
    return replace_dict if isinstance(value, DictValue) else replace_set


def replace_deque(target: deque[Any], contents: list[Any]) -> None:
    """Called by generated code."""
    target.clear()
    target.extend(contents)


def replace_list(target: list[Any], contents: list[Any]) -> None:
    """Called by generated code."""
    list.__setitem__(target, slice(None), contents)


def replace_dict(target: dict[Any, Any], contents: dict[Any, Any]) -> None:
    """Called by generated code."""
    base = OrderedDict if isinstance(target, OrderedDict) else dict
    base.clear(target)
    for key, value in contents.items():
        base.__setitem__(target, key, value)


def delete_attribute(owner: Any, name: str) -> None:
    """Called by generated code.  The attribute may have come into being in the frame, and never lain on `owner`."""
    with contextlib.suppress(AttributeError):
        object.__delattr__(owner, name)


def fill_cell(cell: types.CellType, contents: Any) -> None:
    """Called by generated code."""
    cell.cell_contents = contents
