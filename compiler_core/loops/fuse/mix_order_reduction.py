"""Reductions over rows and over columns of the same tensors, in one kernel.

The gradient of a norm needs sums over each row, and those of its weight and bias sums over each
column, of the same two tensors.  Here the loops over columns are cut in parts of some rows (as in
`two_kernel_reduction`), and their first half joins the loops over rows, whose programs (on the CPU: threads)
then walk through a part of the rows each and keep the columns' sums on the way::

    rows:    for i0 < 8192: over j0 < 4096:       rows:    for i0 < 256, i1 < 32: over j0 < 4096:
        x = load x[4096*i0 + j0]                      x = load x[131072*i0 + 4096*i1 + j0]
        ...                                           ...
    columns: for i0 < 4096: over j0 < 8192:           store s_part[4096*i0 + j0] = sum over i of x
        x = load x[i0 + 4096*j0]                  columns: for i0 < 4096: over j0 < 256:
        s = sum over j of x                           s_part = load s_part[i0 + 4096*j0]
        store s[i0] = s                               ...

How many parts there are depends on the sizes alone, so neither do the sums depend on who does which part, and when.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from compiler_core.loops import ir
from compiler_core.loops.fuse.merge_bodies import one_body
from compiler_core.loops.fuse.rewriter import Refusal, Rewrite, Rewritten, Wishes, traffic
from compiler_core.loops.ir import affine
from compiler_core.loops.schedule import size_rules
from compiler_core.loops.schedule.block_sizes import goes_across
from compiler_core.loops.schedule.size_rules import ColumnLimits
from compiler_core.loops.schedule.split_reduction import partial_buffers, rest
from compiler_core.loops.schedule.two_kernel_reduction import divisor
from compiler_core.support.size_expr import Int

ON_THE_CPU = ColumnLimits(most_parts=64, least_parts=16, least_rows=16, least_elements=1 << 13)
"""Some parts for each thread; of fewer elements, the parts are no less work.  A GPU's are `SizeRules.columns`."""
MOST_KEPT = 16384
"""Sums that one program keeps, in registers; a thread, in the caches of its core."""


@dataclass(frozen=True)
class Pair:
    """Loops over the rows and over the columns of one matrix."""

    rows: ir.Loops
    columns: ir.Loops

    @property
    def names(self) -> tuple[str, str]:
        return self.rows.name, self.columns.name


def join_columns(fused: Rewritten, wishes: Wishes) -> Rewritten:
    """`fused`, in which loops over rows have taken loops over columns along, or which says why they have not."""
    for pair in _pairs(fused.program):
        if len(_places(fused.program, pair)) == 2:  # neither is in another kernel by now
            wish = wishes.of(pair.rows, pair.columns)
            limits = ON_THE_CPU if fused.program.language(pair.rows) == "cpp" else size_rules.current().columns
            if wish == "together":
                limits = replace(limits, least_parts=2, least_elements=0, in_hand=0)
            asked = Refusal("asked", "you asked to keep them apart")
            outcome = asked if wish == "apart" else _joined(fused, pair, limits)
            fused = _refused(fused, pair, outcome) if isinstance(outcome, Refusal) else outcome
    return fused


def _pairs(program: ir.Program) -> Iterator[Pair]:
    loops = [s for s in program.steps if isinstance(s, ir.Loops) and _reduces_a_matrix(s)]
    by_shape: dict[tuple[Int, ...], list[ir.Loops]] = {}
    for columns in loops:
        if not columns.scans and not any(sweep.inner for sweep in ir.sweeps(columns)[1:]):
            by_shape.setdefault(columns.space, []).append(columns)
    for rows in loops:
        if not goes_across(rows) if program.language(rows) == "triton" else not ir.in_lanes(rows):
            others = by_shape.get(rows.space[::-1], ())
            yield from (Pair(rows, c) for c in others if c is not rows and _share_a_tensor(rows, c))


def _places(program: ir.Program, pair: Pair) -> list[int]:
    return [at for at, s in enumerate(program.steps) if s is pair.rows or s is pair.columns]


def _reduces_a_matrix(loops: ir.Loops) -> bool:
    return len(loops.outer) == len(loops.inner) == 1 and _reduces(loops) > 0


def _share_a_tensor(rows: ir.Loops, columns: ir.Loops) -> bool:
    """Whether the second can go along with the first, for what both touch."""
    return not set(rows.arguments).isdisjoint(columns.reads) and set(rows.reads).isdisjoint(columns.writes)


def _reduces(loops: ir.Loops) -> int:
    return sum(isinstance(s, ir.Reduce) for s in loops.body)


