"""Symbolic integers: sizes and numbers that may be others the next time.

What works on symbols computes with them; everything else asks for their `value` as it would of a constant, and
thereby makes them the number that they are now, with a guard.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from compiler_core.values.base import Value
from compiler_core.values.constant import ConstantValue

if TYPE_CHECKING:
    from compiler_core.reconstruct import Emitter
    from compiler_core.sources import Source
    from compiler_core.symbolic import Interpreter

_COMPUTED = frozenset({
    operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.pow, operator.lshift,
    operator.rshift, operator.and_, operator.or_, operator.xor,
    operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge,
    operator.neg, operator.pos, operator.abs,
})  # fmt: skip
_NEVER_EQUAL = (str, bytes, type(None), tuple, list, dict)
_DIVISIONS = (operator.floordiv, operator.mod)
_SHIFTS = (operator.lshift, operator.rshift)


class SymbolicInt(ConstantValue):
    """An int that a `torch.SymInt` stands for; a constant to all rules that do not know of symbols."""

    def __init__(self, sym: torch.SymInt, source: Source | None = None) -> None:
        self.sym = sym
        self.source = source

    @property
    def value(self) -> int:
        """The number that it is now, from now on: the frame is specialised to it."""
        return int(self.sym)

    def __repr__(self) -> str:
        return self.source.text if self.source else str(self.sym)

    def python_type(self) -> type:
        return int

    def look(self, tx: Interpreter) -> None:
        if self.source is not None:
            tx.capture.guard("TYPE_MATCH", self.source, 0)

    def truth(self, tx: Interpreter) -> bool:
        self.look(tx)
        return bool(self.sym != 0)

    def same_object(self, other: Value) -> bool:
        if self is other or not isinstance(other, ConstantValue) or other.python_type() is not int:
            return self is other
        return bool(self.sym == (other.sym if isinstance(other, SymbolicInt) else other.value))

    def rebuild(self, emit: Emitter) -> None:
        symbols, expr = emit.capture.symbols, self.sym.node.expr
        if expr.is_Symbol:
            symbols.sources[expr].load(emit)
            return
        compute, sources = symbols.function(expr)
        emit.call_loaded(compute, [partial(source.load, emit) for source in sources])


def from_number(number: Any) -> ConstantValue:
    """What PyTorch computed of symbols; a comparison is decided now."""
    if isinstance(number, torch.SymBool):
        return ConstantValue(bool(number))
    if not isinstance(number, torch.SymInt):
        return ConstantValue(number)
    return ConstantValue(int(number)) if number.node.expr.is_number else SymbolicInt(number)


def arithmetic(op: Any, tx: Interpreter, operands: Sequence[Value]) -> Value | None:
    """``op(*operands)`` of ints, one of them symbolic; None where it takes their values."""
    if op in (operator.eq, operator.ne) and any(v.python_type() in _NEVER_EQUAL for v in operands):
        return ConstantValue(op is operator.ne)
    if op not in _COMPUTED or not all(v.python_type() in (int, bool) for v in operands):
        return None
    raw = [_number(tx, v) for v in operands]
    if op in _DIVISIONS and not bool(raw[1] != 0):
        return None
    if op in _SHIFTS and not bool(raw[1] >= 0):
        return None
    if op is operator.pow and not bool(raw[1] >= 0):
        return None
    return from_number(op(*raw))


def extreme(fn: Any, tx: Interpreter, values: Sequence[Value]) -> Value | None:
    """``min`` or ``max`` of ints, one of them symbolic; None of anything else."""
    if not any(isinstance(v, SymbolicInt) for v in values) or any(v.python_type() is not int for v in values):
        return None
    raw = [_number(tx, v) for v in values]
    return from_number(functools.reduce(torch.sym_min if fn is min else torch.sym_max, raw))


def product(tx: Interpreter, values: Sequence[Value]) -> Value:
    """``math.prod`` of ints"""
    return from_number(functools.reduce(operator.mul, [_number(tx, v) for v in values], 1))


def _number(tx: Interpreter, value: Value) -> Any:
    if isinstance(value, SymbolicInt):
        value.look(tx)
        return value.sym
    return value.constant(tx)
