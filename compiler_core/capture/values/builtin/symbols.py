"""Symbolic numbers: sizes, ints and floats that may differ at the next call.

Rules that support symbols compute with them.  All others read their `value` as of a constant, which specialises the
frame to the present number, with a guard.

Arithmetic on ints is PyTorch's, on expressions over symbols.  Arithmetic on floats is done by Python at every call, so
that its results are bitwise equal to eager's; each result is a new symbol.
"""

from __future__ import annotations

import functools
import math
import operator
import sys
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.experimental.symbolic_shapes import guard_or_true, statically_known_true

from compiler_core.capture.tensors.symbolic_shapes import python_text
from compiler_core.capture.values.base import Args, Value
from compiler_core.capture.values.builtin.constant import ConstantValue
from compiler_core.capture.values.builtin.sequences import SequenceValue
from compiler_core.errors import Unsupported
from compiler_core.guards.sources import call_item, numpy_number
from compiler_core.guards.value_guards import NUMPY_NUMBERS, number_of_numpy
from compiler_core.support.fx_symbols import MAX_SYMBOLIC_INT, function_of_text

if TYPE_CHECKING:
    from compiler_core.capture.bytecode_emitter import Emitter
    from compiler_core.capture.interpreter import Interpreter
    from compiler_core.guards.sources import Source


COMPARISONS = frozenset({operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge})
_OF_INTS = COMPARISONS | {
    operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.pow, operator.lshift,
    operator.rshift, operator.and_, operator.or_, operator.xor, operator.neg, operator.pos, operator.abs,
}  # fmt: skip
# the functions of ints and floats that Python may compute at every call
_RECOMPUTED = frozenset({
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
    operator.neg, operator.pos, operator.abs, float, int, round,
    math.ceil, math.floor, math.trunc, math.sqrt, math.exp, math.log, math.log2, math.log10, math.sin, math.cos,
    math.tanh, math.pow,
})  # fmt: skip
_RECOMPUTED_OF_NUMPY = _RECOMPUTED | {call_item, min, max}
_IDENTITY = {int: (int, round, math.ceil, math.floor, math.trunc, operator.index), float: (float,)}
"""Functions that return a number of that type unchanged."""
numpy: Any = sys.modules.get("numpy")  # PyTorch imports it where it is installed
UFUNC: tuple[type, ...] = () if numpy is None else (numpy.ufunc,)
_NEVER_EQUAL = (str, bytes, type(None), tuple, list, dict)


class SymbolicValue(ConstantValue):
    """A number or text that depends on symbols.  Rules that do not support symbols treat it as a constant."""


class SymbolicNumber(SymbolicValue):
    """An int or float that is an expression over symbols."""

    def __init__(self, sym: torch.SymInt | torch.SymFloat, source: Source | None = None) -> None:
        self.sym = sym
        self.source = source

    @property
    def value(self) -> int | float:
        """The present number.  Reading it specialises the frame to it."""
        found: int | float = self.python_type()(self.sym)
        return found

    def __repr__(self) -> str:
        return self.source.text if self.source else str(self.sym)

    def python_type(self) -> type:
        return int if isinstance(self.sym, torch.SymInt) else float

    def install_guards(self, tx: Interpreter) -> None:
        tx.guards.add("TYPE_MATCH", self.source, self.python_type()())

    def truth(self, tx: Interpreter) -> bool:
        self.install_guards(tx)
        return bool(self.sym != 0)

    def same_object(self, other: Value) -> bool:
        if self is other or not isinstance(other, ConstantValue) or other.python_type() is not self.python_type():
            return self is other
        if self.sym == (other.sym if isinstance(other, SymbolicNumber) else other.value):
            raise Unsupported("unsupported operation", f"{self} is {other}, which are equal")
        return False

    @property
    def is_measured(self) -> bool:
        """Whether data decide it, so that it is known once the graph has run."""
        measured = self.sym.node.shape_env.measured
        return any(symbol in measured for symbol in self.sym.node.expr.free_symbols)

    @property
    def _symbols(self) -> list[Any]:
        return sorted(self.sym.node.expr.free_symbols, key=str)

    def reconstruct(self, emit: Emitter) -> None:
        symbols = emit.capture.guards.symbols
        if not self.is_measured:
            emit.source(symbols.source_of(self.sym))
            return
        args, texts, known = list[Value](), dict[Any, str](), symbols.env.measured
        for i, symbol in enumerate(self._symbols):
            number: Any = symbols.env.create_symintnode(symbol, hint=None)
            args.append(known[symbol].tensor if symbol in known else SymbolicNumber(number))
            texts[symbol] = known[symbol].text(f"a{i}") if symbol in known else f"a{i}"
        names = ", ".join(f"a{i}" for i, _ in enumerate(args))
        function = function_of_text(f"lambda {names}: {python_text(self.sym.node.expr, texts)}")
        emit.call_object(function, args)