def _parts(pair: Pair, limits: ColumnLimits) -> int | Refusal:
    """How many parts to cut the rows in."""
    (count,), (length,) = pair.rows.outer, pair.rows.inner
    if not isinstance(count, int) or not isinstance(length, int):
        return Refusal("columns", "how many rows and columns there are is known only when it is called")
    if length * _reduces(pair.columns) > MOST_KEPT:
        return Refusal("columns", f"a part of the rows would keep more than {MOST_KEPT:,} sums over columns")
    if count * length < limits.least_elements:
        return Refusal("columns", f"fewer than {limits.least_elements:,} elements are as well read twice")
    parts = divisor(count, min(limits.most_parts, count // limits.least_rows))
    if parts >= limits.least_parts:
        few_at_once = parts * max(length, size_rules.current().block) < limits.in_hand
        if count * length <= limits.in_all or not few_at_once:
            return parts
        return Refusal("columns", f"{parts} parts of {count // parts:,} rows each keep only a part of a GPU busy")
    few = f"{limits.least_parts} or more parts of at least {limits.least_rows} each"
    return Refusal("columns", f"{count:,} rows are not {few}")


def _meeting_place(program: ir.Program, pair: Pair) -> int | None:
    """Where among the other steps both can stand: where the first did, or where the last did."""
    first, last = _places(program, pair)
    between = program.steps[first + 1 : last]
    if any(isinstance(s, ir.Call) and s.barrier for s in between):
        return None
    if not any(_in_order(s, program.steps[last]) for s in between):
        return first
    return None if any(_in_order(program.steps[first], s) for s in between) else last - 1


def _in_order(step: ir.Step, other: ir.Step) -> bool:
    """Whether two steps touch a buffer that one of them writes."""
    return bool({*step.reads, *step.writes} & {*other.writes} or {*step.writes} & {*other.reads})


def _joined(fused: Rewritten, pair: Pair, limits: ColumnLimits) -> Rewritten | Refusal:
    """The pair as one kernel, and a small one for the parts."""
    parts = _parts(pair, limits)
    if isinstance(parts, Refusal):
        return parts
    place = _meeting_place(fused.program, pair)
    if place is None:
        return Refusal("cycle", "a step between the two needs the first and is needed by the second")
    program, (size,) = fused.program, pair.rows.outer
    assert isinstance(size, int)
    buffers = dict(program.buffers)
    names = partial_buffers(pair.columns, parts, buffers)
    walked = affine.split(pair.rows, affine.Split(0, size // parts))
    turned = _turned(pair, size // parts, names)
    stored = {s.buffer: s for s in walked.body if isinstance(s, ir.Store)}
    flows = [s for s in turned if isinstance(s, ir.Load) and s.buffer in stored]
    loads = {(s.buffer, s.address) for s in walked.body if isinstance(s, ir.Load)}
    common = {s.buffer for s in turned if isinstance(s, ir.Load) and (s.buffer, s.address) in loads}
    common.update(s.buffer for s in flows)
    if not common or any(s.address != stored[s.buffer].address or s.within for s in flows):
        return Refusal("address", f"{pair.columns.name} does not go through what {pair.rows.name} does row by row")
    needed = _needed_elsewhere(program, pair)
    kept = [s for s in walked.body if not isinstance(s, ir.Store) or s.buffer in needed]
    body = one_body(kept, turned, {s.buffer: stored[s.buffer].value for s in flows})
    joined = replace(walked, body=body)
    ir.check(joined)
    left = rest(pair.columns, parts, names)
    saved = traffic((pair.rows, pair.columns), buffers) - traffic((joined, left), buffers)
    if saved <= 0:
        return Refusal("columns", "what the parts come to is as much as what both read")
    steps = [s for s in program.steps if s is not pair.rows and s is not pair.columns]
    steps[place:place] = [joined, left]
    return _noted(fused, replace(program, steps=tuple(steps), buffers=buffers), pair, saved)


def _turned(pair: Pair, rows: int, names: dict[str, str]) -> list[ir.Statement]:
    """The loops over columns up to their reductions, which become stores over the rows of a part."""
    columns, (length,) = pair.columns, pair.columns.outer
    cut = affine.arrange(affine.split(columns, affine.Split(1, rows)), [1, 2], [0])
    place = ir.Address((length, 0, 1))
    after: set[ir.Argument] = set()
    made: list[ir.Statement] = []
    for statement, before in zip(cut.body, columns.body, strict=True):
        if isinstance(statement, ir.Reduce):
            after.add(statement.name)
            made.append(ir.Store(names[statement.name], place, statement.value, statement.origin, over=statement.op))
        elif after.intersection(statement.arguments):
            after.update(() if isinstance(statement, ir.Store) else (statement.name,))
        elif not isinstance(statement, ir.Store) or columns.is_inner(before):
            made.append(statement)
    return made


def _needed_elsewhere(program: ir.Program, pair: Pair) -> set[str]:
    """Buffers that something besides the pair needs."""
    needed = {r.buffer for r in program.results if isinstance(r, ir.View)}
    return needed.union(*(s.reads for s in program.steps if s is not pair.rows and s is not pair.columns))


def _noted(fused: Rewritten, program: ir.Program, pair: Pair, saved: int) -> Rewritten:
    name = pair.rows.name
    reason = f"sums over the columns of what {name} goes through row by row"
    note = Rewrite("columns", pair.names, name, reason, saved)
    history = {**fused.by_loops, name: (*fused.by_loops.get(name, ()), note)}
    return Rewritten(program, (*fused.rewrites, note), history, _other_refusals(fused, pair))


def _refused(fused: Rewritten, pair: Pair, refusal: Refusal) -> Rewritten:
    """`refusal` says more than one that stands there."""
    first, second = (s.name for s in fused.program.steps if s is pair.rows or s is pair.columns)
    return replace(fused, refusals=(*_other_refusals(fused, pair), (first, second, refusal)))


def _other_refusals(fused: Rewritten, pair: Pair) -> tuple[tuple[str, str, Refusal], ...]:
    return tuple(r for r in fused.refusals if set(r[:2]) != set(pair.names))
