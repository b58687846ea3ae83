"""How each operation of the loop IR is written in Triton, and the helpers that some of them call.

The results are eager's: NaN goes through minimum and maximum, division and square root are
rounded correctly, integers are divided as Python or C divides them, a literal is exact.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from compiler_core.loops import ir

TYPES = {
    torch.float32: "tl.float32",
    torch.float64: "tl.float64",
    torch.bfloat16: "tl.bfloat16",
    torch.float16: "tl.float16",
    torch.int64: "tl.int64",
    torch.int32: "tl.int32",
    torch.int16: "tl.int16",
    torch.int8: "tl.int8",
    torch.uint8: "tl.uint8",
    torch.bool: "tl.int1",
}
POINTERS = {
    dtype: f"*{'u8' if dtype is torch.uint8 else 'i1' if dtype is torch.bool else short.replace('f', 'fp', 1)}"
    for dtype, short in ir.SHORT.items()
} | {torch.bfloat16: "*bf16"}
"""A pointer to elements of each type, as Triton's signatures spell it."""

HELPERS = {
    "_minimum": """\
def _minimum(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
""",
    "_maximum": """\
def _maximum(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
""",
    "_plus": """\
def _plus(a, b):
    return a + b
""",
    "_multiply": """\
def _multiply(a, b):
    return a * b
""",
    "_exp_below": """\
def _exp_below(a, b):
    return tl.where(b == float("-inf"), 0.0, libdevice.exp(a - b))
""",
    "_int_floordiv": """\
def _int_floordiv(a, b):
    return tl.where((a % b != 0) & ((a < 0) != (b < 0)), a // b - 1, a // b)
""",
    "_int_mod": """\
def _int_mod(a, b):
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
""",
    "_divide_by_shared": """\
def _divide_by_shared(a, b):
    # one division for each b, then quotients that are corrected by what they leave over: rounded correctly, but for
    # quotients and numerators below 2**-100
    scale = tl.where(tl.abs(b) < 2.0**-100, 2.0**100, tl.where(tl.abs(b) > 2.0**100, 2.0**-100, 1.0))
    a, b = a * scale, b * scale
    inverse = tl.div_rn(1.0, b)
    quotient = a * inverse
    left = tl.fma(-quotient, b, a)
    corrected = (quotient != 0) & (tl.abs(left) < float("inf"))
    return tl.where(corrected, tl.fma(left, inverse, quotient), quotient)
""",
    "_float_mod": """\
def _float_mod(a, b):
    rest = libdevice.fmod(a, b)
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
""",
    "_float_floordiv": """\
def _float_floordiv(a, b):
    rest = libdevice.fmod(a, b)
    quotient = (a - rest) / b
    quotient = tl.where((rest != 0) & ((rest < 0) != (b < 0)), quotient - 1, quotient)
    floor = tl.floor(quotient)
    floor = tl.where(quotient - floor > 0.5, floor + 1, floor)
    return tl.where((b == 0) | (quotient == 0), a / b, floor)
""",
    "_uniform": """\
def _uniform(place, seed, offset, threads, vector):
    threads = threads.to(tl.uint32)
    group = place.to(tl.uint32) // vector
    number = group // threads * (1 if vector == 1 else max(vector, 4)) + place.to(tl.uint32) % vector
    thread = group % threads
    counter = offset.to(tl.uint64) + number // 4
    low, high = (counter & 0xFFFFFFFF).to(tl.uint32), (counter >> 32).to(tl.uint32)
    a, b, c, d = tl.philox(seed, low, high, thread, thread * 0)
    word = number % 4  # what the words of neighbours have in common is computed once
    drawn = tl.where(word < 2, tl.where(word == 0, a, b), tl.where(word == 2, c, d))
    return drawn.to(tl.float32) * 2.0**-32 + 2.0**-33
""",
}
"""Functions that a module of kernels defines when one of its kernels calls them."""

