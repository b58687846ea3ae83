"""Guards and their kinds: how each kind is printed, checked in Python and installed in PyTorch's C++ guard tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from compiler_core.guards.sources import Scope, Source
from compiler_core.records import ItemId
from compiler_core.support.interrupts import GUARD_FAILURES, guard_function
from compiler_core.support.safe_repr import safe_repr

if TYPE_CHECKING:
    from compiler_core.guards.tree import GuardTree

MISSING: Any = object()
"""Stands for the value of a source that no longer leads to anything."""
IMMUTABLE_EXAMPLE = 0
"""An example value for managers of items: C++ skips an item with an immutable example while the version of its dict is
unchanged."""


class Mismatch(NamedTuple):
    """Why a guard does not hold."""

    expected: str
    got: str


@dataclass(frozen=True)
class GuardSpec:
    """One guard: a condition of kind `kind` on the value at `source`.

    `value` is what the condition compares with: what `guarded_value` returned at capture.  `line` is the user's line
    at which capture first depended on the condition.
    """

    kind: str
    source: Source
    value: Any
    line: ItemId | None = None

    @property
    def text(self) -> str:
        """The condition as a Python expression."""
        return KINDS[self.kind].code(self.source.text, self.value)

    @property
    def expected(self) -> str:
        """What the condition expects, for messages."""
        return KINDS[self.kind].expected(self.value)

    def check(self, scope: Scope) -> Mismatch | None:
        """Checks the guard in Python; returns None if it holds."""
        try:
            obj = self.source.fetch(scope)
        except GUARD_FAILURES:
            obj = MISSING
        got = KINDS[self.kind].check(self, obj, scope)
        return Mismatch(self.expected, got) if isinstance(got, str) else got


class GuardKind:
    """A kind of guard.

    A kind that depends on one object only needs `difference` and `add`; others override `check` and `install`.
    """

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
        return "nothing there" if obj is MISSING else self.difference(obj, guard.value)

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
