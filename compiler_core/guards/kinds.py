"""Guards and their kinds: how each kind is printed, checked in Python and installed in PyTorch's C++ guard tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from compiler_core.guards.sources import AttrSource, GlobalSource, InstanceDictSource, Scope, Source, path
from compiler_core.records import FailedGuard, GuardAspect, ItemId
from compiler_core.records.recompiles import Mismatch
from compiler_core.support.interrupts import GUARD_FAILURES, guard_function
from compiler_core.support.safe_repr import safe_repr

if TYPE_CHECKING:
    from compiler_core.guards.tree import GuardTree

MISSING: Any = object()
"""Stands for the value of a source that no longer leads to anything."""
NOTHING = "nothing there"
ABSENT, PRESENT = "absent", "present"
"""A key, attribute or global."""
IMMUTABLE_EXAMPLE = 0
"""An example value for managers of items: C++ skips an item with an immutable example while the version of its dict is
unchanged."""


@dataclass(frozen=True)
class GuardSpec:
    """One guard: a condition of kind `kind` on the value at `source`.

    `value` is what the condition compares with: what `guarded_value` returned at capture.  `line` is the line
    at which capture first depended on the condition, `caller` for that of a library the user's line that called it.
    """

    kind: str
    source: Source
    value: Any
    line: ItemId | None = None
    caller: ItemId | None = None

    @property
    def text(self) -> str:
        """The condition as a Python expression."""
        return KINDS[self.kind].code(self.source.text, self.value)

    @property
    def expected(self) -> str:
        """What the condition expects, for messages."""
        return KINDS[self.kind].expected(self.value)

    def holds(self, scope: Scope) -> bool:
        """Checks the guard in Python."""
        return KINDS[self.kind].check(self, self.fetch(scope), scope) is None

    def failures(self, scope: Scope) -> list[FailedGuard]:
        """Checks the guard in Python; returns each fact for which it does not hold."""
        obj = self.fetch(scope)
        return [self._failed(obj, found) for found in KINDS[self.kind].differences(self, obj, scope)]

    def fetch(self, scope: Scope) -> Any:
        """Returns the value at the source, or MISSING."""
        try:
            return self.source.fetch(scope)
        except GUARD_FAILURES:
            return MISSING

    def _failed(self, obj: Any, found: Mismatch) -> FailedGuard:
        source = found.of or self.source
        if found.aspect == "key" and isinstance(source, InstanceDictSource):
            found, source = found._replace(aspect="attribute", item=found.item.strip("'\"")), source.base
        return FailedGuard(
            self.kind, self.text.partition("  # ")[0], source.text, source.shown, found.aspect, found.expected,
            found.got, self.line, list(found.dims), found.item, found.is_specialised,
            found.is_broadcast, _place(source), "" if obj is MISSING else type(obj).__qualname__, caller=self.caller,
        )  # fmt: skip


def _place(source: Source) -> Literal["argument", "global", "attribute"]:
    steps = list(path(source))
    if any(isinstance(step, (AttrSource, InstanceDictSource)) for step in steps):
        return "attribute"
    return "global" if isinstance(steps[-1], GlobalSource) else "argument"


class GuardKind:
    """A kind of guard.

    A kind that depends on one object only needs `aspect`, `difference` and `add`; others override `check` and
    `install`.
    """

    aspect: GuardAspect = "other"
    """What of the object it compares."""

    def guarded_value(self, value: Any) -> Any:
        """Returns what a guard keeps of `value`, which `Capture.guard` was called with."""
        return value

    def code(self, source: str, value: Any) -> str:
        """Returns the condition as a Python expression.  A comment may follow it."""
        raise NotImplementedError

    def expected(self, value: Any) -> str:
        """Returns what the condition expects, for messages."""
        return safe_repr(value)

    def difference(self, obj: Any, value: Any) -> str | Mismatch | None:
        """Compares `obj` with `value`; returns None if the condition holds, else what was found."""
        raise NotImplementedError

    def check(self, guard: GuardSpec, obj: Any, scope: Scope) -> str | Mismatch | None:
        """Checks `guard` in a frame's scope.

        `obj` is the value at the guard's source, or MISSING.  Returns the same as `difference`.
        """
        return NOTHING if obj is MISSING else self.difference(obj, guard.value)

    def differences(self, guard: GuardSpec, obj: Any, scope: Scope) -> list[Mismatch]:
        """Returns each fact for which `guard` does not hold; the arguments are those of `check`."""
        found = self.check(guard, obj, scope)
        if isinstance(found, str):
            return [Mismatch(self.aspect, guard.expected, found)]
        return [] if found is None else [found]

    def add(self, manager: Any, value: Any, code_parts: list[str]) -> None:
        """Adds the check to `manager`, the C++ guard manager of the guard's source."""
        raise NotImplementedError

    def install(self, tree: GuardTree, guard: GuardSpec, code_parts: list[str]) -> None:
        """Installs `guard` in the C++ tree.  `code_parts` is what PyTorch reports if it fails."""
        self.add(tree.manager(guard.source), guard.value, code_parts)


class PythonGuardKind(GuardKind):
    """A kind that the C++ tree cannot check: the tree calls `holds`."""

    def holds(self, obj: Any, value: Any) -> bool:
        raise NotImplementedError

    def difference(self, obj: Any, value: Any) -> str | Mismatch | None:
        return unless(self.holds(obj, value), obj)

    def add(self, manager: Any, value: Any, code_parts: list[str]) -> None:
        manager.add_lambda_guard(guard_function(lambda obj: self.holds(obj, value)), code_parts, None)


KINDS: dict[str, GuardKind] = {}
"""All kinds of guards by name.  The modules that define kinds fill it when the package is imported."""

KindType = TypeVar("KindType", bound=type[GuardKind])


def guard_kind(name: str) -> Callable[[KindType], KindType]:
    """Registers the decorated class as the kind `name`."""

    def register(cls: KindType) -> KindType:
        KINDS[name] = cls()
        return cls

    return register


def guarded_value(kind: str, value: Any) -> Any:
    """Returns what a guard of this kind keeps of `value`.

    It is not the object itself where a fact about the object is enough.  For a comparison of identities it is a box
    (`lifetimes.py`), which holds the object weakly if the program may drop it.
    """
    return KINDS[kind].guarded_value(value)


def unless(holds: bool, found: Any) -> str | None:
    """Returns None if a condition holds, else `found` as text."""
    if holds:
        return None
    return found if isinstance(found, str) else safe_repr(found)