Writer = Callable[[torch.dtype, Sequence[str]], str]

_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>"}
_COMPARISON = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_INFIX = _ARITHMETIC | _COMPARISON
_IN_TL = ("exp2", "log", "log2", "sin", "cos", "erf", "floor", "ceil", "abs", "rsqrt")
_IN_LIBDEVICE = {
    "exp": "exp",  # that of tl multiplies by a rounded log2(e): of large numbers several last bits are wrong
    **{name: name for name in ("expm1", "log10", "log1p", "erfc", "tan", "asin", "acos", "atan", "trunc", "pow")},
    **{name: name for name in ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "atan2")},
    "round": "rint",
}
_PROMOTING = frozenset({*_INFIX, "where"})
"""Operations that give a Python number the type of the other argument."""

_SIGN_BITS = {torch.float64: "tl.int64", torch.float32: "tl.int32"}


def compute(statement: ir.Compute, types: Sequence[torch.dtype], args: Sequence[str]) -> str:
    """The right-hand side of a Compute whose arguments have `types` and are written `args`."""
    op, dtype = statement.op, statement.dtype
    if op in _INFIX:
        return f"{args[0]} {_INFIX[op]} {args[1]}"
    if op in _IN_TL:
        return f"tl.{op}({args[0]})"
    if op in _IN_LIBDEVICE:
        return f"libdevice.{_IN_LIBDEVICE[op]}({', '.join(args)})"
    if op == "uniform":
        return f"_uniform({', '.join(args)})"
    return _WRITERS[op](types[0], args) if op != "cast" else cast(args[0], types[0], dtype)


def by_reciprocal(statement: ir.Compute) -> ir.Compute:
    """A float32 divided by a number, as PyTorch's kernels on a GPU have it: multiplied by the number's reciprocal."""
    value, number = statement.arguments
    if not isinstance(number, ir.Literal) or not number.value:
        return statement
    inverse = _single(1 / number.value)
    if not 2**-126 <= abs(inverse) < math.inf:
        return statement
    return replace(statement, op="mul", arguments=(value, replace(number, value=inverse)))


def cast(value: str, source: torch.dtype, dtype: torch.dtype) -> str:
    """`value` as `dtype`, as ``Tensor.to``."""
    if dtype is torch.bool:
        return f"{value} != 0"
    if source.is_floating_point and dtype is torch.uint8:
        value = f"{value}.to(tl.int64)"  # where a negative number wraps around
    return f"{value}.to({TYPES[dtype]})"


def literal(number: ir.Literal, op: str | None = None, beside_value: bool = False) -> str:
    """A number as an argument of `op`; `beside_value`: another argument is a value of its type."""
    text = _digits(number)
    tiny = number.dtype is torch.float32 and 0 < abs(number.value) < 2**-126
    beside_any = beside_value or op in (None, "store", "where")  # else it would stay a number of Python's
    inferred = number.dtype in (torch.float32, torch.int32, torch.bool) and not tiny and beside_any
    rounded = op in _COMPARISON and number.dtype is torch.float64  # what a float is compared with is a float32 first
    if inferred or (op in _PROMOTING and beside_value and not rounded):
        return text
    return f"tl.full([], {text}, {TYPES[number.dtype]})"


def identity(op: str, dtype: torch.dtype) -> str:
    """What `ir.REDUCTIONS` says a reduction is of nothing, as a number of type `dtype`."""
    if op in ("max", "min") and not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        return str(info.min if op == "max" else info.max)
    if dtype.is_floating_point:
        return _digits(ir.Literal(float(ir.REDUCTIONS[op]), dtype))
    return repr(ir.REDUCTIONS[op])


def accumulate(op: str, dtype: torch.dtype, accumulator: str, value: str) -> str:
    """The statement that takes one more block of values into an accumulator."""
    if op in ("sum", "any", "all"):
        return f"{accumulator} {'+' if op == 'sum' else '|' if op == 'any' else '&'}= {value}"
    combined = f"{accumulator} * {value}" if op == "prod" else _extreme(op, dtype, [accumulator, value])
    return f"{accumulator} = {combined}"


