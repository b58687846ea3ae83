"""Opcodes of the match statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.bytecode import Instruction
from compiler_core.capture.opcodes.stack import InterpreterState
from compiler_core.capture.rules.table import HANDLERS
from compiler_core.capture.values.base import ObservedException, Value, observed_exception
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.capture.values.builtin.keys import to_key
from compiler_core.capture.values.builtin.mappings import DictValue
from compiler_core.capture.values.builtin.sequences import TupleValue
from compiler_core.capture.values.builtin.static import StaticValue
from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    pass

IS_SEQUENCE, IS_MAPPING, MATCHES_ITSELF = 1 << 5, 1 << 6, 1 << 22  # flags of a type
MISSING = StaticValue(object())


class MatchOpcodes(InterpreterState):
    """The match statement."""

    def MATCH_SEQUENCE(self, instruction: Instruction) -> None:
        self.push(ConstantValue(self._has_flag(IS_SEQUENCE)))

    def MATCH_MAPPING(self, instruction: Instruction) -> None:
        self.push(ConstantValue(self._has_flag(IS_MAPPING)))

    def _has_flag(self, flag: int) -> bool:
        subject = self.stack[-1]
        subject.install_guards(self._tx)
        return bool(subject.python_type().__flags__ & flag)

    def GET_LEN(self, instruction: Instruction) -> None:
        self.push(ConstantValue(self.stack[-1].length(self._tx)))

    def MATCH_KEYS(self, instruction: Instruction) -> None:
        subject, keys = self.stack[-2], self.stack[-1]
        found = self._values_at(subject, keys.unpack(self._tx))
        self.push(NONE if found is None else TupleValue(found))

    def _values_at(self, subject: Value, keys: Sequence[Value]) -> list[Value] | None:
        """Returns the values that a mapping has at these keys; None if one is missing."""
        found: dict[Any, Value] = {}
        for key in keys:
            raw = to_key(self._tx, key)
            if raw in found:
                raise Unsupported("exception", "a mapping pattern checks a key twice")
            found[raw] = self._value_at(subject, key)
            if found[raw] is MISSING:
                return None
        return list(found.values())

    def _value_at(self, subject: Value, key: Value) -> Value:
        if isinstance(subject, DictValue):
            return subject.lookup(self._tx, to_key(self._tx, key)) or MISSING
        return subject.get_attr(self._tx, "get").call(self._tx, [key, MISSING], {})

    def MATCH_CLASS(self, instruction: Instruction) -> None:
        subject, wanted, names = self.pop_many(3)
        cls = wanted.constant(self._tx)
        if not isinstance(cls, type):
            raise observed_exception(TypeError, "called match pattern must be a class")
        is_instance = HANDLERS[isinstance](self._tx, subject, wanted)
        if not is_instance.truth(self._tx):
            self.push(NONE)
            return
        found = self._captured_values(subject, wanted, cls, instruction.arg or 0, names.constant(self._tx))
        self.push(NONE if found is None else TupleValue(found))

    def _captured_values(
        self, subject: Value, wanted: Value, cls: Any, n: int, names: tuple[str, ...]
    ) -> list[Value] | None:
        """Returns the attributes that `n` positional and the named patterns match; None if one is missing."""
        found: list[Value] = []
        if n:
            positional = self._match_args(wanted)
            if positional is None and cls.__flags__ & MATCHES_ITSELF:
                found, positional, n = [subject], (), n - 1
            if n > len(positional or ()):
                raise _too_many(cls, len(positional or ()) + len(found), n + len(found))
            names = (positional or ())[:n] + names
        if len(set(names)) < len(names):
            raise Unsupported("exception", f"{cls.__name__}() got an attribute twice")
        for name in names:
            try:
                found.append(subject.get_attr(self._tx, name))
            except ObservedException as error:
                if error.matches(AttributeError):
                    return None
                raise
        return found

    def _match_args(self, wanted: Value) -> tuple[str, ...] | None:
        try:
            found = wanted.get_attr(self._tx, "__match_args__").constant(self._tx)
        except Unsupported:
            if hasattr(wanted.constant(self._tx), "__match_args__"):
                raise
            return None
        if type(found) is not tuple or not all(type(name) is str for name in found):
            raise Unsupported("exception", "__match_args__ is not a tuple of names")
        return found


def _too_many(cls: type, allowed: int, given: int) -> ObservedException:
    plural = "" if allowed == 1 else "s"
    return observed_exception(
        TypeError, f"{cls.__name__}() accepts {allowed} positional sub-pattern{plural} ({given} given)"
    )
