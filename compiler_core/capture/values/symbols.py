"""Symbolic numbers: sizes, ints and floats that may be others the next time.

What works on symbols computes with them; everything else asks for their `value` as it would of a constant, and
thereby makes them the number that they are now, with a guard.

Arithmetic of ints is PyTorch's, on expressions over symbols.  What Python computes in floats is computed by Python
at every call, to the last digit, and is a symbol of its own.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.capture.values.base import Value
from compiler_core.capture.values.builtin.sequences import SequenceValue
from compiler_core.capture.values.constant import ConstantValue
from compiler_core.errors import Unsupported
from compiler_core.support.fx_symbols import LARGEST

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.guards.sources import Source

COMPARISONS = frozenset({operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge})
_OF_INTS = COMPARISONS | {
    operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.pow, operator.lshift,
    operator.rshift, operator.and_, operator.or_, operator.xor, operator.neg, operator.pos, operator.abs,
}  # fmt: skip
# those that Python computes anew at every call, of ints and floats
_ANEW = frozenset({
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
    operator.neg, operator.pos, operator.abs, float, int, round,
    math.ceil, math.floor, math.trunc, math.sqrt, math.exp, math.log, math.log2, math.log10, math.sin, math.cos,
    math.tanh, math.pow,
})  # fmt: skip
_SAME = {int: (int, round, math.ceil, math.floor, math.trunc, operator.index), float: (float,)}
"""What gives back a number of that type as it is."""
_NEVER_EQUAL = (str, bytes, type(None), tuple, list, dict)


class SymbolicValue(ConstantValue):
    """A constant to all rules that do not know of symbols."""


class SymbolicNumber(SymbolicValue):
    """An int or float that a symbol stands for."""

    def __init__(self, sym: torch.SymInt | torch.SymFloat, source: Source | None = None) -> None:
        self.sym = sym
        self.source = source

    @property
    def value(self) -> int | float:
        """The number that it is now, from now on: the frame is specialised to it."""
        found: int | float = self.python_type()(self.sym)
        return found

    def __repr__(self) -> str:
        return self.source.text if self.source else str(self.sym)

    def python_type(self) -> type:
        return int if isinstance(self.sym, torch.SymInt) else float

    def look(self, tx: Interpreter) -> None:
        if self.source is not None:
            tx.capture.guard("TYPE_MATCH", self.source, self.python_type()())

    def truth(self, tx: Interpreter) -> bool:
        self.look(tx)
        return bool(self.sym != 0)

    def same_object(self, other: Value) -> bool:
        if self is other or not isinstance(other, ConstantValue) or other.python_type() is not self.python_type():
            return self is other
        if self.sym == (other.sym if isinstance(other, SymbolicNumber) else other.value):
            raise Unsupported("unsupported operation", f"{self} is {other}, which are equal")
        return False

    def rebuild(self, emit: Emitter) -> None:
        emit.capture.symbols.source_of(self.sym).load(emit)


class SymbolicText(SymbolicValue):
    """``function(*args)``, a text in which symbolic numbers stand; generated code makes it anew."""

    def __init__(self, function: Any, args: Sequence[Value]) -> None:
        self.function = function
        self.args = args

    @property
    def value(self) -> str:
        """The text that it is now: its numbers are what they are from now on."""
        return str(self.function(*map(_now, self.args)))

    def __repr__(self) -> str:
        return f"{self.function.__name__}({', '.join(map(str, self.args))})"

    def python_type(self) -> type:
        return str

    def children(self) -> Sequence[Value]:
        return self.args

    def rebuild(self, emit: Emitter) -> None:
        emit.call_object(self.function, self.args)


def _now(value: Value) -> Any:
    if isinstance(value, ConstantValue):
        return value.value
    assert isinstance(value, SequenceValue)
    return value.cls([_now(item) for item in value.held()])


def text(function: Any, tx: Interpreter, *args: Value) -> SymbolicText | None:
    """``function(*args)`` where symbolic numbers stand in it, in tuples and lists too; None where it is fixed,
    something else stands in it, or it may raise."""
    kept = [_kept(tx, arg) for arg in args]
    flat = [item for arg in kept for item in (arg.held() if isinstance(arg, SequenceValue) else [arg])]
    if not is_symbolic(flat) or not all(isinstance(item, ConstantValue) for item in flat) or not _fits(function, kept):
        return None
    for item in flat:
        item.look(tx)
    return SymbolicText(function, kept)


def _fits(function: Any, args: Sequence[Value]) -> bool:
    """Whether Python makes a text of numbers of these types: also of a negative one, which fits no ``%c``."""
    try:
        for sample in (lambda v: _hint(v.sym), lambda v: v.python_type()(-1)):
            function(*(_sampled(arg, sample) for arg in args))
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return False
    return True


def _sampled(value: Value, sample: Callable[[SymbolicNumber], Any]) -> Any:
    """`value` with a number in place of each symbol."""
    if isinstance(value, SymbolicNumber):
        return sample(value)
    if isinstance(value, SymbolicText):
        return value.function(*(_sampled(arg, sample) for arg in value.args))
    if isinstance(value, ConstantValue):
        return value.value
    assert isinstance(value, SequenceValue)
    return value.cls([_sampled(item, sample) for item in value.held()])


def _kept(tx: Interpreter, arg: Value) -> Value:
    """As it is now, should it change."""
    is_plain = isinstance(arg, SequenceValue) and arg.cls in (tuple, list, torch.Size)
    return type(arg)(list(arg.items(tx)), arg.cls) if is_plain else arg  # type: ignore[attr-defined, call-arg]


def joined(*parts: str) -> str:
    """Called by generated code."""
    return "".join(parts)


def from_number(number: Any) -> ConstantValue:
    """What PyTorch computed of symbols; a comparison is decided now."""
    if isinstance(number, torch.SymBool):
        return ConstantValue(bool(number))
    if not isinstance(number, (torch.SymInt, torch.SymFloat)):
        return ConstantValue(number)
    value = SymbolicNumber(number)
    return ConstantValue(value.value) if number.node.expr.is_number else value


def is_symbolic(values: Sequence[Value]) -> bool:
    return any(isinstance(v, SymbolicValue) for v in values)


def arithmetic(op: Any, tx: Interpreter, operands: Sequence[Value]) -> Value | None:
    """``op(*operands)``, one of which is symbolic; None where that takes their values."""
    types = [v.python_type() for v in operands]
    if (op is operator.add and types == [str, str]) or (op is operator.mod and types[0] is str):
        return text(op, tx, *operands)
    if op in (operator.eq, operator.ne) and len({t in _NEVER_EQUAL for t in types}) == 2:
        return ConstantValue(op is operator.ne)
    if not all(t in (int, bool, float) for t in types):
        return None
    if len(operands) == 1 and op in _SAME[types[0]]:
        operands[0].look(tx)
        return operands[0]
    raw = [_number(tx, v) for v in operands]
    if not all(map(_is_small, raw)):
        return None
    if op in COMPARISONS or (op in _OF_INTS and float not in types and _stays_int(op, raw)):
        is_small = op in COMPARISONS or abs(op(*map(_hint, raw))) <= LARGEST**2
        return from_number(op(*raw)) if is_small else None
    return _anew(op, tx, raw) if op in _ANEW else None


def _stays_int(op: Any, raw: Sequence[Any]) -> bool:
    """Whether Python gives an int, and does not raise."""
    if op in (operator.floordiv, operator.mod):
        return bool(raw[1] != 0)
    return op not in (operator.pow, operator.lshift, operator.rshift) or bool(raw[1] >= 0)


def _anew(function: Any, tx: Interpreter, raw: Sequence[Any]) -> Value | None:
    """A new symbol for what Python computes; None where it raises, or where there is no symbol for that."""
    try:
        result = function(*map(_hint, raw))
    except (ArithmeticError, ValueError):
        return None
    if type(result) not in (int, float) or not math.isfinite(result):
        return None
    symbol = tx.capture.symbols.computed(function, raw, result)
    return None if symbol is None else from_number(symbol)


def _hint(number: Any) -> Any:
    return number.node.hint if isinstance(number, (torch.SymInt, torch.SymFloat)) else number


def _is_small(number: Any) -> bool:
    return not isinstance(number, int) or abs(number) <= LARGEST


def extreme(fn: Any, tx: Interpreter, values: Sequence[Value]) -> Value | None:
    """``min`` or ``max`` of ints, one of them symbolic; None of anything else."""
    if not is_symbolic(values) or any(v.python_type() is not int for v in values):
        return None
    raw = [_number(tx, v) for v in values]
    if not all(map(_is_small, raw)):
        return None
    return from_number(functools.reduce(torch.sym_min if fn is min else torch.sym_max, raw))


def product(tx: Interpreter, values: Sequence[Value]) -> Value:
    """``math.prod`` of ints"""
    return from_number(functools.reduce(operator.mul, [_number(tx, v) for v in values], 1))


def _number(tx: Interpreter, value: Value) -> Any:
    if isinstance(value, SymbolicNumber):
        value.look(tx)
        return value.sym
    number = value.constant(tx)
    return int(number) if type(number) is bool else number  # PyTorch's symbols know no arithmetic with those
