"""Accumulators of reductions and scans in C++: their types, initial values and updates."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from compiler_core.codegen.cpp.half_types import CHUNK
from compiler_core.codegen.cpp.ops import literal
from compiler_core.codegen.cpp.source_writer import identifier
from compiler_core.loops import ir

RUNNING_SUMS = f"""\
// to[k] = sum + from[0] + ... + from[k], computed from sums of two, four and eight neighbours; returns the last one.
// run[j] is the latest result at a position j modulo 8.  A multiple of 8 elements of `to` is written.
static __attribute__((noinline)) f64 running_sums(f32* __restrict to, const f32* __restrict from, i64 count, f64 sum) {{
  f64 even[16 + {CHUNK}], odd[8 + {CHUNK}], run[8];
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


def uses_running_sums(scan: ir.Scan) -> bool:
    """Returns whether the scan is printed as `RUNNING_SUMS`, whose order of additions differs, in double."""
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
    return f"{into} {_ASSIGNMENTS[reduce.op]} {value};"


_ASSIGNMENTS = {"sum": "+=", "prod": "*=", "any": "|=", "all": "&="}


def openmp_clauses(reduces: Sequence[ir.Reduce], suffix: str) -> str:
    """Returns OpenMP's reduction clauses for the accumulators of `reduces`."""
    signs = {"sum": "+", "prod": "*", "any": "|", "all": "&", "max": "max", "min": "min"}
    clauses = [f" reduction({signs[r.op]} : {accumulator(r, suffix)})" for r in reduces]
    clauses += [f" reduction(| : {accumulator(r, 'nan_' + suffix)})" for r in reduces if propagates_nan(r)]
    return "".join(clauses)


def accumulator(reduce: ir.Reduce | ir.Scan, suffix: str) -> str:
    """Returns the name of a variable that belongs to a reduction."""
    return f"{identifier(reduce.name)}_{suffix}"
