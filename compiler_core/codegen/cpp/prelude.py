"""The source before the kernels: types, declarations of libm functions, and helper functions as C++.

Half types (bfloat16, float16) are stored as 16 bits in memory, and computed as float32 in loops.  Where eager mode
produces a half, a loop rounds the float to the nearest half value (`rounded_f16`) and continues with floats: the values
are the same, without a conversion to 16 bits and back.  bfloat16 is converted inside the loop, with shifts.  Compilers
do not vectorise loops with conversions of float16, so these, and its roundings, are done for arrays between loops
(`vectors.py`).
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

import torch

from compiler_core.codegen.cpp.ops import MATH, has_own_function, is_integer
from compiler_core.loops import ir

MAX_RUN = 256
"""The maximum number of elements of a call of `running_sums`."""

BFLOAT16 = """\
static inline f32 f32_of_bf16(bf16 x) { return as_f32((u32)x << 16); }
static inline bf16 bf16_of_f32(f32 x) { return (bf16)(as_bits(x) >> 16); }  // exact: x is a bf16 value
static inline f32 rounded_bf16(f32 x) {  // to nearest, half to even
  const u32 bits = as_bits(x), rounded = bits + 0x7fff + ((bits >> 16) & 1);
  return as_f32((x != x ? 0x7fc00000u : rounded) & 0xffff0000u);
}
"""

FLOAT16 = """\
static inline f32 f32_of_f16(f16 x) {
  const u32 sign = (u32)(x & 0x8000) << 16, rest = (u32)x << 17;
  const f32 normal = as_f32((rest >> 4) + (0xe0u << 23)) * 0x1p-112f;
  const f32 subnormal = as_f32((rest >> 17) | (126u << 23)) - 0.5f;
  return as_f32(sign | (rest < (1u << 27) ? as_bits(subnormal) : as_bits(normal)));
}
static inline f16 f16_of_f32(f32 x) {  // to nearest, half to even
  const u32 bits = as_bits(x), doubled = bits + bits, floor_bias = 0x71000000u;
  const u32 exponent = doubled & 0xff000000u, bias = exponent < floor_bias ? floor_bias : exponent;
  const f32 rounded = as_f32((bias >> 1) + 0x07800000u) + __builtin_fabsf(x) * 0x1p112f * 0x1p-110f;
  const u32 result = ((as_bits(rounded) >> 13) & 0x7c00) + (as_bits(rounded) & 0xfff);
  return (f16)((bits >> 16 & 0x8000) | (doubled > 0xff000000u ? 0x7e00 : result));
}
static inline f32 rounded_f16(f32 x) {  // adding 1.5 * 2^13 times its power of two rounds off the other bits
  const u32 bits = as_bits(x), sign = bits & 0x80000000u, power = bits & 0x7f800000u;
  const f32 large = as_f32((power < 0x38800000u ? 0x38800000u : power) + (13u << 23) + (1u << 22));
  const u32 near = as_bits((x + large) - large) | sign;
  return as_f32(__builtin_fabsf(x) >= 65520.0f ? sign | 0x7f800000u : near);
}
// conversions of vectors, with the processor's instructions
#if defined __F16C__
typedef short halves8 __attribute__((vector_size(16)));
typedef f32 floats4 __attribute__((vector_size(16)));
typedef f32 floats8 __attribute__((vector_size(32)));
enum { LANES = 16 };
#if defined __AVX512F__
typedef short halves16 __attribute__((vector_size(32)));
typedef f32 floats16 __attribute__((vector_size(64)));
#endif
template <i32 lanes> static inline void widen(f32* to, const f16* from) {
  if constexpr (lanes > 16) {
    widen<lanes / 2>(to, from);
    widen<lanes / 2>(to + lanes / 2, from + lanes / 2);
  } else if constexpr (lanes == 16) {
#if defined __AVX512F__
    halves16 in;
    __builtin_memcpy(&in, from, sizeof in);
    const floats16 out = __builtin_ia32_vcvtph2ps512_mask(in, floats16{}, -1, 4);
    __builtin_memcpy(to, &out, sizeof out);
#else
    widen<8>(to, from);
    widen<8>(to + 8, from + 8);
#endif
  } else {
    halves8 in = {};
    __builtin_memcpy(&in, from, 2 * lanes);
    if constexpr (lanes == 8) {
      const floats8 out = __builtin_ia32_vcvtph2ps256(in);
      __builtin_memcpy(to, &out, 4 * lanes);
    } else {
      const floats4 out = __builtin_ia32_vcvtph2ps(in);
      __builtin_memcpy(to, &out, 4 * lanes);
    }
  }
}
template <i32 lanes> static inline void narrow(f16* to, const f32* from) {
  if constexpr (lanes > 16) {
    narrow<lanes / 2>(to, from);
    narrow<lanes / 2>(to + lanes / 2, from + lanes / 2);
  } else if constexpr (lanes == 16) {
#if defined __AVX512F__
    floats16 in;
    __builtin_memcpy(&in, from, sizeof in);
    const halves16 out = __builtin_ia32_vcvtps2ph512_mask(in, 0, halves16{}, -1);
    __builtin_memcpy(to, &out, sizeof out);
#else
    narrow<8>(to, from);
    narrow<8>(to + 8, from + 8);
#endif
  } else if constexpr (lanes == 8) {
    floats8 in;
    __builtin_memcpy(&in, from, sizeof in);
    const halves8 out = __builtin_ia32_vcvtps2ph256(in, 0);
    __builtin_memcpy(to, &out, sizeof out);
  } else {
    floats4 in = {};
    __builtin_memcpy(&in, from, 4 * lanes);
    const halves8 out = __builtin_ia32_vcvtps2ph(in, 0);
    __builtin_memcpy(to, &out, 2 * lanes);
  }
}
template <i32 lanes> static inline void round(f32* to, const f32* from) {
  f16 bits[lanes];
  narrow<lanes>(bits, from);
  widen<lanes>(to, bits);
}
#else
enum { LANES = 1 };
template <i32 lanes> static inline void widen(f32* to, const f16* from) {
  #pragma omp simd
  for (i32 lane = 0; lane < lanes; ++lane) to[lane] = f32_of_f16(from[lane]);
}
template <i32 lanes> static inline void narrow(f16* to, const f32* from) {
  #pragma omp simd
  for (i32 lane = 0; lane < lanes; ++lane) to[lane] = f16_of_f32(from[lane]);
}
template <i32 lanes> static inline void round(f32* to, const f32* from) {
  #pragma omp simd
  for (i32 lane = 0; lane < lanes; ++lane) to[lane] = rounded_f16(from[lane]);
}
#endif
static __attribute__((noinline)) void f32s_of_f16(f32* __restrict to, const f16* __restrict from, i64 count) {
  i64 k = 0;
  for (; k + LANES <= count; k += LANES) widen<LANES>(to + k, from + k);
  if (k < count && count > LANES) widen<LANES>(to + count - LANES, from + count - LANES);  // overlaps the last ones
  else for (; k < count; ++k) to[k] = f32_of_f16(from[k]);
}
static __attribute__((noinline)) void f16s_of_f32(f16* __restrict to, const f32* __restrict from, i64 count) {
  i64 k = 0;
  for (; k + LANES <= count; k += LANES) narrow<LANES>(to + k, from + k);
  if (k < count && count > LANES) narrow<LANES>(to + count - LANES, from + count - LANES);
  else for (; k < count; ++k) to[k] = f16_of_f32(from[k]);
}
"""

RUNNING_SUMS = f"""\
// to[k] = sum + from[0] + ... + from[k], computed from sums of two, four and eight neighbours; returns the last one.
// run[j] is the latest result at a position j modulo 8.  A multiple of 8 elements of `to` is written.
static __attribute__((noinline)) f64 running_sums(f32* __restrict to, const f32* __restrict from, i64 count, f64 sum) {{
  f64 even[16 + {MAX_RUN}], odd[8 + {MAX_RUN}], run[8];
  for (i64 k = 0; k < 8; ++k) even[k] = odd[k] = even[8 + count + k] = 0, run[k] = sum;
  for (i64 k = 8; k < 8 + count; ++k) even[k] = from[k - 8];
  for (i64 k = 8; k < 8 + count; ++k) odd[k] = even[k] + even[k - 1];
  for (i64 k = 8; k < 8 + count; ++k) even[k] = odd[k] + odd[k - 2];
  for (i64 k = 0; k < count; k += 8) {{
    #pragma omp simd
    for (i64 j = 0; j < 8; ++j) to[k + j] = (f32)(run[j] += even[8 + k + j] + even[4 + k + j]);
  }}
  return run[(count - 1) % 8];
}}
"""

EACH_SOURCE = """\
#define INLINE __attribute__((always_inline))
struct Nothing { void operator()(i32, i32) const {} };
template <i32 lanes> struct Count { constexpr operator i32() const { return lanes; } };
// calls body(index, lanes) for blocks of `lanes` indices from start to end, then for the rest with half as many lanes
// each time; before each halving, fold(lane, other) combines the results of the upper lanes into the lower ones
template <i32 lanes, class Body, class Fold = Nothing>
static inline INLINE void each(i64 start, i64 end, Body body, Fold fold = {}) {
  const i64 rest = end - (end - start) % lanes;
  for (; start < rest; start += lanes) body(start, Count<lanes>());
  if constexpr (lanes > 1) {
    #pragma omp simd
    for (i32 lane = 0; lane < lanes / 2; ++lane) fold(lane, lane + lanes / 2);
    each<lanes / 2>(rest, end, body, fold);
  }
}
"""

INSIDE_SOURCE = """\
// all bits are set if 0 <= at < size, else none: arithmetic, which compilers do not turn into a condition of a load
static inline i64 inside(i64 at, i64 size) { return ((at - size) >> 63) & ~(at >> 63); }
"""

TOTAL_SOURCE = """\
static inline f64 total(const f32* sums) { return ((f64)sums[0] + sums[1]) + ((f64)sums[2] + sums[3]); }
"""

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
    "u32": "__UINT32_TYPE__",
    "u64": "__UINT64_TYPE__",
}
"""Half types are stored as their bits; loops compute with float32."""

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

FLOAT_TO_INTEGER = """\
template <class I, class F> static inline I whole(F x) {  // rounds towards 0; out of range, the processor's result
  const I least = (I)1 << (8 * sizeof(I) - 1), part = (I)x;
  // or'ed with 0: otherwise g++ replaces (f32)(i32)x by trunc(x), which has a negative zero
  return x >= (F)least && x < -(F)least ? part | (I)((part > 0) & (x < 0)) : least;
}
"""


def prelude(kernels: Sequence[ir.Loops], buffers: Mapping[str, ir.Buffer], simd_math: Sequence[str]) -> str:
    """Returns the types, declarations of libm functions and helper functions that the kernels need.

    Functions in `simd_math` have vector versions (glibc's libmvec); the attributes let the
    compiler use them without -ffast-math, also under conditions.
    """
    statements = [s for k in kernels for s in k.body]
    computes = [s for s in statements if isinstance(s, ir.Compute)]
    lines = textwrap.wrap(" ".join(f"using {name} = {of};" for name, of in TYPES.items()), 100)
    called = (s for s in computes if s.op in MATH and not has_own_function(s.op, s.dtype))
    for function in sorted({s.op + ("f" if s.dtype is torch.float32 else "") for s in called}):
        of = "f32" if function.endswith("f") and function != "erf" else "f64"
        base = function.removesuffix("f") if of == "f32" else function
        simd = '__attribute__((const, simd("notinbranch"))) ' if base in simd_math else ""
        takes = ", ".join([of] * (2 if base in ("pow", "atan2") else 1))
        lines.append(f'extern "C" {simd}{of} {function}({takes}) noexcept;')
    own = {s.op for s in computes if has_own_function(s.op, s.dtype)}
    dtypes = {buffers[s.buffer].dtype if isinstance(s, ir.Store) else s.dtype for s in statements}
    helpers = [FMA] if own else []
    helpers += [text for op, text in (("exp", EXP), ("erf", ERF)) if op in own]
    helpers += [text for dtype, text in ((torch.bfloat16, BFLOAT16), (torch.float16, FLOAT16)) if dtype in dtypes]
    if helpers:
        helpers.insert(0, BITS)
    if any(_converts_to_integer(k) for k in kernels):
        helpers.append(FLOAT_TO_INTEGER)
    return "\n".join(lines) + "\n" + "".join(helpers)


def _converts_to_integer(loops: ir.Loops) -> bool:
    """Returns whether a kernel converts a float to an integer."""
    casts = (s for s in loops.body if isinstance(s, ir.Compute) and s.op == "cast" and is_integer(s.dtype))
    return any(isinstance(a, ir.Literal) or loops.dtype(a).is_floating_point for s in casts for a in s.arguments)
