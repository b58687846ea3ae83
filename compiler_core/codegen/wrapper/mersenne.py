"""Draws the same Bernoulli numbers as PyTorch's CPU generator (for dropout), vectorised.

PyTorch draws Bernoulli numbers one at a time, which takes longer than the rest of a dropout.  Its
generator is the Mersenne Twister (MT19937; Matsumoto and Nishimura 1998), whose state Python can read and set, and
neighbouring words of the state can be computed together.  An element uses two words: it is 1 if their lowest 53 bits,
as a fraction of 1, are less than the probability.

If PyTorch was built with MKL and runs on an Intel processor, it draws other numbers, with MKL, which is fast.
`matches_pytorch` therefore compares this implementation with PyTorch's before it is used.
"""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any

import torch

from compiler_core.codegen.build import compilers as build
from compiler_core.errors import BuildError

SOURCE = """\
using f32 = float; using u8 = unsigned char; using i64 = __INT64_TYPE__;
using u32 = __UINT32_TYPE__; using u64 = __UINT64_TYPE__;

enum { WORDS = 624, AHEAD = 397 };

struct State {  // the first part of what torch.get_rng_state() returns
  u64 seed;
  int left;  // words left before the state is renewed, plus one
  int seeded;
  u64 next;
  u64 words[WORDS];
};

static inline u32 twisted(u32 here, u32 next) {
  return ((here & 0x80000000u) | (next & 0x7fffffffu)) >> 1 ^ (next & 1 ? 0x9908b0dfu : 0);
}

static void renew(u32* words) {
  #pragma omp simd
  for (int i = 0; i < WORDS - AHEAD; ++i) words[i] = words[i + AHEAD] ^ twisted(words[i], words[i + 1]);
  #pragma omp simd safelen(16)
  for (int i = WORDS - AHEAD; i < WORDS - 1; ++i)
    words[i] = words[i + AHEAD - WORDS] ^ twisted(words[i], words[i + 1]);
  words[WORDS - 1] = words[AHEAD - 1] ^ twisted(words[WORDS - 1], words[0]);
}

static inline u32 tempered(u32 word) {
  word ^= word >> 11;
  word ^= word << 7 & 0x9d2c5680u;
  word ^= word << 15 & 0xefc60000u;
  return word ^ word >> 18;
}

template <typename T> static inline T drawn(u32 high, u32 low, i64 threshold) {
  return (i64)((u64)(tempered(high) & 0x1fffff) << 32 | tempered(low)) < threshold ? (T)1 : (T)0;
}

template <typename T> static void draw(State* state, T* out, i64 count, i64 threshold) {
  if (!count) return;
  u32 words[WORDS];
  for (int i = 0; i < WORDS; ++i) words[i] = (u32)state->words[i];
  int at = state->left == 1 ? WORDS : (int)state->next;
  for (i64 done = 0; done < count;) {
    if (at >= WORDS - 1) {
      const u32 last = words[WORDS - 1];
      renew(words);
      at -= WORDS;
      if (at < 0) {
        out[done++] = drawn<T>(last, words[0], threshold);
        at = 1;
      }
      continue;
    }
    const i64 rest = count - done, pairs = (WORDS - at) / 2 < rest ? (WORDS - at) / 2 : rest;
    #pragma omp simd
    for (i64 i = 0; i < pairs; ++i)
      out[done + i] = drawn<T>(words[at + 2 * i], words[at + 2 * i + 1], threshold);
    done += pairs;
    at += 2 * (int)pairs;
  }
  for (int i = 0; i < WORDS; ++i) state->words[i] = words[i];
  state->next = (u64)at;
  state->left = WORDS + 1 - at;
}

extern "C" void draw_f32(State* state, f32* out, i64 count, i64 threshold) noexcept {
  draw(state, out, count, threshold);
}

extern "C" void draw_u8(State* state, u8* out, i64 count, i64 threshold) noexcept {
  draw(state, out, count, threshold);
}
"""


_SUFFIX = {torch.float32: "f32", torch.bool: "u8"}
_CONVERTED_DTYPES = (torch.float64, torch.bfloat16, torch.float16)


def bernoulli(out: torch.Tensor, p: float) -> torch.Tensor:
    """Computes ``out.bernoulli_(p)`` with the default generator; `out` must be dense in memory."""
    if out.dtype not in (*_SUFFIX, *_CONVERTED_DTYPES) or not 0 <= p <= 1 or not matches_pytorch():
        return out.bernoulli_(p)
    return _draw(out, p, torch.default_generator)


@functools.cache
def matches_pytorch() -> bool:
    """Returns whether PyTorch draws the same numbers and leaves its generator in the same state, in this process."""
    generator = torch.Generator("cpu")
    try:
        return all(_draws_the_same(generator.manual_seed(seed), p) for seed, p in enumerate((0.0, 0.1, 0.5, 0.9, 1.0)))
    except BuildError:
        return False


def _draws_the_same(generator: torch.Generator, p: float) -> bool:
    for dtype in (*_SUFFIX, *_CONVERTED_DTYPES):
        # draw a single word, so that pairs of words straddle the end of the state
        torch.rand(1, generator=generator, device="cpu")
        before, out = generator.get_state(), torch.empty(1001, dtype=dtype, device="cpu")
        expected, after = out.bernoulli_(p, generator=generator).clone(), generator.get_state()
        generator.set_state(before)
        if not torch.equal(_draw(out, p, generator), expected) or not torch.equal(generator.get_state(), after):
            return False
    return True


def _draw(out: torch.Tensor, p: float, generator: torch.Generator) -> torch.Tensor:
    if out.dtype in _CONVERTED_DTYPES:
        return out.copy_(_draw(torch.empty(out.shape, dtype=torch.bool, device="cpu"), p, generator))
    state = generator.get_state()
    _functions()[out.dtype](state.data_ptr(), out.data_ptr(), out.numel(), math.ceil(p * 2**53))
    generator.set_state(state)
    return out


@functools.cache
def _functions() -> dict[torch.dtype, Any]:
    """Returns the C functions by dtype.  They hold the GIL, so that no other thread draws between reading and setting
    the state."""
    functions = build.functions(SOURCE, ctypes.PyDLL)
    return {dtype: functions[f"draw_{suffix}"] for dtype, suffix in _SUFFIX.items()}
