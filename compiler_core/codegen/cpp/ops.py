"""C++ expressions for the operations of the loop IR, and the declarations that they need."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence

import torch

from compiler_core.codegen.cpp.half_types import HALF_TYPES, conversions
from compiler_core.errors import BuildError
from compiler_core.loops import ir

TYPES = {
    "f32": "float",
    "f64": "double",
    "i64": "__INT64_TYPE__",
    "i32": "__INT32_TYPE__",
    "i16": "__INT16_TYPE__",
    "i8": "signed char",
    "u8": "unsigned char",
    "bf16": "unsigned short",
    "f16": "unsigned short",
}
"""Half types are stored as their bits; loops compute with float32."""

MATH = {
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "erf", "erfc"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
}
BUILTIN = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "rint", "sqrt": "sqrt", "abs": "fabs"}
INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "and": "&",
    "or": "|",
    "xor": "^",
    "lshift": "<<",
    "rshift": ">>",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
}

BITS = """\
static inline f32 as_f32(u32 bits) { f32 value; __builtin_memcpy(&value, &bits, 4); return value; }
static inline u32 as_bits(f32 value) { u32 bits; __builtin_memcpy(&bits, &value, 4); return bits; }
"""
FMA = """\
static inline f32 fma(f32 a, f32 b, f32 c) {  // a * b + c, rounded once where the processor can
#if defined __FMA__ || defined __aarch64__
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}
static inline u32 least(u32 a, u32 b) { return a < b ? a : b; }
static inline i32 least(i32 a, i32 b) { return a < b ? a : b; }  // functions: otherwise g++ merges several comparisons
"""
EXP = """\
static inline f32 exp_f32(f32 x) {  // 2^k * exp(r), where r = x - k * log(2) is at most log(2) / 2
  // clamp at -176, below which the result is 0; integers compare faster, and bits are in the order of floats
  const f32 in = as_f32(least(as_bits(x), as_bits(-176.0f)));
  const f32 shift = 0x1.8p23f + 254;  // the low bits of `rounded` are k + 254
  const f32 rounded = fma(in, 0x1.715476p0f, shift), k = rounded - shift;
  const f32 r = fma(k, -0x1.7f7d1cp-20f, fma(k, -0x1.62e4p-1f, in));  // log(2) in two parts
  const u32 twice = as_bits(rounded), once = twice >> 1;
  const f32 first = as_f32(once << 23), second = as_f32((twice - once) << 23);  // 2^k in two factors, 0 at -176
  f32 p = fma(r, 0x1.6b6e1cp-10f, 0x1.122fc2p-7f);
  p = fma(p, r, 0x1.555688p-5f);
  p = fma(p, r, 0x1.5554a4p-3f);
  p = fma(p, r, 0.5f);
  p = fma(p, r, 1.0f);
  const f32 scaled = fma(p, r * first, first) * second;  // one operation less after p than p * r + 1
  return x < 89.0f ? scaled : x * 0x1p127f;  // infinity for large x, NaN for NaN
}
"""
ERF = """\
static inline f32 erf_f32(f32 x) {  // near 0 x + x * P(x * x), elsewhere 1 - exp(Q(|x|)), from 4 on 1
  const f32 size = __builtin_fabsf(x), t = as_f32((u32)least((i32)as_bits(size), (i32)as_bits(4.0f))), square = x * x;
  f32 p = fma(square, -0x1.3a17ep-11f, 0x1.473baap-8f);
  p = fma(p, square, -0x1.b68b54p-6f);
  p = fma(p, square, 0x1.ce1a6ap-4f);
  p = fma(p, square, -0x1.8126e6p-2f);
  p = fma(p, square, 0x1.06eba6p-3f);
  f32 q = fma(t, 0x1.c0a11cp-13f, -0x1.a552e2p-9f);
  q = fma(q, t, 0x1.770096p-6f);
  q = fma(q, t, -0x1.af245ap-4f);
  q = fma(q, t, -0x1.457d2p-1f);
  q = fma(q, t, -0x1.20e648p+0f) * t;
  const f32 shift = 0x1.8p23f + 127, rounded = fma(q, 0x1.715476p0f, shift);  // low bits: k + 127
  const f32 r = fma(rounded - shift, -0x1.62e43p-1f, q);  // exp(q) is 2^k * e: less exact than exp_f32, and at most 1/5
  f32 e = fma(r, 0x1.126becp-7f, 0x1.573b8cp-5f);
  e = fma(e, r, 0x1.55543cp-3f);
  e = fma(e, r, 0x1.fffdc2p-2f);
  e = fma(e, r, 1.0f);
  e = fma(e, r, 1.0f);
  const f32 far = fma(e, -as_f32(as_bits(rounded) << 23), 1.0f);
  return size >= 0.921875f ? __builtin_copysignf(far, x) : fma(p, x, x);  // NaN takes the second
}
"""
OWN_FUNCTIONS = {"exp": EXP, "erf": ERF}
"""Functions that are vectorised at any vector width.  The C library's exponential has larger errors than eager mode's
and handles infinities element by element; its error function is slow.  The polynomials are minimax fits."""

FLOAT_TO_INTEGER = """\
template <class I, class F> static inline I whole(F x) {  // rounds towards 0; out of range, the processor's result
  const I least = (I)1 << (8 * sizeof(I) - 1), part = (I)x;
  // or'ed with 0: otherwise g++ replaces (f32)(i32)x by trunc(x), which has a negative zero
  return x >= (F)least && x < -(F)least ? part | (I)((part > 0) & (x < 0)) : least;
}
"""


def prelude(kernels: Sequence[ir.Loops], buffers: Mapping[str, ir.Buffer], simd_math: Sequence[str]) -> str:
    """Returns the source before the kernels: types, declarations of libm functions, helper functions.

    Functions in `simd_math` have vector versions (glibc's libmvec); the attributes let the
    compiler use them without -ffast-math, also under conditions.
    """
    statements = [s for k in kernels for s in k.body]
    names = {**TYPES, "u32": "__UINT32_TYPE__", "u64": "__UINT64_TYPE__"}
    types = " ".join(f"using {name} = {of};" for name, of in names.items())
    lines = textwrap.wrap(types, 100)
    for function in sorted({f for s in statements if isinstance(s, ir.Compute) for f in _libm_functions(s)}):
        of = "f32" if function.endswith("f") and function != "erf" else "f64"
        base = function.removesuffix("f") if of == "f32" else function
        simd = '__attribute__((const, simd("notinbranch"))) ' if base in simd_math else ""
        takes = ", ".join([of] * (2 if base in ("pow", "atan2") else 1))
        lines.append(f'extern "C" {simd}{of} {function}({takes}) noexcept;')
    own = {s.op for s in statements if isinstance(s, ir.Compute) and _has_own_function(s.op, s.dtype)}
    helpers = [FMA] if own else []
    helpers += [text for op, text in OWN_FUNCTIONS.items() if op in own]
    stored = {buffers[s.buffer].dtype for s in statements if isinstance(s, ir.Store)}
    helpers.append(conversions(stored | {s.dtype for s in statements if not isinstance(s, ir.Store)}))
    if any(helpers):
        helpers.insert(0, BITS)
    if any(_converts_to_integer(k) for k in kernels):
        helpers.append(FLOAT_TO_INTEGER)
    return "\n".join(lines) + "\n" + "".join(helpers)


def _converts_to_integer(loops: ir.Loops) -> bool:
    """Returns whether a kernel converts a float to an integer."""
    floats = {s.name for s in loops.body if not isinstance(s, ir.Store) and s.dtype.is_floating_point}
    casts = (s for s in loops.body if isinstance(s, ir.Compute) and s.op == "cast" and _is_integer(s.dtype))
    return any(a in floats or isinstance(a, ir.Literal) for s in casts for a in s.arguments)


def _is_integer(dtype: torch.dtype) -> bool:
    return not dtype.is_floating_point and dtype is not torch.bool


def _has_own_function(op: str, dtype: torch.dtype) -> bool:
    return op in OWN_FUNCTIONS and dtype is torch.float32


def _libm_functions(statement: ir.Compute) -> list[str]:
    if _has_own_function(statement.op, statement.dtype):
        return []
    if statement.op in MATH or statement.op in ("pow", "atan2"):
        return [statement.op + ("f" if statement.dtype is torch.float32 else "")]
    return []


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
    if op == "where":
        return f"{args[0]} ? {args[1]} : {args[2]}"
    if op in ir.COMPARISONS and op in INFIX:
        return f"{args[0]} {INFIX[op]} {args[1]}"
    if op in INFIX:
        plain = f"{args[0]} {INFIX[op]} {args[1]}"
        # C++ computes short integers as int
        return plain if dtype.is_floating_point or t in ("i32", "i64") else f"({t})({plain})"
    if op == "uniform":
        raise BuildError("random numbers of the CUDA generator can be drawn by Triton kernels only, not by C++")
    if _has_own_function(op, dtype):
        return f"{op}_f32({args[0]})"
    if op in MATH or op in ("pow", "atan2"):
        return f"::{op}{single}({', '.join(args)})"
    return _by_name(op, t, args, of, single)


def _by_name(op: str, t: str, args: Sequence[str], of: torch.dtype, single: str) -> str:
    x, y = args[0], args[-1]
    is_float = of.is_floating_point
    match op:
        case "abs" if not is_float:
            return f"({t})({x} < 0 ? -{x} : {x})"
        case "floor" | "ceil" | "trunc" | "round" | "sqrt" | "abs":
            return f"__builtin_{BUILTIN[op]}{single}({x})"
        case "rsqrt":
            return f"1 / __builtin_sqrt{single}({x})"
        case "neg":
            return f"({t})(-{x})"
        case "not":
            return f"!{x}" if of is torch.bool else f"({t})(~{x})"
        case "sign":
            return f"({t})(({x} > 0) - ({x} < 0))"
        case "maximum":
            return f"{x} > {y} || {x} != {x} ? {x} : {y}"
        case "minimum":
            return f"{x} < {y} || {x} != {x} ? {x} : {y}"
        case "isnan":
            return f"{x} != {x}"
        case "isinf":
            return f"__builtin_fabs{single}({x}) == __builtin_inf{single}()"
        case "signbit":
            # __builtin_signbitf of a float made from bits stops g++ 12 with an internal error
            return f"__builtin_copysign{single}(1, {x}) < 0"
        case "fmod":
            return f"__builtin_fmod{single}({x}, {y})" if is_float else f"({t})({x} % {y})"
        case "truncdiv":
            return f"({t})({x} / {y})"
        case "floordiv":
            return f"({t})({x} / {y} - ({x} % {y} != 0 && (({x} < 0) != ({y} < 0))))"
        case "mod":
            rest = f"__builtin_fmod{single}({x}, {y})" if is_float else f"{x} % {y}"
            return f"[](auto r, auto d) {{ return ({t})(r != 0 && (r < 0) != (d < 0) ? r + d : r); }}({rest}, {y})"
    raise KeyError(f"the operation {op!r} has no C++ expression; add it to {__name__}")


def _cast(x: str, of: torch.dtype, to: torch.dtype) -> str:
    if to is torch.bool:
        return f"{x} != 0"
    if of is torch.bool:  # compilers do not vectorise a loop with the cast
        return f"{x} ? {literal(1, to)} : {literal(0, to)}"
    if to in HALF_TYPES:
        return f"rounded_{ir.SHORT[to]}({x})"
    if of in HALF_TYPES:
        return x
    if of.is_floating_point and _is_integer(to):
        # eager mode converts to the short types through these
        part = f"whole<{'i64' if to in (torch.int64, torch.uint8) else 'i32'}>({x})"
        return part if to in (torch.int64, torch.int32) else f"({ir.SHORT[to]}){part}"
    return f"({ir.SHORT[to]}){x}"
