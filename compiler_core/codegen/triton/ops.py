"""The Triton expression of each operation of the loop IR, and the helper functions that some of them call.

Results are those of eager mode: minimum and maximum propagate NaN, division and square root are
correctly rounded, integer division is that of Python or C, and literals are exact.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

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
POINTERS = {dtype: f"*{short.replace('f', 'fp', 1)}" for dtype, short in ir.SHORT.items()} | {
    torch.bfloat16: "*bf16",
    torch.uint8: "*u8",
    torch.bool: "*i1",
}
"""The pointer type for elements of each dtype, in Triton's signatures."""

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
    # one division per divisor, then quotients corrected by their remainders: correctly rounded, except for quotients
    # and numerators below 2**-100
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
    word = number % 4  # neighbours share one call of Philox
    drawn = tl.where(word < 2, tl.where(word == 0, a, b), tl.where(word == 2, c, d))
    return drawn.to(tl.float32) * 2.0**-32 + 2.0**-33
""",
}
"""Functions that a module of kernels defines if one of its kernels calls them."""

_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>"}
_COMPARISON = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_INFIX = _ARITHMETIC | _COMPARISON
# not exp: tl.exp multiplies by a rounded log2(e), and for large numbers several of the last bits are wrong
_IN_TRITON = ("exp2", "log", "log2", "sin", "cos", "erf", "floor", "ceil", "abs", "rsqrt", "sqrt")
_IN_LIBDEVICE = (*(op for op in ir.FLOAT_FUNCTIONS if op not in _IN_TRITON), "trunc")
_PROMOTING = frozenset({*_INFIX, "where"})
"""Operations in which a Python number gets the type of the other argument."""

# In the texts of operations, {t} is the first argument's type, and {bits} an integer type as wide as that.
TEXTS = {
    **{op: f"{{0}} {sign} {{1}}" for op, sign in _INFIX.items()},
    **{op: f"tl.{op}({{0}})" for op in _IN_TRITON},
    **{op: f"libdevice.{op}({{0}})" for op in _IN_LIBDEVICE},
    **{op: f"libdevice.{op}({{0}}, {{1}})" for op in ("pow", "atan2", "fmod")},
    "round": "libdevice.rint({0})",
    "div": "{0} / {1}",
    "floordiv": "_float_floordiv({0}, {1})",
    "truncdiv": "libdevice.trunc({0} / {1})",
    "mod": "_float_mod({0}, {1})",
    "minimum": "_minimum({0}, {1})",
    "maximum": "_maximum({0}, {1})",
    "neg": "{0} * -1.0",  # Triton computes -x as 0 - x, which is never a negative zero
    "not": "~{0}",
    "sign": "({0} > 0).to({t}) - ({0} < 0).to({t})",
    "isnan": "{0} != {0}",
    "isinf": 'tl.abs({0}) == float("inf")',
    "signbit": "{0}.to({bits}, bitcast=True) < 0",
    "where": "tl.where({0}, {1}, {2})",
    "uniform": "_uniform({0}, {1}, {2}, {3}, {4})",
}
FLOAT32_TEXTS = {
    "div": "tl.div_rn({0}, {1})",
    "truncdiv": "libdevice.trunc(tl.div_rn({0}, {1}))",
    "sqrt": "tl.sqrt_rn({0})",
}
INTEGER_TEXTS = {
    "floordiv": "_int_floordiv({0}, {1})",
    "truncdiv": "{0} // {1}",
    "mod": "_int_mod({0}, {1})",
    "fmod": "{0} % {1}",
    "minimum": "tl.minimum({0}, {1})",
    "maximum": "tl.maximum({0}, {1})",
    "neg": "-{0}",
}
"""The texts for float32 and for integers that differ from `TEXTS`, which are those for all floats."""


def expression(op: str, dtype: torch.dtype, args: Sequence[str], of: torch.dtype) -> str:
    """Returns the expression of operation `op` with a result of type `dtype`; `of` is the first argument's type."""
    if op == "cast":
        return cast(args[0], of, dtype)
    special = FLOAT32_TEXTS if of is torch.float32 else {} if of.is_floating_point else INTEGER_TEXTS
    bits = {torch.float64: "tl.int64", torch.float32: "tl.int32"}.get(of, "tl.int16")
    return special.get(op, TEXTS[op]).format(*args, t=TYPES[of], bits=bits)


