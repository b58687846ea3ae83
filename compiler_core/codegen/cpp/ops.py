"""C++ texts of names, numbers, operations and reductions of the loop IR."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import torch

from compiler_core.errors import BuildError
from compiler_core.loops import ir
from compiler_core.support.tensors import HALF_TYPES

COMPUTE_TYPES = dict.fromkeys(HALF_TYPES, torch.float32)
"""The types in which loops compute with half types."""
OWN_FUNCTIONS = ("exp", "erf")
"""Functions of float32 that `prelude` defines, because they are vectorised at any vector width.

The C library's exponential has larger errors than eager mode's and handles infinities element by element; its error
function is slow."""
MATH = {*ir.FLOAT_FUNCTIONS, "pow", "atan2"}
"""Functions of the C library."""
ARITHMETIC = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "and": "&",
    "or": "|",
    "xor": "^",
    "lshift": "<<",
    "rshift": ">>",
}
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
BUILTINS = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "rint", "sqrt": "sqrt", "abs": "fabs"}

# In the texts of operations, {t} is the result's type, and {f} the suffix of functions of float32.
TEXTS = {
    **{op: f"{{0}} {sign} {{1}}" for op, sign in COMPARISONS.items()},
    **{op: f"__builtin_{name}{{f}}({{0}})" for op, name in BUILTINS.items()},
    "where": "{0} ? {1} : {2}",
    "rsqrt": "1 / __builtin_sqrt{f}({0})",
    "neg": "({t})(-{0})",
    "not": "({t})(~{0})",
    "sign": "({t})(({0} > 0) - ({0} < 0))",
    # the comparison is one instruction, which returns the second operand if either is NaN; adding -0 changes no value
    "maximum": "({0} > {1} ? {0} : {1}) + ({0} != {0} ? {0} : -0.0{f})",
    "minimum": "({0} < {1} ? {0} : {1}) + ({0} != {0} ? {0} : -0.0{f})",
    "isnan": "{0} != {0}",
    "isinf": "__builtin_fabs{f}({0}) == __builtin_inf{f}()",
    # __builtin_signbitf of a float made from bits stops g++ 12 with an internal error
    "signbit": "__builtin_copysign{f}(1, {0}) < 0",
    "fmod": "__builtin_fmod{f}({0}, {1})",
    "truncdiv": "({t})({0} / {1})",
    "floordiv": "({t})({0} / {1} - ({0} % {1} != 0 && (({0} < 0) != ({1} < 0))))",
    "mod": "[](auto r, auto d) {{ return ({t})(r != 0 && (r < 0) != (d < 0) ? r + d : r); }}({rest}, {1})",
}
INTEGER_TEXTS = {
    "abs": "({t})({0} < 0 ? -{0} : {0})",
    "fmod": "({t})({0} % {1})",
    "maximum": "{0} > {1} ? {0} : {1}",
    "minimum": "{0} < {1} ? {0} : {1}",
}
"""The texts for integers that differ from those for floats."""

RESERVED_NAMES = re.compile(
    r"""[ij]\d+(_tile)*|(in|out)_.*|.*_(part|all|nan|row|lane|run|wide|chunk|few|array|block)  # indices, arrays
    |block|tile|chunk|lanes?|fault|other|first|[fiu](8|16|32|64)|bf16|f16   # other names in printed kernels
    |as_f32|as_bits|exp_f32|erf_f32|fma|each|total|widen|narrow|round|inside|from|count|at|Count|INLINE|Nothing
    |alignas|alignof|and|and_eq|asm|auto|bitand|bitor|bool|break|case|catch|char|class|compl|const|constexpr
    |continue|decltype|default|delete|do|double|else|enum|explicit|export|extern|false|float|for|friend|goto|if
    |inline|int|long|mutable|namespace|new|noexcept|not|not_eq|nullptr|operator|or|or_eq|private|protected|public
    |register|return|short|signed|sizeof|static|struct|switch|template|this|throw|true|try|typedef|typeid|typename
    |union|unsigned|using|virtual|void|volatile|while|xor|xor_eq""",
    re.VERBOSE,
)
"""Names that a value must not have in a kernel: those of printed code, and C++ keywords."""


def identifier(name: str) -> str:
    """Returns `name` as a C++ identifier that does not collide with reserved names."""
    return f"{name}_" if RESERVED_NAMES.fullmatch(name) else name


def memory_type(dtype: torch.dtype) -> str:
    """Returns the C++ type of array elements; u8 for bool, because compilers do not vectorise loops that read bool."""
    return "u8" if dtype is torch.bool else ir.SHORT[dtype]


def is_integer(dtype: torch.dtype) -> bool:
    """Returns whether values of the type are integers, and not bools."""
    return not dtype.is_floating_point and dtype is not torch.bool


def has_own_function(op: str, dtype: torch.dtype) -> bool:
    """Returns whether an operation calls one of `OWN_FUNCTIONS`."""
    return op in OWN_FUNCTIONS and dtype is torch.float32


def literal(value: int | float | bool, dtype: torch.dtype) -> str:
    """Returns a number of type `dtype` as a C++ literal."""
    if dtype is torch.bool:
        return "true" if value else "false"
    if dtype in HALF_TYPES:
        bits = torch.tensor(value, dtype=dtype).view(torch.int16).item()
        return f"({ir.SHORT[dtype]}){hex(int(bits) & 0xFFFF)}"
    if not dtype.is_floating_point:
        text = "-9223372036854775807 - 1" if value == -(2**63) else str(value)
        return f"({ir.SHORT[dtype]})({text})" if value < 0 else f"({ir.SHORT[dtype]}){text}"
    single = "f" if dtype is torch.float32 else ""
    if math.isnan(value):
        return f'__builtin_nan{single}("")'
    text = f"__builtin_inf{single}()" if math.isinf(value) else repr(abs(float(value))) + single
    return f"(-{text})" if math.copysign(1, value) < 0 else text


def expression(op: str, dtype: torch.dtype, args: Sequence[str], of: torch.dtype) -> str:
    """Returns the C++ expression of operation `op` with a result of type `dtype`; `of` is the last argument's type.

    Raises BuildError for an operation that only Triton kernels have.
    """
    t, single = ir.SHORT[dtype], "f" if of is torch.float32 else ""
    if op == "cast":
        return _cast(args[0], of, dtype)
    if op == "uniform":
        raise BuildError("random numbers of the CUDA generator can be drawn by Triton kernels only, not by C++")
    if op in ARITHMETIC:
        plain = f"{args[0]} {ARITHMETIC[op]} {args[1]}"
        # C++ computes short integers as int
        return plain if dtype.is_floating_point or t in ("i32", "i64") else f"({t})({plain})"
    if has_own_function(op, dtype):
        return f"{op}_f32({args[0]})"
    if op in MATH:
        return f"::{op}{single}({', '.join(args)})"
    if op == "not" and of is torch.bool:
        return f"!{args[0]}"
    text = TEXTS[op] if of.is_floating_point else INTEGER_TEXTS.get(op, TEXTS[op])
    rest = ""
    if op == "mod":
        rest = f"__builtin_fmod{single}({', '.join(args)})" if of.is_floating_point else f"{args[0]} % {args[1]}"
    return text.format(*args, t=t, f=single, rest=rest)


def _cast(x: str, of: torch.dtype, to: torch.dtype) -> str:
    if to is torch.bool:
        return f"{x} != 0"
    if of is torch.bool:  # compilers do not vectorise a loop with the cast
        return f"{x} ? {literal(1, to)} : {literal(0, to)}"
    if to in HALF_TYPES:
        return f"rounded_{ir.SHORT[to]}({x})"
    if of in HALF_TYPES:
        return x
    if of.is_floating_point and is_integer(to):
        # eager mode converts to the short types through these
        part = f"whole<{'i64' if to in (torch.int64, torch.uint8) else 'i32'}>({x})"
        return part if to in (torch.int64, torch.int32) else f"({ir.SHORT[to]}){part}"
    return f"({ir.SHORT[to]}){x}"


# -- reductions and scans: the types, initial values and updates of their accumulators -----------

ASSIGNMENTS = {"sum": "+=", "prod": "*=", "any": "|=", "all": "&="}


def uses_running_sums(scan: ir.Scan) -> bool:
    """Returns whether the scan is printed as `running_sums`, whose order of additions differs, in double."""
    return scan.op == "sum" and scan.dtype is torch.float32


def element_type(reduce: ir.Reduce | ir.Scan) -> str:
    """Returns the accumulator's type in a vectorised loop."""
    return "u8" if reduce.op in ("any", "all") else ir.SHORT[reduce.dtype]


