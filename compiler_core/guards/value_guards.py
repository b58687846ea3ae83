"""Kinds of guards on one Python object: its value, identity, type, length, keys and attributes."""

from __future__ import annotations

import types
from typing import Any

from compiler_core.guards.constants import LIBRARY_CONSTANTS, NUMPY_NUMBERS, dict_keys, same_constant, same_keys
from compiler_core.guards.kinds import ABSENT, PRESENT, GuardKind, PythonGuardKind, guard_kind, unless
from compiler_core.guards.lifetimes import WeakBox, make_box
from compiler_core.guards.sources import Box
from compiler_core.records.recompiles import Mismatch
from compiler_core.support.interrupts import guard_function
from compiler_core.support.safe_repr import safe_repr


@guard_kind("EQUALS_MATCH")
class EqualsMatch(GuardKind):
    """The object is a constant of the same type and value (`same_constant`)."""

    aspect = "value"

    def code(self, source: str, value: Any) -> str:
        by_identity = value is None or isinstance(value, bool)
        return f"{source} {'is' if by_identity else '=='} {safe_repr(value)}"

    def difference(self, obj: Any, value: Any) -> str | Mismatch | None:
        if same_constant(obj, value):
            return None
        if type(obj) is type(value) or obj is None:
            return safe_repr(obj)
        found, shown = type(obj).__qualname__, safe_repr(obj)
        if value is None:
            return f"a {found}" if shown.startswith("<") else shown
        return Mismatch("class", type(value).__qualname__, found)

    def add(self, manager: Any, value: Any, code_parts: list[str]) -> None:
        if value is None:
            manager.add_none_match_guard(code_parts, None)
        elif value is True:
            manager.add_true_match_guard(code_parts, None)
        elif value is False:
            manager.add_false_match_guard(code_parts, None)
        elif _needs_same_constant(value):
            manager.add_lambda_guard(guard_function(lambda obj: same_constant(obj, value)), code_parts, None)
        else:
            manager.add_equals_match_guard(value, code_parts, None)  # it compares the type too


def _needs_same_constant(value: Any) -> bool:
    """Whether ``==`` is not enough: it holds of 0.0 and -0.0, and of the decimals 1.0 and 1.00, but not of one NaN."""
    if type(value) is float:
        return value == 0 or value != value
    return isinstance(value, (float, complex, *NUMPY_NUMBERS)) or type(value) in LIBRARY_CONSTANTS


@guard_kind("ID_MATCH")
class IdMatch(GuardKind):
    """The object is this one."""

    aspect = "identity"

    def guarded_value(self, value: Any) -> Box:
        return make_box(value)

    def code(self, source: str, value: Box) -> str:
        return f"id({source}) == {value.address}  # {_name_in_box(value)}"

    def expected(self, value: Box) -> str:
        return _name_in_box(value)

    def difference(self, obj: Any, value: Box) -> str | None:
        if obj is value.value:
            return None
        found = _name_of(obj)
        return f"another {found}" if found == _name_in_box(value) else found

    def add(self, manager: Any, value: Box, code_parts: list[str]) -> None:
        manager.add_id_match_guard(value.address, code_parts, None)


def _name_in_box(box: Box) -> str:
    return f"<{box.name}>" if isinstance(box, WeakBox) else _name_of(box.value)


def _name_of(obj: Any) -> str:
    """Returns the name of an object, or that of its type, without calling a ``__getattr__`` of the user's."""
    if isinstance(obj, types.CodeType):
        return obj.co_name if "<" in obj.co_name else f"<{obj.co_name}>"
    name = None
    if isinstance(obj, type) or not hasattr(type(obj), "__getattr__"):
        name = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None)
    if name and name.startswith(_OF_TORCH):
        return f"torch.{name.removeprefix(_OF_TORCH)}"
    return name if name and "<" in name else f"<{name or type(obj).__name__}>"


_OF_TORCH = "_VariableFunctionsClass."
"""How the qualified names of the C functions of `torch` start."""


@guard_kind("TYPE_MATCH")
class TypeMatch(GuardKind):
    """``type(obj)`` is this class."""

    aspect = "class"

    def guarded_value(self, value: Any) -> Box:
        return make_box(type(value))

    def code(self, source: str, value: Box) -> str:
        return f"type({source}) is {value.name}"

    def expected(self, value: Box) -> str:
        return str(value.name)

    def difference(self, obj: Any, value: Box) -> str | None:
        return unless(type(obj) is value.value, type(obj).__qualname__)

    def add(self, manager: Any, value: Box, code_parts: list[str]) -> None:
        manager.add_type_match_guard(value.address, code_parts, None)