def cast(value: str, source: torch.dtype, dtype: torch.dtype) -> str:
    """Returns `value` converted from `source` to `dtype`, like ``Tensor.to``."""
    if dtype is torch.bool:
        return f"{value} != 0"
    if source.is_floating_point and dtype in (torch.uint8, torch.int8, torch.int16):
        # as in eager's kernels: numbers out of range wrap around; a direct conversion of them is undefined in LLVM
        value = f"{value}.to(tl.int{64 if dtype is torch.uint8 else 32})"
    return f"{value}.to({TYPES[dtype]})"


def literal(number: ir.Literal, op: str | None = None, beside_value: bool = False) -> str:
    """Returns a number as an argument of `op`; `beside_value`: another argument is a value of its type."""
    text = _shortest_decimal(number)
    beside_any = beside_value or op in (None, "store", "where")  # otherwise it would stay a Python number
    inferred = number.dtype in (torch.float32, torch.int32, torch.bool) and not _is_wide(number) and beside_any
    rounded = op in _COMPARISON and number.dtype is torch.float64  # Triton rounds a compared Python float to float32
    if inferred or (op in _PROMOTING and beside_value and not rounded):
        return text
    return f"tl.full([], {text}, {TYPES[number.dtype]})"


def _is_wide(number: ir.Literal) -> bool:
    """Returns whether Triton takes a float32 number for a float64: one that is denormal or, since its shortest decimal
    is larger, the largest."""
    size = abs(number.value)
    return number.dtype is torch.float32 and (0 < size < 2**-126 or torch.finfo(torch.float32).max <= size < math.inf)


def identity(op: str, dtype: torch.dtype) -> str:
    """Returns the identity of a reduction (`ir.REDUCTIONS`) as a number of type `dtype`."""
    if op in ("max", "min") and not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        return str(info.min if op == "max" else info.max)
    if dtype.is_floating_point:
        return _shortest_decimal(ir.Literal(float(ir.REDUCTIONS[op]), dtype))
    return repr(ir.REDUCTIONS[op])


_ASSIGNMENTS = {"sum": "+=", "any": "|=", "all": "&="}


def accumulate_statement(op: str, dtype: torch.dtype, accumulator: str, value: str) -> str:
    """Returns the statement that accumulates one more block of values."""
    if op in _ASSIGNMENTS:
        return f"{accumulator} {_ASSIGNMENTS[op]} {value}"
    combined = {"prod": "mul", "max": "maximum", "min": "minimum"}[op]
    return f"{accumulator} = {expression(combined, dtype, [accumulator, value], dtype)}"


def reduce(op: str, dtype: torch.dtype, value: str, along: str) -> str:
    """Returns a block of values reduced along an axis; `along` are the axis arguments of Triton's reductions."""
    if op in ("any", "all"):
        return f"tl.{'max' if op == 'any' else 'min'}({value}.to(tl.int32), {along}) != 0"
    if op == "sum" and dtype.is_floating_point:
        return f"tl.sum({value}, {along})"
    if op == "prod" or dtype.is_floating_point:
        axis, *keep = along.split(", ")
        combine = "_multiply" if op == "prod" else f"_{op}imum"
        return f"tl.reduce({value}, {', '.join([axis, combine, *keep])})"
    # Triton widens small integers to int32
    return f"tl.{op}({value}, {along}).to({TYPES[dtype]})"


def scan(op: str, value: str, axis: str) -> str:
    """Returns the inclusive scan of a block of values."""
    return f"tl.associative_scan({value}, {axis}, _{'plus' if op == 'sum' else 'multiply'})"


def _shortest_decimal(number: ir.Literal) -> str:
    """Returns the shortest decimal that rounds to this number in its type."""
    value = number.value
    if not isinstance(value, float):
        return repr(value)
    if not math.isfinite(value):
        return f'float("{value}")'
    if number.dtype is torch.float32:
        decimals = [float(f"{value:.{digits}g}") for digits in range(1, 10)]
        value = next(decimal for decimal in decimals if _to_float32(decimal) == _to_float32(value))
    return repr(value)


def _to_float32(value: float) -> float:
    return ctypes.c_float(value).value
