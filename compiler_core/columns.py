"""Reductions over rows and over columns of the same tensors, in one Triton kernel.

The gradient of a norm needs sums over each row, and those of its weight and bias sums over each
column, of the same two tensors.  Here the loops over columns are cut in parts of some rows (as in
`codegen.split`), and their first half joins the loops over rows, whose programs then walk through a
part of the rows each and keep the columns' sums on the way::

    rows:    for i0 < 8192: over j0 < 4096:       rows:    for i0 < 256, i1 < 32: over j0 < 4096:
        x = load x[4096*i0 + j0]                      x = load x[131072*i0 + 4096*i1 + j0]
        ...                                           ...
    columns: for i0 < 4096: over j0 < 8192:           store s_part[4096*i0 + j0] = sum over i of x
        x = load x[i0 + 4096*j0]                  columns: for i0 < 4096: over j0 < 256:
        s = sum over j of x                           s_part = load s_part[i0 + 4096*j0]
        store s[i0] = s                               ...
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from compiler_core import ir, spaces
from compiler_core.bodies import one_body
from compiler_core.codegen.split import divisor
from compiler_core.parts import partial_buffers, rest
from compiler_core.rewrite import Rewrite, Rewritten, Wishes

PARTS = 256
"""Programs that walk: two for each of a large GPU's multiprocessors."""
LEAST_ROWS = 8
"""So many rows a part at least: what a part stores is little beside what it reads."""
MOST_KEPT = 16384
"""Sums that one program keeps, in registers."""


@dataclass(frozen=True)
class Pair:
    """Two loops that go through one matrix; `parts` is how many its rows become, `place` where both can stand."""

    rows: ir.Loops
    columns: ir.Loops
    parts: int
    place: int


def join_columns(fused: Rewritten, wishes: Wishes) -> Rewritten:
    """`fused`, in which loops over rows have taken loops over columns along."""
    tried: set[tuple[str, str]] = set()
    while (pair := _next(fused.program, tried)) is not None:
        tried.add((pair.rows.name, pair.columns.name))
        if wishes.of(pair.rows, pair.columns) != "apart":
            fused = _joined(fused, pair) or fused
    return fused


def _next(program: ir.Program, tried: set[tuple[str, str]]) -> Pair | None:
    return next((p for p in _pairs(program) if (p.rows.name, p.columns.name) not in tried), None)


def _pairs(program: ir.Program) -> Iterator[Pair]:
    loops = [(at, s) for at, s in enumerate(program.steps) if isinstance(s, ir.Loops)]
    for at, rows in loops:
        for other, columns in loops:
            parts = _parts(rows, columns)
            place = _meeting_place(program, at, other) if parts else None
            if place is not None:
                yield Pair(rows, columns, parts, place)


def _parts(rows: ir.Loops, columns: ir.Loops) -> int:
    """How many parts to cut the rows in; 0 where the two are not over the rows and the columns of one matrix."""
    (count, *more_outer), (length, *more_inner) = rows.outer or (0,), rows.inner or (0,)
    if columns.scans or any(isinstance(s, ir.Store) and s.how != "=" for s in (*rows.body, *columns.body)):
        return 0
    if rows.columns or more_outer or more_inner or not isinstance(count, int) or not isinstance(length, int):
        return 0
    if (columns.outer, columns.inner) != ((length,), (count,)) or set(rows.reads) & set(columns.writes):
        return 0
    if any(sweep.inner for sweep in ir.sweeps(columns)[1:]) or not any(isinstance(s, ir.Reduce) for s in rows.body):
        return 0
    kept = length * sum(isinstance(s, ir.Reduce) for s in columns.body)
    parts = divisor(count, min(PARTS, count // LEAST_ROWS))
    return parts if 0 < kept <= MOST_KEPT and parts >= PARTS // 16 else 0


def _meeting_place(program: ir.Program, at: int, other: int) -> int | None:
    """Where among the other steps both can stand: where the first did, or where the last did."""
    first, last = min(at, other), max(at, other)
    between = program.steps[first + 1 : last]
    if any(isinstance(s, ir.Call) and s.barrier for s in between):
        return None
    if not any(_in_order(s, program.steps[last]) for s in between):
        return first
    return None if any(_in_order(program.steps[first], s) for s in between) else last - 1


def _in_order(step: ir.Step, other: ir.Step) -> bool:
    """Whether two steps touch a buffer that one of them writes."""
    return bool({*step.reads, *step.writes} & {*other.writes} or {*step.writes} & {*other.reads})


def _joined(fused: Rewritten, pair: Pair) -> Rewritten | None:
    """The pair as one kernel, and a small one for the parts; None where that saves no reading."""
    program, (size,) = fused.program, pair.rows.outer
    assert isinstance(size, int)
    buffers = dict(program.buffers)
    names = partial_buffers(pair.columns, pair.parts, buffers)
    walked = spaces.split(pair.rows, spaces.Split(0, size // pair.parts))
    turned = _turned(pair, size // pair.parts, names)
    stored = {s.buffer: s for s in walked.body if isinstance(s, ir.Store)}
    flows = [s for s in turned if isinstance(s, ir.Load) and s.buffer in stored]
    if any(s.address != stored[s.buffer].address or s.within for s in flows):
        return None
    loads = {(s.buffer, s.address) for s in walked.body if isinstance(s, ir.Load)}
    common = {s.buffer for s in turned if isinstance(s, ir.Load) and (s.buffer, s.address) in loads}
    saved = sum(buffers[b].bytes for b in {*common, *(s.buffer for s in flows)})
    if saved < 2 * sum(buffers[name].bytes for name in names.values()):
        return None
    needed = _needed_elsewhere(program, pair)
    kept = [s for s in walked.body if not isinstance(s, ir.Store) or s.buffer in needed]
    body = one_body(kept, turned, {s.buffer: stored[s.buffer].value for s in flows})
    joined = replace(walked, body=body)
    ir.check(joined)
    steps = [s for s in program.steps if s is not pair.rows and s is not pair.columns]
    steps[pair.place : pair.place] = [joined, rest(pair.columns, pair.parts, names)]
    return _noted(fused, replace(program, steps=tuple(steps), buffers=buffers), pair, saved)


def _turned(pair: Pair, rows: int, names: dict[str, str]) -> list[ir.Statement]:
    """The loops over columns up to their reductions, which become stores over the rows of a part."""
    columns, (length,) = pair.columns, pair.columns.outer
    cut = spaces.arrange(spaces.split(columns, spaces.Split(1, rows)), [1, 2], [0])
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
    names = pair.rows.name, pair.columns.name
    reason = f"sums over the columns of what {names[0]} goes through row by row"
    note = Rewrite("columns", names, names[0], reason, saved)
    history = {**fused.by_loops, names[0]: (*fused.by_loops.get(names[0], ()), note)}
    apart = tuple(r for r in fused.refusals if set(r[:2]) != set(names))
    return Rewritten(program, (*fused.rewrites, note), history, apart)
