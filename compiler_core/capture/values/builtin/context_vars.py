"""Context variables and weak references.

Reads of a context variable are guarded, sets are replayed after the graph has run, and a reset undoes a set.
"""

from __future__ import annotations

import contextvars
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.capture.values.base import NamedMethodValue, OutsideValue, Value, observed_exception
from compiler_core.capture.values.builtin.constant import NONE, ConstantValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import UNSET, ContextVarSource, Source, WeakRefCallSource

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter


ContextVar = contextvars.ContextVar[Any]


class ContextVarValue(Value):
    """A `contextvars.ContextVar` from outside."""

    always_true = True
    cls = contextvars.ContextVar

    source: Source

    def __init__(self, real: ContextVar, source: Source) -> None:
        self.real = real
        self.source = source

    def __repr__(self) -> str:
        return self.source.text

    def install_guards(self, tx: Interpreter) -> None:
        tx.capture.guards.add("ID_MATCH", self.source, self.real)

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        self.install_guards(tx)
        if name == "name":
            return ConstantValue(self.real.name)
        return NamedMethodValue(self, name)

    def call_method(self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if name == "get" and len(args) <= 1 and not kwargs:
            return self._get(tx, *args)
        if name == "set" and len(args) == 1 and not kwargs:
            token = TokenValue(self, args[0], tx.capture.effects.last_token())
            tx.capture.effects.tokens.append(token)
            return token
        if name == "reset" and len(args) == 1 and not kwargs:
            return self._reset(tx, args[0])
        raise Unsupported("unsupported call", f"ContextVar.{name}()")

    def _get(self, tx: Interpreter, default: Value | None = None) -> Value:
        tokens: list[TokenValue] = tx.capture.effects.tokens
        for token in reversed(tokens):
            if token.var is self:
                return token.value
        current, source = self.real.get(UNSET), ContextVarSource(self.source)
        if current is not UNSET:
            return tx.capture.outside.wrap(current, source)
        tx.capture.guards.add("ID_MATCH", source, UNSET)
        return default or self._default(tx)

    def _default(self, tx: Interpreter) -> Value:
        try:
            found = self.real.get()
        except LookupError:
            raise observed_exception(LookupError, self) from None
        return tx.capture.outside.wrap(found)

    def _reset(self, tx: Interpreter, token: Value) -> Value:
        tokens: list[TokenValue] = tx.capture.effects.tokens
        if not tokens or token is not tokens[-1] or tokens[-1].var is not self:
            raise Unsupported("unsupported call", "ContextVar.reset() of another token than the last")
        tokens.pop()
        return NONE


class TokenValue(Value):
    """The token that ``ContextVar.set`` returned.  Reconstructing it sets the variable."""

    always_true = True
    cls = contextvars.Token

    def __init__(self, var: ContextVarValue, value: Value, before: TokenValue | None) -> None:
        self.var = var
        self.value = value
        self.before = before

    def children(self) -> Sequence[Value]:
        return [self.value, *([self.before] if self.before else [])]

    def reconstruct(self, emit: Emitter) -> None:
        if self.before is not None:
            emit.keep(self.before)
        loads = [lambda: emit.value(self.var), lambda: emit.value(self.value)]
        emit.call_loaded(contextvars.ContextVar.set, loads)


class NewWeakRefValue(Value):
    """A ``weakref.ref`` that the frame made of an object from outside, which lives as long as the call."""

    always_true = True
    cls = weakref.ref

    def __init__(self, referent: Value) -> None:
        self.referent = referent

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if args or kwargs:
            raise Unsupported("exception", "a weak reference takes no arguments")
        return self.referent

    def children(self) -> Sequence[Value]:
        return [self.referent]

    def reconstruct(self, emit: Emitter) -> None:
        emit.call_object(weakref.ref, [self.referent])


class WeakRefValue(OutsideValue):
    """A ``weakref.ref`` from outside."""

    always_true = True

    def __repr__(self) -> str:
        return self.source.text if self.source else "a weak reference"

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        """Returns the referent."""
        self.install_guards(tx)
        if args or kwargs:
            raise Unsupported("exception", "a weak reference takes no arguments")
        assert self.source is not None
        return tx.capture.outside.wrap(self.real(), WeakRefCallSource(self.source))
