"""Kinds of guards on several objects: identity of one with another, and conditions on sizes and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch._C._dynamo import guards as cpp

from compiler_core.guards.conditions import Condition, compile_conditions
from compiler_core.guards.kinds import GuardKind, GuardSpec, guard_kind, unless
from compiler_core.guards.sources import Scope, Source
from compiler_core.support.interrupts import GUARD_FAILURES, guard_function

if TYPE_CHECKING:
    from compiler_core.guards.tree import GuardTree


@guard_kind("SAME_OBJECT")
class SameObject(GuardKind):
    """The objects at the guard's source and at `value`, another source, are one."""

    def code(self, source: str, value: Source) -> str:
        return f"{source} is {value.text}"

    def expected(self, value: Source) -> str:
        return f"the object at {value.text}"

    def check(self, guard: GuardSpec, obj: Any, scope: Scope) -> str | None:
        return unless(_leads_to(scope, guard.value, obj), "another object")

    def install(self, tree: GuardTree, guard: GuardSpec, code_parts: list[str]) -> None:
        cpp.install_object_aliasing_guard(tree.manager(guard.source), tree.manager(guard.value), code_parts, None)


@guard_kind("NOT_SAME_OBJECT")
class NotSameObject(GuardKind):
    """The objects at the guard's source and at `value`, another source, are different."""

    def code(self, source: str, value: Source) -> str:
        return f"{source} is not {value.text}"

    def expected(self, value: Source) -> str:
        return f"not the object at {value.text}"

    def check(self, guard: GuardSpec, obj: Any, scope: Scope) -> str | None:
        return unless(not _leads_to(scope, guard.value, obj), "the same object")

    def install(self, tree: GuardTree, guard: GuardSpec, code_parts: list[str]) -> None:
        def holds(f_locals: dict[str, Any]) -> bool:
            return guard.check(tree.scope_of(f_locals)) is None

        root: Any = tree.root
        root.add_epilogue_lambda_guard(guard_function(holds), code_parts, None)


@guard_kind("ALL_DIFFERENT")
class AllDifferent(GuardKind):
    """The objects at the guard's source and at `value`, a tuple of sources, are all different."""

    def code(self, source: str, value: Sequence[Source]) -> str:
        return f"all_different({', '.join([source, *(other.text for other in value)])})"

    def expected(self, value: Sequence[Source]) -> str:
        return "objects that are not one and the same"

    def check(self, guard: GuardSpec, obj: Any, scope: Scope) -> str | None:
        found = [id(obj), *(id(source.fetch(scope)) for source in guard.value)]
        return unless(len(set(found)) == len(found), "the same object twice")

    def install(self, tree: GuardTree, guard: GuardSpec, code_parts: list[str]) -> None:
        sources = [guard.source, *guard.value]
        managers, names = [tree.manager(s) for s in sources], [s.text for s in sources]
        # named for tensors, it compares the identity of any objects
        cpp.install_no_tensor_aliasing_guard(managers, names, code_parts, None)


def _leads_to(scope: Scope, source: Source, obj: Any) -> bool:
    try:
        return source.fetch(scope) is obj
    except GUARD_FAILURES:
        return False


@guard_kind("CONDITION")
class ConditionHolds(GuardKind):
    """A `Condition` on sizes and numbers."""

    def code(self, source: str, value: Condition) -> str:
        return value.text

    def expected(self, value: Condition) -> str:
        return str(value.text)

    def check(self, guard: GuardSpec, obj: Any, scope: Scope) -> str | None:
        try:
            return None if guard.value.holds(scope) else guard.value.current_values(scope)
        except GUARD_FAILURES:
            return "nothing there"

    def install(self, tree: GuardTree, guard: GuardSpec, code_parts: list[str]) -> None:
        install_conditions(tree, [guard])


def install_conditions(tree: GuardTree, guards: Sequence[GuardSpec]) -> None:
    """Installs all conditions of a compile as one Python function."""
    root: Any = tree.root
    holds = compile_conditions([guard.value for guard in guards], tree.scope)
    root.add_epilogue_lambda_guard(guard_function(holds), [guard.text for guard in guards], None)
