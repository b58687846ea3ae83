"""Kinds of guards on several objects: identity of one with another, and conditions on sizes and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.guards.conditions import Condition, compile_conditions
from compiler_core.guards.kinds import NOTHING, GuardKind, GuardSpec, guard_kind
from compiler_core.guards.sources import Scope, Source, TensorPropertySource
from compiler_core.records.recompiles import Mismatch
from compiler_core.support.interrupts import GUARD_FAILURES, guard_function
from compiler_core.support.safe_repr import safe_repr
from compiler_core.torch_private import C_guards as cpp

if TYPE_CHECKING:
    from compiler_core.guards.tree import GuardTree


@guard_kind("SAME_OBJECT")
class SameObject(GuardKind):
    """The objects at the guard's source and at `value`, another source, are one."""

    def code(self, source: str, value: Source) -> str:
        return f"{source} is {value.text}"

    def expected(self, value: Source) -> str:
        return f"the object at {value.text}"

    def check(self, guard: GuardSpec, obj: Any, scope: Scope) -> Mismatch | None:
        if _leads_to(scope, guard.value, obj):
            return None
        return Mismatch("aliasing", "one object", "two objects", item=guard.value.shown)

    def install(self, tree: GuardTree, guard: GuardSpec, code_parts: list[str]) -> None:
        cpp.install_object_aliasing_guard(tree.manager(guard.source), tree.manager(guard.value), code_parts, None)


@guard_kind("NOT_SAME_OBJECT")
class NotSameObject(GuardKind):
    """The objects at the guard's source and at `value`, another source, are different."""

    def code(self, source: str, value: Source) -> str:
        return f"{source} is not {value.text}"

    def expected(self, value: Source) -> str:
        return f"not the object at {value.text}"

    def check(self, guard: GuardSpec, obj: Any, scope: Scope) -> Mismatch | None:
        if not _leads_to(scope, guard.value, obj):
            return None
        return Mismatch("aliasing", "two objects", "one object", item=guard.value.shown)

    def install(self, tree: GuardTree, guard: GuardSpec, code_parts: list[str]) -> None:
        def holds(f_locals: dict[str, Any]) -> bool:
            return guard.holds(tree.scope_of(f_locals))

        root: Any = tree.root
        root.add_epilogue_lambda_guard(guard_function(holds), code_parts, None)


@guard_kind("ALL_DIFFERENT")
class AllDifferent(GuardKind):
    """The objects at the guard's source and at `value`, a tuple of sources, are all different."""

    def code(self, source: str, value: Sequence[Source]) -> str:
        return f"all_different({', '.join([source, *(other.text for other in value)])})"

    def expected(self, value: Sequence[Source]) -> str:
        return "objects that are not one and the same"

    def check(self, guard: GuardSpec, obj: Any, scope: Scope) -> Mismatch | None:
        sources = [guard.source, *guard.value]
        first: dict[int, Source] = {}
        for source in sources:
            seen = first.setdefault(id(source.fetch(scope)), source)
            if seen is not source:
                return Mismatch("aliasing", "two objects", "one object", item=source.shown, of=seen)
        return None

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

    aspect = "relation"

    def code(self, source: str, value: Condition) -> str:
        return value.text

    def expected(self, value: Condition) -> str:
        return str(value.text)

    def check(self, guard: GuardSpec, obj: Any, scope: Scope) -> str | Mismatch | None:
        condition: Condition = guard.value
        try:
            if condition.holds(scope):
                return None
            if not condition.expected:
                return Mismatch("relation", condition.shown, condition.current_values(scope), item=condition.shown)
        except GUARD_FAILURES:
            return NOTHING
        source = guard.source
        if not isinstance(source, TensorPropertySource):
            return Mismatch("value", condition.expected, safe_repr(obj), is_specialised=condition.is_specialised)
        return Mismatch(
            "size" if source.method == "size" else "stride", condition.expected, str(obj), (source.index,),
            is_specialised=condition.is_specialised, is_broadcast=source.method == "size" and obj in (0, 1),
            of=source.base,
        )  # fmt: skip

    def install(self, tree: GuardTree, guard: GuardSpec, code_parts: list[str]) -> None:
        install_conditions(tree, [guard])


def install_conditions(tree: GuardTree, guards: Sequence[GuardSpec]) -> None:
    """Installs all conditions of a compile as one Python function."""
    root: Any = tree.root
    holds = compile_conditions([guard.value for guard in guards], tree.scope)
    root.add_epilogue_lambda_guard(guard_function(holds), [guard.text for guard in guards], None)