class NumpyNumber(SymbolicValue):
    """A number of NumPy that is computed from such numbers; `number` is the same as Python's."""

    source = None

    def __init__(self, cls: Any, number: SymbolicNumber) -> None:
        self.cls = cls
        self.number = number

    @property
    def value(self) -> Any:
        """The present number.  Reading it specialises the frame to it."""
        return self.cls(self.number.value)

    def __repr__(self) -> str:
        return f"{self.cls.__name__}({self.number})"

    def python_type(self) -> type:
        cls: type = self.cls
        return cls

    def install_guards(self, tx: Interpreter) -> None:
        self.number.install_guards(tx)

    def truth(self, tx: Interpreter) -> bool:
        return self.number.truth(tx)

    def same_object(self, other: Value) -> bool:
        return self is other

    def reconstruct(self, emit: Emitter) -> None:
        emit.call_object(self.cls, [self.number])


class SymbolicText(SymbolicValue):
    """``function(*args)``, a string made from symbolic numbers.  Generated code makes it at every call."""

    def __init__(self, function: Any, args: Args) -> None:
        self.function = function
        self.args = args

    @property
    def value(self) -> str:
        """The string for the sizes of this call.  Reading it specialises the frame to these sizes."""
        return str(self.function(*map(_current_value, self.args)))

    def __repr__(self) -> str:
        return str(_sampled(self, _present))

    def python_type(self) -> type:
        return str

    def install_guards(self, tx: Interpreter) -> None:
        """The numbers have theirs since the text was made; its value, which a guard would read, specialises them."""

    def reconstruct(self, emit: Emitter) -> None:
        emit.call_object(self.function, self.args)


def _current_value(value: Value) -> Any:
    if isinstance(value, ConstantValue):
        return value.value
    assert isinstance(value, SequenceValue)
    return value.cls([_current_value(item) for item in value.known_values()])


def symbolic_text(function: Any, tx: Interpreter, *args: Value) -> SymbolicText | ReadValue | None:
    """Returns ``function(*args)``, a string, if an argument or an item of one is symbolic, or read from a tensor.

    Returns None if none is, if there is something else than constants, or if the function may raise.
    """
    copied = [_copy_sequence(tx, arg) for arg in args]
    flat = [item for arg in copied for item in (arg.known_values() if isinstance(arg, SequenceValue) else [arg])]
    is_read = any(isinstance(item, ReadValue) for item in flat)
    if not (is_read or is_symbolic(flat)) or not all(isinstance(item, (ConstantValue, ReadValue)) for item in flat):
        return None
    if not _accepts_numbers(function, copied):
        return None
    for item in flat:
        item.install_guards(tx)
    return ReadValue(function, copied, str) if is_read else SymbolicText(function, copied)


def _accepts_numbers(function: Any, args: Args) -> bool:
    """Whether `function` makes a string of the present numbers, of -1, which ``%c`` refuses, and of infinite ones."""
    try:
        for sample in (_present, lambda v: v.python_type()(-1), _extreme):
            function(*(_sampled(arg, sample) for arg in args))
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return False
    return True


def _present(value: SymbolicNumber | ReadValue) -> Any:
    return value.python_type()(1) if isinstance(value, ReadValue) else _hint(value.sym)


