"""Sets and frozensets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import Value, raised
from compiler_core.capture.values.builtin.containers import ContainerValue
from compiler_core.capture.values.builtin.iterators import IteratorValue, over
from compiler_core.capture.values.builtin.keys import has_fixed_order, hashable
from compiler_core.capture.values.builtin.mappings import DictValue, DictViewValue
from compiler_core.capture.values.builtin.sequences import ListValue, SequenceValue
from compiler_core.capture.values.constant import NONE, ConstantValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import Source

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter


class SetValue(ContainerValue):
    """A set or frozenset.

    `members` is a set of Python's on which every operation is done that the program does, so that it
    has the order that the program's set has; `added` is the order in which rebuilding adds them.
    Of a set from outside the whole contents are guarded, and their order once it matters.
    """

    def __init__(self, members: Iterable[Any], cls: type = set, source: Source | None = None, real: Any = None) -> None:
        self.added: dict[Any, None] = dict.fromkeys(members)
        self.members: Any = real.copy() if real is not None else cls(list(self.added))
        self.cls = cls
        self.mutable = cls is set
        self.source = source
        self.real = real
        self.is_changed = False

    @classmethod
    def made(cls, members: set[Any] | frozenset[Any]) -> SetValue:
        """One that an operation made: its order is that of `members`."""
        made = cls(members, type(members))
        made.members = members
        return made

    def __repr__(self) -> str:
        return self.source.text if self.source else f"{self.cls.__name__} of {len(self.members)}"

    def load(self, tx: Interpreter) -> None:
        if self.source is not None:
            tx.capture.guard("SET_EQUALS", self.source, self.real)

    def is_constant(self) -> bool:
        return self.source is None and self.cls is frozenset and not any(isinstance(m, Value) for m in self.members)

    def constant(self, tx: Interpreter) -> Any:
        self._look_at_order(tx)
        return self.members.copy()

    def _look_at_order(self, tx: Interpreter) -> None:
        self.load(tx)
        if self.source is not None:
            tx.capture.guard("SET_ORDER", self.source, self.real)
            if not self.is_changed and list(self.members) != list(self.real):
                raise Unsupported("unsupported iteration", "a set whose order depends on how it came about")
        if len(self.members) > 1 and not all(map(has_fixed_order, self.members)):
            raise Unsupported("unsupported iteration", "the order of a set of objects")

    def items(self, tx: Interpreter) -> list[Value]:
        self._look_at_order(tx)
        return [tx.capture.key_value(m) for m in self.members]

    def iterate(self, tx: Interpreter) -> Value:
        return SetIteratorValue(self.items(tx), self.members)

    def length(self, tx: Interpreter) -> int:
        self.load(tx)
        return len(self.members)

    def contains(self, tx: Interpreter, item: Value) -> bool:
        self.load(tx)
        return hashable(tx, item) in self.members

    # --- changes

    def changed(self, tx: Interpreter) -> None:
        super().changed(tx)
        self.is_changed = True

    def method_add(self, tx: Interpreter, item: Value) -> Value:
        raw = hashable(tx, item)
        self.changed(tx)
        self.members.add(raw)
        self.added.setdefault(raw)
        return NONE

    def method_discard(self, tx: Interpreter, item: Value) -> Value:
        raw = hashable(tx, item)
        self.changed(tx)
        self.members.discard(raw)
        self.added.pop(raw, None)
        return NONE

    def method_remove(self, tx: Interpreter, item: Value) -> Value:
        if not self.contains(tx, item):
            raise raised(KeyError, item)
        return self.method_discard(tx, item)

    def method_pop(self, tx: Interpreter) -> Value:
        self._look_at_order(tx)
        if self.source is not None:
            raise Unsupported("unsupported mutation", "pop from a set from outside")
        if not self.members:
            raise raised(KeyError, "pop from an empty set")
        raw = self.members.pop()
        del self.added[raw]
        return tx.capture.key_value(raw)

    def method_clear(self, tx: Interpreter) -> Value:
        return self._change(tx, "clear")

    def method_update(self, tx: Interpreter, *others: Value) -> Value:
        for other in others:
            if not isinstance(other, ContainerValue) or isinstance(other, SequenceValue):
                for value in over(tx, other):  # one may be refused, and those before it are in the set
                    self.method_add(tx, value)
                continue
            members = as_members(tx, other)
            self.changed(tx)
            self.members.update(members)
            self.added.update((m, None) for m in members if m not in self.added)
        return NONE

    def method_intersection_update(self, tx: Interpreter, *others: Value) -> Value:
        return self._change(tx, "intersection_update", *others)

    def method_difference_update(self, tx: Interpreter, *others: Value) -> Value:
        return self._change(tx, "difference_update", *others)

    def method_symmetric_difference_update(self, tx: Interpreter, other: Value) -> Value:
        return self._change(tx, "symmetric_difference_update", other)

    def _change(self, tx: Interpreter, name: str, *others: Value) -> Value:
        members = [as_members(tx, o) for o in others]
        self.changed(tx)
        getattr(self.members, name)(*members)
        kept = [k for k in self.added if k in self.members]
        self.added = dict.fromkeys([*kept, *self.members])
        return NONE

    def method___init__(self, tx: Interpreter, *others: Value) -> Value:
        self.method_clear(tx)
        return self.method_update(tx, *others)

    # --- new sets and questions

    def _new(self, tx: Interpreter, name: str, *others: Value) -> Value:
        self.load(tx)
        found = getattr(self.cls, name)(self.members, *(as_members(tx, o) for o in others))
        return SetValue.made(found) if isinstance(found, (set, frozenset)) else ConstantValue(found)

    def method_copy(self, tx: Interpreter) -> Value:
        made = self._new(tx, "copy")
        assert isinstance(made, SetValue)
        made.added = dict(self.added)
        return self if self.cls is frozenset else made

    def method_union(self, tx: Interpreter, *others: Value) -> Value:
        return self._new(tx, "union", *others)

    def method_intersection(self, tx: Interpreter, *others: Value) -> Value:
        return self._new(tx, "intersection", *others)

    def method_difference(self, tx: Interpreter, *others: Value) -> Value:
        return self._new(tx, "difference", *others)

    def method_symmetric_difference(self, tx: Interpreter, other: Value) -> Value:
        return self._new(tx, "symmetric_difference", other)

    def method_issubset(self, tx: Interpreter, other: Value) -> Value:
        return self._new(tx, "issubset", other)

    def method_issuperset(self, tx: Interpreter, other: Value) -> Value:
        return self._new(tx, "issuperset", other)

    def method_isdisjoint(self, tx: Interpreter, other: Value) -> Value:
        return self._new(tx, "isdisjoint", other)

    # --- across a break

    def plain(self) -> Value:
        return SetValue(self.added)

    def held(self) -> list[Value]:
        return [m for m in self.members if isinstance(m, Value)]

    def rebuild(self, emit: Emitter) -> None:
        if all(map(has_fixed_order, self.members)) and list(self.cls(list(self.added))) != list(self.members):
            raise Unsupported("unsupported operation", "a set whose order depends on how it came about")
        emit.call_object(self.cls, [ListValue([emit.capture.key_value(k) for k in self.added])])

    def rebuild_contents(self, emit: Emitter) -> None:
        rehearsed = set(self.real)
        replace_set(rehearsed, list(self.added))
        if all(map(has_fixed_order, self.members)) and list(rehearsed) != list(self.members):
            raise Unsupported("unsupported mutation", "a set whose order depends on how it came about")
        emit.build("BUILD_LIST", [emit.capture.key_value(k) for k in self.added])


def replace_set(target: set[Any], contents: list[Any]) -> None:
    """Called by generated code."""
    set.update(target, contents)
    for member in set(target).difference(contents):
        set.discard(target, member)


class SetIteratorValue(IteratorValue):
    """An iterator over a set, which may not change its size meanwhile."""

    def __init__(self, values: list[Value], members: Any) -> None:
        super().__init__(values)
        self.members = members
        self.size = len(members)

    def next_value(self, tx: Interpreter) -> Value | None:
        if len(self.members) != self.size:
            raise raised(RuntimeError, "Set changed size during iteration")
        return super().next_value(tx)


def as_members(tx: Interpreter, value: Value) -> Any:
    """What an operation of sets takes in place of `value`: of the same kind, where the kind matters."""
    if isinstance(value, SetValue):
        value.load(tx)
        return value.members
    if isinstance(value, DictValue):
        return value.mapping(tx)
    if isinstance(value, DictViewValue) and value.what == "keys":
        return value.of.mapping(tx).keys()
    return [hashable(tx, v) for v in tx.list_of(value)]