def row_type(reduce: ir.Reduce | ir.Scan) -> str:
    """Returns the accumulator's type across the blocks of a row, and in `lanes`: double for sums of floats."""
    return "f64" if reduce.op in ("sum", "prod") and reduce.dtype is torch.float32 else element_type(reduce)


def sums_for_means(loops: ir.Loops) -> frozenset[str]:
    """Returns the float sums of means: they are used in a division only, and rounded once, after it."""
    sums = {s.name for s in loops.body if isinstance(s, ir.Reduce) and s.op == "sum" and s.dtype is torch.float32}
    divisions = (s for s in loops.body if isinstance(s, ir.Compute) and s.op == "div" and not loops.is_inner(s))
    return frozenset(sums.intersection(s.arguments[0] for s in divisions))


def propagates_nan(reduce: ir.Reduce) -> bool:
    """Returns whether the result must be NaN if an element is: comparisons alone would ignore NaN."""
    return reduce.op in ("max", "min") and reduce.dtype.is_floating_point


def nan_flag_type(reduce: ir.Reduce) -> str:
    """Returns the type of the NaN flags: as wide as the elements, so that vectors have equally many lanes."""
    return "u32" if reduce.dtype is torch.float32 else "i64"


def identity(reduce: ir.Reduce | ir.Scan) -> str:
    """Returns the initial value of an accumulator, as C++."""
    if reduce.op in ("max", "min") and not reduce.dtype.is_floating_point:
        info = torch.iinfo(reduce.dtype)
        return literal(info.min if reduce.op == "max" else info.max, reduce.dtype)
    return literal(ir.REDUCTIONS[reduce.op], reduce.dtype)