def _extreme(value: SymbolicNumber | ReadValue) -> Any:
    return math.nan if isinstance(value, ReadValue) and value.cls is float else value.python_type()(2**62)


def _sampled(value: Value, sample: Callable[[SymbolicNumber | ReadValue], Any]) -> Any:
    """Returns the Python object of `value`, with ``sample(number)`` in place of each number that is not known."""
    if isinstance(value, SymbolicNumber) or (isinstance(value, ReadValue) and value.cls is not str):
        return sample(value)
    if isinstance(value, (SymbolicText, ReadValue)):
        return value.function(*(_sampled(arg, sample) for arg in value.args))
    if isinstance(value, ConstantValue):
        return value.value
    assert isinstance(value, SequenceValue)
    return value.cls([_sampled(item, sample) for item in value.known_values()])


def _copy_sequence(tx: Interpreter, arg: Value) -> Value:
    """Copies a list or tuple, which may be changed later; returns other values unchanged."""
    is_plain = isinstance(arg, SequenceValue) and arg.cls in (tuple, list, torch.Size)
    return type(arg)(list(arg.unpack(tx)), arg.cls) if is_plain else arg  # type: ignore[call-arg]


def join_text(*parts: str) -> str:
    """Called by generated code: joins the parts of an f-string."""
    return "".join(parts)


def from_number(number: Any) -> ConstantValue:
    """Returns the value of what PyTorch computed with symbols.  A comparison is decided now, with a guard."""
    if isinstance(number, torch.SymBool):
        return ConstantValue(bool(number))
    if not isinstance(number, (torch.SymInt, torch.SymFloat)):
        return ConstantValue(number)
    value = SymbolicNumber(number)
    return ConstantValue(value.value) if number.node.expr.is_number else value


def guard_class(tx: Interpreter, value: Value) -> None:
    """Guards the class of a value; of a constant, whatever its value is."""
    if isinstance(value, ConstantValue) and not isinstance(value, SymbolicValue):
        tx.guards.add("TYPE_MATCH", value.source, value.value)
    else:
        value.install_guards(tx)


def is_symbolic(values: Sequence[Value]) -> bool:
    """Returns whether any of `values` is a symbolic number or text."""
    return any(isinstance(v, SymbolicValue) for v in values)


def arithmetic(op: Any, tx: Interpreter, operands: Sequence[Value]) -> Value | None:
    """Returns ``op(*operands)`` if one is symbolic or a number of NumPy that changes; None if there is no such
    operand, or if the result needs their present values."""
    if isinstance(op, UFUNC) or _is_numpy_class(op) or any(is_of_numpy(v) for v in operands):
        return _of_numpy(op, tx, operands)
    if not is_symbolic(operands):
        return None
    types = [v.python_type() for v in operands]
    if (op is operator.add and types == [str, str]) or (op is operator.mod and types[0] is str):
        return symbolic_text(op, tx, *operands)
    if op in (operator.eq, operator.ne) and len({t in _NEVER_EQUAL for t in types}) == 2:
        return ConstantValue(op is operator.ne)
    if not all(t in (int, bool, float) for t in types):
        return None
    if len(operands) == 1 and op in _IDENTITY[types[0]]:
        operands[0].install_guards(tx)
        return operands[0]
    if any(isinstance(v, SymbolicNumber) and v.is_measured for v in operands):
        return _measured(op, tx, operands)
    raw = [_number(tx, v) for v in operands]
    if not all(map(_is_small, raw)):
        return None
    if op in COMPARISONS or (op in _OF_INTS and float not in types and _stays_int(op, raw)):
        is_small = op in COMPARISONS or abs(op(*map(_hint, raw))) <= MAX_SYMBOLIC_INT**2
        return from_number(_SHIFTS.get(op, op)(*raw)) if is_small else None
    return _recompute_at_call(op, tx, raw) if op in _RECOMPUTED else None


