"""Accumulators of reductions and scans in C++: their types, first values and updates."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from compiler_core.codegen.cpp.halves import CHUNK
from compiler_core.codegen.cpp.ops import number
from compiler_core.codegen.cpp.text import safe
from compiler_core.loops import ir

RUNNING_SUMS = f"""\
// to[k] = sum + from[0] + ... + from[k], from sums of two, four and eight neighbours; the last of them
static __attribute__((noinline)) f64 running_sums(f32* __restrict to, const f32* __restrict from, i64 count, f64 sum) {{
  f64 even[8 + {CHUNK}], odd[8 + {CHUNK}];
  for (i64 k = 0; k < 8; ++k) even[k] = odd[k] = 0;
  for (i64 k = 0; k < count; ++k) even[8 + k] = from[k];
  for (i64 k = 0; k < count; ++k) odd[8 + k] = even[8 + k] + even[7 + k];
  for (i64 k = 0; k < count; ++k) even[8 + k] = odd[8 + k] + odd[6 + k];
  for (i64 k = 0; k < count; ++k) odd[8 + k] = even[8 + k] + even[4 + k];
  for (i64 k = 0; k < 8; ++k) even[k] = sum;
  #pragma omp simd safelen(8)
  for (i64 k = 0; k < count; ++k) even[8 + k] = odd[8 + k] + even[k];
  for (i64 k = 0; k < count; ++k) to[k] = (f32)even[8 + k];
  return even[7 + count];
}}
"""


def sums_ahead(scan: ir.Scan) -> bool:
    """Whether `RUNNING_SUMS` does it: doubles have room for any order of additions."""
    return scan.op == "sum" and scan.dtype is torch.float32


def narrow(reduce: ir.Reduce | ir.Scan) -> str:
    """The type that a reduction accumulates in, in the vectorised loop."""
    return "u8" if reduce.op in ("any", "all") else ir.SHORT[reduce.dtype]


def wide(reduce: ir.Reduce | ir.Scan) -> str:
    """The type that a reduction accumulates in across blocks of a row, and in lanes."""
    return "f64" if reduce.op in ("sum", "prod") and reduce.dtype is torch.float32 else narrow(reduce)


def means(loops: ir.Loops) -> frozenset[str]:
    """The sums of floats that become a mean: these are rounded once, when they have been divided."""
    sums = {s.name for s in loops.body if isinstance(s, ir.Reduce) and s.op == "sum" and s.dtype is torch.float32}
    divisions = (s for s in loops.body if isinstance(s, ir.Compute) and s.op == "div" and not loops.is_inner(s))
    return frozenset(sums.intersection(s.arguments[0] for s in divisions))


def sees_nan(reduce: ir.Reduce) -> bool:
    """Whether the result is NaN as soon as an element is, which `>` and `<` do not see."""
    return reduce.op in ("max", "min") and reduce.dtype.is_floating_point


def flag(reduce: ir.Reduce) -> str:
    # as wide as the elements, so that a vector of flags is as long as one of elements
    return "u32" if reduce.dtype is torch.float32 else "i64"


def identity(reduce: ir.Reduce | ir.Scan) -> str:
    if reduce.op in ("max", "min") and not reduce.dtype.is_floating_point:
        info = torch.iinfo(reduce.dtype)
        return number(info.min if reduce.op == "max" else info.max, reduce.dtype)
    return number(ir.REDUCTIONS[reduce.op], reduce.dtype)


def update(reduce: ir.Reduce | ir.Scan, into: str, value: str, nan: bool = False) -> str:
    """The statement that takes one more value into an accumulator."""
    if reduce.op in ("max", "min"):
        sign = ">" if reduce.op == "max" else "<"
        return f"{into} = {value} {sign} {into}{f' || {value} != {value}' if nan else ''} ? {value} : {into};"
    return f"{into} {({'sum': '+=', 'prod': '*=', 'any': '|=', 'all': '&='})[reduce.op]} {value};"


def clauses(reduces: Sequence[ir.Reduce], suffix: str) -> str:
    """OpenMP's reduction clauses for the accumulators of `reduces`."""
    signs = {"sum": "+", "prod": "*", "any": "|", "all": "&", "max": "max", "min": "min"}
    clauses = [f" reduction({signs[r.op]} : {own(r, suffix)})" for r in reduces]
    clauses += [f" reduction(| : {own(r, 'nan_' + suffix)})" for r in reduces if sees_nan(r)]
    return "".join(clauses)


def own(reduce: ir.Reduce | ir.Scan, suffix: str) -> str:
    """The name of an accumulator."""
    return f"{safe(reduce.name)}_{suffix}"