def reduce(op: str, dtype: torch.dtype, value: str, along: str) -> str:
    """A block of values reduced `along` an axis, as Triton's reductions are told it."""
    if op in ("any", "all"):
        return f"tl.{'max' if op == 'any' else 'min'}({value}.to(tl.int32), {along}) != 0"
    if op == "sum" and dtype.is_floating_point:
        return f"tl.sum({value}, {along})"
    if op == "prod":
        return f"tl.reduce({value}, {_combined(along, '_multiply')})"
    if dtype.is_floating_point:
        return f"tl.reduce({value}, {_combined(along, f'_{op}imum')})"
    # Triton widens small integers
    return f"tl.{op}({value}, {along}).to({TYPES[dtype]})"


def scan(op: str, value: str, axis: str) -> str:
    """A block of values reduced up to each of them."""
    return f"tl.associative_scan({value}, {axis}, _{'plus' if op == 'sum' else 'multiply'})"


def _combined(along: str, function: str) -> str:
    """The arguments of ``tl.reduce``, in which what combines two values comes after the axis."""
    axis, *keep = along.split(", ")
    return ", ".join([axis, function, *keep])


def _extreme(op: str, dtype: torch.dtype, args: Sequence[str]) -> str:
    name = f"{op[:3]}imum"
    return f"{'_' if dtype.is_floating_point else 'tl.'}{name}({', '.join(args)})"


def _digits(number: ir.Literal) -> str:
    """The shortest decimal that is this number in its type."""
    value = number.value
    if not isinstance(value, float):
        return repr(value)
    if not math.isfinite(value):
        return f'float("{value}")'
    if number.dtype is torch.float32:
        value = next(v for digits in range(1, 10) if _single(v := float(f"{value:.{digits}g}")) == _single(value))
    return repr(value)


def _single(value: float) -> float:
    return ctypes.c_float(value).value


_WRITERS: dict[str, Writer] = {
    "div": lambda t, a: f"tl.div_rn({a[0]}, {a[1]})" if t is torch.float32 else f"{a[0]} / {a[1]}",
    "sqrt": lambda t, a: f"tl.sqrt_rn({a[0]})" if t is torch.float32 else f"tl.sqrt({a[0]})",
    "floordiv": lambda t, a: f"_{'float' if t.is_floating_point else 'int'}_floordiv({a[0]}, {a[1]})",
    "mod": lambda t, a: f"_{'float' if t.is_floating_point else 'int'}_mod({a[0]}, {a[1]})",
    "truncdiv": lambda t, a: f"libdevice.trunc({a[0]} / {a[1]})" if t.is_floating_point else f"{a[0]} // {a[1]}",
    "fmod": lambda t, a: f"libdevice.fmod({a[0]}, {a[1]})" if t.is_floating_point else f"{a[0]} % {a[1]}",
    "minimum": lambda t, a: _extreme("minimum", t, a),
    "maximum": lambda t, a: _extreme("maximum", t, a),
    # Triton has -x as 0 - x, which is no negative zero
    "neg": lambda t, a: f"{a[0]} * -1.0" if t.is_floating_point else f"-{a[0]}",
    "not": lambda t, a: f"~{a[0]}",
    "sign": lambda t, a: f"({a[0]} > 0).to({TYPES[t]}) - ({a[0]} < 0).to({TYPES[t]})",
    "isnan": lambda t, a: f"{a[0]} != {a[0]}",
    "isinf": lambda t, a: f'tl.abs({a[0]}) == float("inf")',
    "signbit": lambda t, a: f"{a[0]}.to({_SIGN_BITS.get(t, 'tl.int16')}, bitcast=True) < 0",
    "where": lambda t, a: f"tl.where({a[0]}, {a[1]}, {a[2]})",
}