def _measured(op: Any, tx: Interpreter, operands: Sequence[Value]) -> Value | None:
    """Returns ``op(*operands)``, of which data decide one."""
    if all(v.python_type() is not float for v in operands):
        raw = [_number(tx, v) for v in operands]
        is_divisor = op in (operator.floordiv, operator.mod) and isinstance(raw[1], int) and raw[1] > 0
        if op in NEVER_RAISE or is_divisor:
            return from_number(op(*raw))
        if op in COMPARISONS:
            is_true, is_false = statically_known_true(op(*raw)), not guard_or_true(op(*raw))
            return ConstantValue(is_true) if is_true or is_false else ReadValue(op, operands, bool)
    if op is not float and op not in NEVER_RAISE:
        return None
    return ReadValue(op, operands, type(op(*(v.python_type()(1) for v in operands))))


NEVER_RAISE = frozenset({operator.add, operator.sub, operator.mul, operator.neg, operator.pos, operator.abs})
"""The arithmetic of numbers that raises nothing, and of ints has ints as results."""
_SHIFTS: dict[Any, Callable[[Any, Any], Any]] = {
    operator.lshift: lambda number, shift: number * 2**shift,
    operator.rshift: lambda number, shift: number // 2**shift,
}
"""Shifts in terms of operations that take symbols in each version of PyTorch; 2.11 cannot shift by a symbol."""


def _stays_int(op: Any, raw: Sequence[Any]) -> bool:
    """Whether the result in Python is an int, and no exception."""
    if op in (operator.floordiv, operator.mod):
        return bool(raw[1] != 0)
    return op not in (operator.pow, operator.lshift, operator.rshift) or bool(raw[1] >= 0)


def _recompute_at_call(function: Any, tx: Interpreter, raw: Sequence[Any]) -> Value | None:
    """Returns a new symbol for what Python computes at every call; None if it raises or has no symbol, or with an
    infinite constant or NaN, which no text of a guard has."""
    numbers = [*map(_hint, raw)]
    try:
        result = function(*numbers)
    except (ArithmeticError, ValueError):
        return None
    if type(result) not in (int, float) or not all(map(math.isfinite, (result, *numbers))):
        return None
    symbol = tx.guards.symbols.computed(function, raw, result)
    return None if symbol is None else from_number(symbol)


def _hint(number: Any) -> Any:
    if not isinstance(number, (torch.SymInt, torch.SymFloat)):
        return number
    return 2 if number.node.hint is None else number.node.hint


def _is_small(number: Any) -> bool:
    return not isinstance(number, int) or abs(number) <= MAX_SYMBOLIC_INT


def symbolic_extreme(fn: Any, tx: Interpreter, values: Sequence[Value]) -> Value | None:
    """``min`` or ``max`` of ints, or of floats, at least one of them symbolic; None for other values."""
    types = {v.python_type() for v in values}
    if any(map(is_of_numpy, values)):
        return _of_numpy(fn, tx, values)
    if not is_symbolic(values) or (types != {int} and types != {float}):
        return None
    if types == {float} and any(isinstance(v, SymbolicNumber) and v.is_measured for v in values):
        return None
    raw = [_number(tx, v) for v in values]
    if types == {float}:
        return _recompute_at_call(fn, tx, raw)
    if not all(map(_is_small, raw)):
        return None
    return from_number(functools.reduce(torch.sym_min if fn is min else torch.sym_max, raw))


def product(tx: Interpreter, values: Sequence[Value]) -> Value:
    """``math.prod`` of ints."""
    return from_number(functools.reduce(operator.mul, [_number(tx, v) for v in values], 1))


def _number(tx: Interpreter, value: Value) -> Any:
    if isinstance(value, SymbolicNumber):
        value.install_guards(tx)
        return value.sym
    number = value.constant(tx)
    return int(number) if type(number) is bool else number  # PyTorch's symbols do not support bools


