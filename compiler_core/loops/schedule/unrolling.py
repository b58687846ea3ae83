"""Unrolls loops of a few iterations in C++ kernels, so that a longer loop around them becomes the vector.

A sum over the three coordinates of a point is two additions then, for as many points as a vector has lanes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from compiler_core.loops import ir
from compiler_core.loops.ir import affine
from compiler_core.support.size_expr import Int, hint, prod
from compiler_core.support.tensors import HALF_TYPES
from compiler_core.support.texts import unused_name

MAX_UNROLLED = 8
"""The largest number of iterations that are unrolled."""
MAX_UNROLLED_CALLS = 4
"""The same for iterations that call a function such as exp: compilers call more of them for one element at a time."""
FUNCTION_COST = 10
"""The cost of a function such as exp (`ir.OPS`)."""
MAX_STATEMENTS = 128
"""The largest number of statements of a kernel after its loops were unrolled."""
MIN_ITERATIONS = 16
"""The fewest iterations that the loops around must have: those of a vector."""
COMBINED_BY = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "or", "all": "and"}
"""The operation of two elements that each reduction repeats."""


def unroll_short_loops(program: ir.Program) -> ir.Program:
    """Unrolls the loops of C++ kernels that reduce few elements, or whose last index has few values.

    >>> split("unroll", "aten.sum(aten.mul(x, y), [1])", "cpu", x="f32[64, 3]", y="f32[3]")
    forward_0: for i0 < 64: over j0 < 3:
        v0: f32 = load x[3*i0 + j0]
        v1: f32 = load y[j0]
        mul: f32 = mul(v0, v1)
        sum_1: f32 = sum over j of mul
        store sum_1[i0] = sum_1
    ---
    forward_0: for i0 < 64:
        v0: f32 = load x[3*i0]
        v0_1: f32 = load x[3*i0 + 1]
        v0_2: f32 = load x[3*i0 + 2]
        v1: f32 = load y[0]
        v1_1: f32 = load y[1]
        v1_2: f32 = load y[2]
        mul: f32 = mul(v0, v1)
        mul_1: f32 = mul(v0_1, v1_1)
        mul_2: f32 = mul(v0_2, v1_2)
        sum_1_1: f32 = add(mul, mul_1)
        sum_1: f32 = add(sum_1_1, mul_2)
        store sum_1[i0] = sum_1
    """
    steps = [_unrolled(s) if isinstance(s, ir.Loops) and program.language(s) == "cpp" else s for s in program.steps]
    return program.with_steps(steps)


def _unrolled(loops: ir.Loops) -> ir.Loops:
    if loops.scans or loops.scatters or loops.column_stores:
        return loops
    halves = any(isinstance(s, ir.Reduce) and s.dtype in HALF_TYPES for s in loops.body)
    if loops.inner and not halves and _is_short(loops, loops.inner):
        loops = _unroll_last(loops, len(loops.inner))
    if not loops.inner and len(loops.outer) > 1 and _is_short(loops, loops.outer[-1:]):
        loops = _unroll_last(loops, 1)
    return loops


def _is_short(loops: ir.Loops, sizes: Sequence[Int]) -> bool:
    count = prod(sizes)
    calls = any(isinstance(s, ir.Compute) and ir.OPS[s.op].cost >= FUNCTION_COST for s in loops.body)
    most = MAX_UNROLLED_CALLS if calls else MAX_UNROLLED
    is_few = isinstance(count, int) and count <= most and count * len(loops.body) <= MAX_STATEMENTS
    return is_few and hint(prod(loops.space)) // count >= MIN_ITERATIONS


def _unroll_last(loops: ir.Loops, rank: int) -> ir.Loops:
    """Returns the loops with a copy of what depends on the last `rank` indices for each of their values."""
    left = len(loops.space) - rank
    units = [affine.unit_address(k, left) for k in range(left)]
    taken = {s.name for s in loops.body if not isinstance(s, ir.Store)}
    points = [*itertools.product(*(range(hint(size)) for size in loops.space[left:]))]
    renamed: list[dict[str, ir.Argument]] = [{} for _ in points]
    body: list[ir.Statement] = []

    def at(statement: ir.Statement, point: Sequence[int], names: dict[str, ir.Argument]) -> ir.Statement:
        rows = [*units, *(ir.Address((0,) * left, value) for value in point)]
        (moved,) = affine.substitute_indices([ir.rename_arguments(statement, names)], rows, left)
        return moved

    for s in loops.body:
        if isinstance(s, ir.Reduce):
            first, *others = [names.get(s.value, s.value) if isinstance(s.value, str) else s.value for names in renamed]
            for number, other in enumerate(others, 1):
                name = s.name if number == len(others) else unused_name(f"{s.name}_{number}", taken)
                taken.add(name)
                # of zeros of both signs, `maximum` returns the second operand; eager mode's max(dim) the first element
                pair = (other, first) if s.op in ("max", "min") else (first, other)
                body.append(ir.Compute(name, s.dtype, COMBINED_BY[s.op], pair, s.origin))
                first = name
        elif any(any(a.strides[left:]) for a in ir.addresses(s)) or renamed[-1].keys() & {*s.arguments}:
            for number, (point, names) in enumerate(zip(points, renamed, strict=True)):
                copied = at(s, point, names)
                if number and not isinstance(copied, ir.Store):
                    names[copied.name] = name = unused_name(f"{copied.name}_{number}", taken)
                    taken.add(name)
                    copied = replace(copied, name=name)
                body.append(copied)
        else:
            body.append(at(s, points[0], renamed[0]))
    unrolled = replace(loops, outer=loops.space[: min(left, len(loops.outer))], inner=(), body=tuple(body))
    ir.check(unrolled)
    return unrolled
