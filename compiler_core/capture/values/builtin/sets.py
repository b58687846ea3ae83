"""Sets and frozensets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import Args, Kwargs, Value, observed_exception
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.builtin.containers import (
    ContainerValue,
    IteratorValue,
    has_fixed_order,
    iterate_over,
)
from compiler_core.capture.values.builtin.mappings import DictValue, DictViewValue
from compiler_core.capture.values.builtin.sequences import ListValue, SequenceValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import Source, contents_of_set

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter


_READING = frozenset("union intersection difference symmetric_difference issubset issuperset isdisjoint".split())
"""Methods that return a new set or a bool."""
_UPDATING = frozenset({"intersection_update", "difference_update", "symmetric_difference_update"})


class SetValue(ContainerValue):
    """A set or frozenset.

    `members` is a Python set on which all operations of the program are done, so it has the same order as the
    program's set.  `added` has the order in which `reconstruct` adds the members.  A set from outside is guarded on its
    whole contents, and on its order once capture depends on that.
    """

    def __init__(self, members: Iterable[Any], cls: Any = set, source: Source | None = None, real: Any = None) -> None:
        self.added: dict[Any, None] = dict.fromkeys(members)
        self.members: Any = cls.copy(real) if real is not None else cls(list(self.added))
        self.cls = cls
        self.mutable = cls is set
        self.source = source
        self.real = real
        self.is_changed = False

    @classmethod
    def from_members(cls, members: set[Any] | frozenset[Any]) -> SetValue:
        """Makes the value of a set that an operation on sets returned, with the order of `members`."""
        result = cls(members, type(members))
        result.members = members
        return result

    def __repr__(self) -> str:
        return self.source.text if self.source else f"{self.cls.__name__} of {len(self.members)}"

    def load(self, tx: Interpreter) -> None:
        if self.source is None or type(self.real) is self.cls:
            tx.guards.add("SET_EQUALS", self.source, self.real)
        else:
            tx.guards.add("TYPE_MATCH", self.source, self.real)
            tx.guards.add("SET_EQUALS", contents_of_set(self.source, self.cls), self.cls.copy(self.real))

    def is_constant(self) -> bool:
        return self.source is None and self.cls is frozenset and not any(isinstance(m, Value) for m in self.members)

    def constant(self, tx: Interpreter) -> Any:
        self._guard_order(tx)
        return self.members.copy()

    def _guard_order(self, tx: Interpreter) -> None:
        """Guards the order of an outside set; Unsupported if the order is not the same in each run."""
        self.load(tx)
        if self.source is not None:
            tx.guards.add("SET_ORDER", self.source, self.real)
            if not self.is_changed and list(self.members) != list(self.real):
                raise Unsupported("unsupported iteration", "a set whose order depends on the history of its changes")
        if len(self.members) > 1 and not all(map(has_fixed_order, self.members)):
            raise Unsupported("unsupported iteration", "the order of a set of objects")

    def unpack(self, tx: Interpreter) -> list[Value]:
        self._guard_order(tx)
        return [tx.outside.key_value(m) for m in self.members]

    def iterate(self, tx: Interpreter) -> Value:
        return SetIteratorValue(self.unpack(tx), self.members)

    def length(self, tx: Interpreter) -> int:
        self.load(tx)
        return len(self.members)

    def contains(self, tx: Interpreter, item: Value) -> bool:
        self.load(tx)
        return item.as_key(tx) in self.members

    # --- changes

    def prepare_mutation(self, tx: Interpreter) -> None:
        super().prepare_mutation(tx)
        self.is_changed = True

    def method_add(self, tx: Interpreter, item: Value) -> Value:
        raw = item.as_key(tx)
        self.prepare_mutation(tx)
        self.members.add(raw)
        self.added.setdefault(raw)
        return NONE

    def method_discard(self, tx: Interpreter, item: Value) -> Value:
        raw = item.as_key(tx)
        self.prepare_mutation(tx)
        self.members.discard(raw)
        self.added.pop(raw, None)
        return NONE

    def method_remove(self, tx: Interpreter, item: Value) -> Value:
        if not self.contains(tx, item):
            raise observed_exception(KeyError, item)
        return self.method_discard(tx, item)

    def method_pop(self, tx: Interpreter) -> Value:
        self._guard_order(tx)
        if self.source is not None:
            raise Unsupported("unsupported mutation", "pop from a set from outside")
        if not self.members:
            raise observed_exception(KeyError, "pop from an empty set")
        raw = self.members.pop()
        del self.added[raw]
        return tx.outside.key_value(raw)

    def method_clear(self, tx: Interpreter) -> Value:
        return self._update_in_place(tx, "clear")

    def method_update(self, tx: Interpreter, *others: Value) -> Value:
        for other in others:
            if not isinstance(other, ContainerValue) or isinstance(other, SequenceValue):
                for value in iterate_over(tx, other):  # if this raises, the values so far remain in the set
                    self.method_add(tx, value)
                continue
            members = set_operand(tx, other)
            self.prepare_mutation(tx)
            self.members.update(members)
            self.added.update((m, None) for m in members if m not in self.added)
        return NONE

    def _update_in_place(self, tx: Interpreter, name: str, *others: Value) -> Value:
        members = [set_operand(tx, o) for o in others]
        self.prepare_mutation(tx)
        getattr(self.members, name)(*members)
        remaining = [k for k in self.added if k in self.members]
        self.added = dict.fromkeys([*remaining, *self.members])
        return NONE

    def method___init__(self, tx: Interpreter, *others: Value) -> Value:
        self.method_clear(tx)
        return self.method_update(tx, *others)

    # --- methods that return new sets or bools

    def _call_set_method(self, tx: Interpreter, name: str, *others: Value) -> Value:
        self.load(tx)
        found = getattr(self.cls, name)(self.members, *(set_operand(tx, o) for o in others))
        return SetValue.from_members(found) if isinstance(found, (set, frozenset)) else ConstantValue(found)

    def method_copy(self, tx: Interpreter) -> Value:
        copied = self._call_set_method(tx, "copy")
        assert isinstance(copied, SetValue)
        copied.added = dict(self.added)
        return self if self.cls is frozenset and self.owner is None else copied

    def call_method(self, tx: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name in _READING | _UPDATING and not kwargs and hasattr(self.cls, name):
            try:
                return (self._call_set_method if name in _READING else self._update_in_place)(tx, name, *args)
            except TypeError as error:  # wrong arguments
                raise Unsupported("exception", str(error)) from None
        return super().call_method(tx, name, args, kwargs)

    # --- across a break

    def known_values(self) -> list[Value]:
        return [m for m in self.members if isinstance(m, Value)]

    def listed(self, emit: Emitter) -> ListValue:
        """Returns the members as they were added; Unsupported if a set that is made of them has another order."""
        if all(map(has_fixed_order, self.members)) and list(self.cls(list(self.added))) != list(self.members):
            raise Unsupported("unsupported operation", "a set whose order depends on the history of its changes")
        return ListValue([emit.capture.outside.key_value(k) for k in self.added])

    def reconstruct(self, emit: Emitter) -> None:
        emit.call_object(self.cls, [self.listed(emit)])

    def reconstruct_contents(self, emit: Emitter) -> None:
        replayed = set(self.real)
        replace_set(replayed, list(self.added))
        if all(map(has_fixed_order, self.members)) and list(replayed) != list(self.members):
            raise Unsupported("unsupported mutation", "a set whose order depends on the history of its changes")
        emit.build("BUILD_LIST", [emit.capture.outside.key_value(k) for k in self.added])


def replace_set(target: set[Any], contents: list[Any]) -> None:
    """Called by generated code: replays the mutations of an outside set."""
    set.update(target, contents)
    for member in set(target).difference(contents):
        set.discard(target, member)


class SetIteratorValue(IteratorValue):
    """An iterator over a set; it raises if the size of the set changes during iteration."""

    def __init__(self, values: list[Value], members: Any) -> None:
        super().__init__(values)
        self.members = members
        self.size = len(members)

    def next_value(self, tx: Interpreter) -> Value | None:
        if len(self.members) != self.size:
            raise observed_exception(RuntimeError, "Set changed size during iteration")
        return super().next_value(tx)


def set_operand(tx: Interpreter, value: Value) -> Any:
    """Returns the Python object that stands for `value` in an operation of sets: a set, dict, keys view or list."""
    if isinstance(value, SetValue):
        value.load(tx)
        return value.members
    if isinstance(value, DictValue):
        return value.mapping(tx)
    if isinstance(value, DictViewValue) and value.view_kind == "keys":
        return value.dict_value.mapping(tx).keys()
    return [v.as_key(tx) for v in tx.list_of(value)]