def _of_numpy(function: Any, tx: Interpreter, operands: Sequence[Value]) -> Value | None:
    """Returns ``function(*operands)``, which NumPy computes at every call; None as `arithmetic`, or if NumPy warns."""
    classes = tuple(v.python_type() for v in operands)
    if not all(cls in (int, float) or issubclass(cls, NUMPY_NUMBERS) for cls in classes):
        return None
    if not (isinstance(function, UFUNC) or _is_numpy_class(function) or function in _RECOMPUTED_OF_NUMPY):
        return None
    numbers = [v if isinstance(v, SymbolicNumber) else symbol_for_numpy(tx, v) or v for v in operands]
    symbolic = [v for v in numbers if isinstance(v, SymbolicNumber)]
    if not symbolic or any(v.is_measured for v in symbolic):
        return None
    if function is call_item:
        return symbolic[0]
    raw = [_number(tx, v) for v in numbers]
    try:
        result = _by_numpy(function, classes, None)(*map(_plain, map(_hint, raw)))
    except (ArithmeticError, TypeError, ValueError):
        return None
    cls: Any = type(result)
    number = _recompute_at_call(_by_numpy(function, classes, cls), tx, list(map(_plain, raw)))
    if number is None or cls in (int, float):
        return number
    return NumpyNumber(cls, number) if isinstance(number, SymbolicNumber) else ConstantValue(result)


def _plain(number: Any) -> Any:
    return number_of_numpy(number) if isinstance(number, NUMPY_NUMBERS) else number


def _is_numpy_class(function: Any) -> bool:
    return isinstance(function, type) and issubclass(function, NUMPY_NUMBERS)


@functools.lru_cache(256)
def _by_numpy(function: Any, classes: tuple[Any, ...], cls: Any) -> Callable[..., Any]:
    """Returns `function` for Python's numbers in place of those of `classes`, and in place of a result of `cls`, if it
    is given.

    It raises ArithmeticError where NumPy may warn, and TypeError for a result of another class.
    """

    def compute(*numbers: Any) -> Any:
        with numpy.errstate(all="raise"):
            result = function(*(kind(each) for kind, each in zip(classes, numbers, strict=True)))
        if cls is None:
            return result
        if type(result) is not cls:
            raise TypeError(f"a {cls.__name__} is expected, not a {type(result).__name__}")
        return result.item() if isinstance(result, NUMPY_NUMBERS) else result

    compute.__name__ = compute.__qualname__ = function.__name__
    return compute


def is_of_numpy(value: Value) -> bool:
    """Whether a value is a number of NumPy that is not an item of an array."""
    return isinstance(value, ConstantValue) and issubclass(value.python_type(), NUMPY_NUMBERS)


def symbol_for_numpy(tx: Interpreter, value: Value) -> SymbolicNumber | None:
    """Returns a symbolic number for a number of NumPy that changes, where an operation takes a number of Python."""
    if isinstance(value, NumpyNumber):
        return value.number
    if not (isinstance(value, ConstantValue) and is_of_numpy(value) and value.source is not None):
        return None
    number, source = number_of_numpy(value.value), numpy_number(value.source)
    if type(number) not in (int, float) or type(value.value).__module__ != "numpy":  # a subclass may have methods
        return None
    symbols = tx.guards.symbols
    reason = symbols.policy.symbol_reason(number, source)
    if reason is None:
        return None
    value.guard_type(tx)
    return SymbolicNumber(symbols.symbol_for_number(number, source, reason), source)


# ---------------------------------------------------------------- numbers and texts made of tensors


class ReadValue(Value):
    """``function(*args)``, a number or text; `args` are tensors of the graph, other such values and constants."""

    def __init__(self, function: Callable[..., Any], args: Args, cls: type, written: Collection[int] = ()) -> None:
        self.function = function
        self.args = args
        self.cls = cls
        self.written = written
        """The memory of the graph's inputs that was written before a tensor was read."""

    def __repr__(self) -> str:
        return f"a {'text' if self.cls is str else 'number'} read from a tensor"

    def constant(self, tx: Interpreter) -> Any:
        raise Unsupported("tensor value read", f"the {self.cls.__name__} is needed now")

    def truth(self, tx: Interpreter) -> bool:
        if (found := tx.truth_of_flag(self)) is not None:
            return found
        raise Unsupported("data-dependent branch")

    def same_object(self, other: Value) -> bool:
        if self is not other and other.python_type() is self.cls:
            raise Unsupported("tensor value read", f"a comparison of {self}")
        return self is other

    def reconstruct(self, emit: Emitter) -> None:
        emit.call_object(self.function, self.args)
