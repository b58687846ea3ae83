"""Symbolic values: what the symbolic interpreter keeps on its stack in place of Python's objects.

Each class answers for one kind of thing.  An operation that a class does not define raises
`Unsupported`, which becomes a graph break, so forgetting a case costs a break and never a wrong
result.  A value with a `source` lives outside the frame; whoever looks at it through `look`
installs the guard that makes the look sound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.errors import Unsupported

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.guards.sources import Source


class Raised(Unsupported):
    """Python surely raises `exception` here: a handler in captured code catches it, and if there is
    none the graph breaks and Python raises it anew.

    Whatever led to it is guarded.  Where that cannot be, or type and message are not known, raise
    ``Unsupported("exception", ...)`` instead, which no captured handler catches.
    """

    def __init__(self, exception: Value, again: bool = False) -> None:
        super().__init__("exception", str(exception))
        self.exception = exception
        self.has_context = again
        """Whether it is known what was being handled as it was raised; a second raise changes nothing there."""

    def matches(self, cls: type[BaseException]) -> bool:
        return issubclass(self.exception.python_type(), cls)


def raised(cls: type[BaseException], *args: Any) -> Raised:
    """``raise raised(KeyError, key)``: the exception that Python raises here, with constants or values as arguments."""
    from compiler_core.capture.values.constant import ConstantValue
    from compiler_core.capture.values.exceptions import ExceptionValue

    return Raised(ExceptionValue(cls, [a if isinstance(a, Value) else ConstantValue(a) for a in args]))


class Value:
    """One symbolic value.  `source` is None for what the frame itself made."""

    source: Source | None = None

    def python_type(self) -> type:
        """The type that ``type(x)`` would give; Unsupported where it is not known."""
        raise Unsupported("unsupported operation", f"type of {self}")

    def look(self, tx: Interpreter) -> None:
        """Guard what this value is, once anything depends on it."""

    def constant(self, tx: Interpreter) -> Any:
        """The Python object, where it is a constant at capture."""
        raise Unsupported("unsupported operation", f"{self} is not a constant")

    def is_constant(self) -> bool:
        return False

    def truth(self, tx: Interpreter) -> bool:
        raise Unsupported("unsupported operation", f"truth of {self}")

    def get_attr(self, tx: Interpreter, name: str) -> Value:
        raise Unsupported("unsupported attribute", f"{self}.{name}")

    def special(self, tx: Interpreter, name: str) -> Value | None:
        """The bound special method `name`, where a class of the user's defines it in Python."""
        return None

    def set_attr(self, tx: Interpreter, name: str, value: Value) -> None:
        raise Unsupported("unsupported mutation", f"{self}.{name} = ...")

    def del_attr(self, tx: Interpreter, name: str) -> None:
        raise Unsupported("unsupported mutation", f"del {self}.{name}")

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        inner = self.comes_to(tx, args, kwargs)
        if inner is None:
            raise Unsupported("unsupported call", str(self))
        function, inner_args, inner_kwargs = inner
        return function.call(tx, inner_args, inner_kwargs)

    def comes_to(
        self, tx: Interpreter, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> tuple[Value, list[Value], dict[str, Value]] | None:
        """What a call of this is, where it is a call of something else whose result it gives as it is: a break in
        there can resume in there."""
        return None

    def get_item(self, tx: Interpreter, key: Value) -> Value:
        raise Unsupported("unsupported operation", f"{self}[...]")

    def set_item(self, tx: Interpreter, key: Value, value: Value) -> None:
        raise Unsupported("unsupported mutation", f"{self}[...] = ...")

    def del_item(self, tx: Interpreter, key: Value) -> None:
        raise Unsupported("unsupported mutation", f"del {self}[...]")

    def contains(self, tx: Interpreter, item: Value) -> bool:
        raise Unsupported("unsupported operation", f"... in {self}")

    def length(self, tx: Interpreter) -> int:
        raise Unsupported("unsupported operation", f"len of {self}")

    def items(self, tx: Interpreter) -> list[Value]:
        """All that iterating over it yields, when that is known now."""
        raise Unsupported("unsupported iteration", str(self))

    def iterate(self, tx: Interpreter) -> Value:
        """``iter(self)``"""
        from compiler_core.capture.values.builtin.iterators import IteratorValue

        return IteratorValue(self.items(tx))

    def next_value(self, tx: Interpreter) -> Value | None:
        """``next(self)``, or None at the end"""
        raise Unsupported("unsupported iteration", f"next of {self}")

    def next_or_stop(self, tx: Interpreter) -> Value:
        """``next(self)``, which raises StopIteration at the end"""
        found = self.next_value(tx)
        if found is None:
            raise self.stop(tx)
        return found

    def stop(self, tx: Interpreter) -> Raised:
        """The StopIteration that ends this iterator."""
        result = self.result()
        return raised(StopIteration, *([] if tx.is_none(result) else [result]))

    def result(self) -> Value:
        """What ``yield from`` gives when the iterator has ended."""
        from compiler_core.capture.values.constant import NONE

        return NONE

    def same_object(self, other: Value) -> bool:
        """``self is other``; the wrappers of one object are one value, so identity decides."""
        return self is other

    def children(self) -> Sequence[Value]:
        """Values that rebuilding this one needs (to find the tensors that a graph must return)."""
        return ()

    def rebuild(self, emit: Emitter) -> None:
        """Push an equal new object.  Called only for values without a source."""
        raise Unsupported("unsupported operation", f"{self} cannot be carried across a break")

    def __repr__(self) -> str:
        return f"{type(self).__name__.removesuffix('Value').lower()}"


def index_of(tx: Interpreter, value: Value) -> Value:
    """``operator.index(value)``, for an object of the user's; anything else as it is"""
    method = value.special(tx, "__index__")
    return value if method is None else method.call(tx, [], {})


class NullValue(Value):
    """CPython's NULL on the stack."""

    def rebuild(self, emit: Emitter) -> None:
        emit.push_null()


NULL = NullValue()


class UnboundValue(Value):
    """A local or cell that has no value (deleted, or not yet assigned)."""


UNBOUND = UnboundValue()
