"""Half types (bfloat16, float16) in C++: stored as 16 bits in memory, computed as float32 in loops.

Where eager mode produces a half, a loop rounds the float to the nearest half value (`rounded_f16`) and continues with
floats: the values are the same, without a conversion to 16 bits and back.  bfloat16 is converted inside the loop, with
shifts.  Compilers do not vectorise loops with conversions of float16, so these, and its roundings, are done for
arrays between loops (`blocks.py`).
"""

from __future__ import annotations

from collections.abc import Set

import torch

HALF_TYPES = (torch.bfloat16, torch.float16)
COMPUTE_TYPES = dict.fromkeys(HALF_TYPES, torch.float32)
"""The types in which loops compute with half types."""
CHUNK = 128
"""Elements that are converted together; their arrays fit the L1 cache."""

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


def conversions(dtypes: Set[torch.dtype]) -> str:
    """Returns the conversion functions for those of `dtypes` that are half types."""
    texts = {torch.bfloat16: BFLOAT16, torch.float16: FLOAT16}
    return "".join(text for dtype, text in texts.items() if dtype in dtypes)