@guard_kind("LENGTH")
class Length(GuardKind):
    """``len(obj)`` of a sequence."""

    aspect = "length"

    def code(self, source: str, value: int) -> str:
        return f"len({source}) == {value}"

    def difference(self, obj: Any, value: int) -> str | None:
        return unless(len(obj) == value, str(len(obj)))

    def add(self, manager: Any, value: int, code_parts: list[str]) -> None:
        manager.add_length_check_guard(value, code_parts, None)


@guard_kind("DICT_LENGTH")
class DictLength(Length):
    """``len(obj)`` of a dict."""

    def add(self, manager: Any, value: int, code_parts: list[str]) -> None:
        manager.add_dict_length_check_guard(value, code_parts, None)


@guard_kind("DICT_KEYS")
class DictKeys(PythonGuardKind):
    """The keys of a dict, in their order."""

    aspect = "keys"

    def code(self, source: str, value: Any) -> str:
        return f"list({source}) == {safe_repr(value)}"

    def holds(self, obj: Any, value: Any) -> bool:
        return same_keys(dict_keys(obj), value)

    def difference(self, obj: Any, value: Any) -> str | None:
        return unless(self.holds(obj, value), list(dict_keys(obj)))


@guard_kind("DICT_CONTAINS")
class DictLacksKey(GuardKind):
    """A dict does not have this key.  (The name is PyTorch's for both cases; `DICT_HAS` is the other one.)"""

    def code(self, source: str, value: Any) -> str:
        return f"{safe_repr(value)} not in {source}"

    def expected(self, value: Any) -> str:
        return f"no {safe_repr(value)}"

    def difference(self, obj: Any, value: Any) -> Mismatch | None:
        return Mismatch("key", ABSENT, PRESENT, item=safe_repr(value)) if value in obj else None

    def add(self, manager: Any, value: Any, code_parts: list[str]) -> None:
        manager.add_dict_contains_guard(False, value, code_parts, None)


@guard_kind("DICT_HAS")
class DictHasKey(GuardKind):
    """A dict has this key."""

    def code(self, source: str, value: Any) -> str:
        return f"{safe_repr(value)} in {source}"

    def difference(self, obj: Any, value: Any) -> Mismatch | None:
        return None if value in obj else Mismatch("key", PRESENT, ABSENT, item=safe_repr(value))

    def add(self, manager: Any, value: Any, code_parts: list[str]) -> None:
        manager.add_dict_contains_guard(True, value, code_parts, None)


@guard_kind("SET_EQUALS")
class SetEquals(PythonGuardKind):
    """A set of the same type and contents."""

    aspect = "items"

    def guarded_value(self, value: Any) -> Any:
        return value.copy()

    def code(self, source: str, value: Any) -> str:
        return f"{source} == {{{', '.join(map(safe_repr, value))}}}" if value else f"{source} == set()"

    def holds(self, obj: Any, value: Any) -> bool:
        return type(obj) is type(value) and bool(obj == value)


@guard_kind("SET_ORDER")
class SetOrder(PythonGuardKind):
    """The order in which a set is iterated over."""

    aspect = "order"

    def guarded_value(self, value: Any) -> list[Any]:
        return list(value)

    def code(self, source: str, value: list[Any]) -> str:
        return f"list({source}) == {safe_repr(value)}"

    def holds(self, obj: Any, value: list[Any]) -> bool:
        return same_keys(obj, value)

    def difference(self, obj: Any, value: list[Any]) -> str | None:
        return unless(self.holds(obj, value), list(obj))


@guard_kind("NO_ATTRIBUTE")
class NoAttribute(GuardKind):
    """The object has no attribute of this name."""

    def code(self, source: str, value: str) -> str:
        return f"not hasattr({source}, {value!r})"

    def expected(self, value: str) -> str:
        return f"no attribute {value!r}"

    def difference(self, obj: Any, value: Any) -> Mismatch | None:
        return Mismatch("attribute", ABSENT, PRESENT, item=value) if hasattr(obj, value) else None

    def add(self, manager: Any, value: str, code_parts: list[str]) -> None:
        manager.add_no_hasattr_guard(value, code_parts, None)


@guard_kind("RETURNS")
class Returns(PythonGuardKind):
    """A call of the object without arguments returns this."""

    aspect = "result"

    def code(self, source: str, value: Any) -> str:
        return f"{source}() == {safe_repr(value)}"

    def holds(self, obj: Any, value: Any) -> bool:
        return bool(obj() == value)

    def difference(self, obj: Any, value: Any) -> str | None:
        returned = obj()
        return unless(returned == value, returned)