def update(reduce: ir.Reduce | ir.Scan, into: str, value: str, nan: bool = False) -> str:
    """Returns the statement that accumulates one more value; `nan` keeps NaN in maxima and minima."""
    if reduce.op in ("max", "min"):
        sign = ">" if reduce.op == "max" else "<"
        or_nan = f" || {value} != {value}" if nan else ""
        return f"{into} = {value} {sign} {into}{or_nan} ? {value} : {into};"
    return f"{into} {ASSIGNMENTS[reduce.op]} {value};"


def openmp_clauses(reduces: Sequence[ir.Reduce], suffix: str) -> str:
    """Returns OpenMP's reduction clauses for the accumulators of `reduces`."""
    signs = {"sum": "+", "prod": "*", "any": "|", "all": "&", "max": "max", "min": "min"}
    clauses = [f" reduction({signs[r.op]} : {accumulator(r, suffix)})" for r in reduces]
    clauses += [f" reduction(| : {accumulator(r, 'nan_' + suffix)})" for r in reduces if propagates_nan(r)]
    return "".join(clauses)


def accumulator(reduce: ir.Reduce | ir.Scan, suffix: str) -> str:
    """Returns the name of a variable that belongs to a reduction."""
    return f"{identifier(reduce.name)}_{suffix}"
