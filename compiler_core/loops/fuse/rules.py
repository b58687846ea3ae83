"""Fusion: which loops become one kernel.

Three rules, tried in this order by the loop in `rewriter.py`:

    copy       a cheap producer is computed again inside each of its consumers
    producer   a producer moves into its consumer; what others need of it is still stored
    sibling    two loops that read the same buffer, and do not need each other, share the loads

All three express the first loop in the second's indices (`Meeting`) and join the bodies.  What
cannot be joined, or should not, is a `Refusal` of one of the kinds below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from compiler_core.loops import ir
from compiler_core.loops.fuse.access_matching import Meeting, flow_contacts, meet, solve
from compiler_core.loops.fuse.merge_bodies import apart, one_body, only_within
from compiler_core.loops.fuse.rewriter import Merged, Pair, Refusal, Rewritten, Rule, Wishes, rewrite, traffic
from compiler_core.loops.ir import affine
from compiler_core.loops.schedule.split_reduction import partial_buffers, parts, rest
from compiler_core.support.size_expr import Int, hint, prod

REFUSALS = {
    "call": "One of the two is a call of a kernel of PyTorch's, which is not ours to change.",
    "cycle": "A step between the two needs the first and is needed by the second.",
    "address": "The second does not read what the first writes as a rearrangement of its indices.",
    "inner": "The two reduce over different index ranges, or one reduces what the other keeps.",
    "repeat": "The first would be computed again for each index that broadcasts it, at too high a price.",
    "partial": "The second reads a part of what the first must still store as a whole for others.",
    "scatter": "The first writes to places that only the run tells, or the second does and the first is a reduction.",
    "size": "The kernel would have more statements or arguments than a compiler handles well.",
    "columns": "One sums over rows, the other over columns of one matrix: to do both at once cannot be, or is no gain.",
    "cost": "Only cheap producers are computed again in each consumer.",
    "asked": "You asked to keep the two apart (`keep_apart`).",
    "unrelated": "Neither reads what the other writes, and they read nothing in common: there is nothing to gain.",
    "unknown": "You named a node (`keep_apart`, `force_fuse`) that neither the forward nor the backward graph has.",
}
"""The kinds of refusal, and what each means."""

CHEAP = {"cpu": 4, "cuda": 16}
"""Additions for an element that may be computed again rather than stored and read, by device."""
MOST_PARTS = 4
"""Where the first runs for a part of the second's indices only, the second may have so many times its indices."""
REPEATING = {"cuda"}
"""Devices on which the first may run as often where the second reads several parts of it by turns."""
FEW_ROWS = {"cpu": 8, "cuda": 256}
"""Fewer rows keep only a part of the device busy, so nothing more is done row by row."""
MAX_COPIED = 64
"""Statements of both, beyond which nothing more is copied: a chain of n cheap loops, each read by a kernel too, would
be copied n * n / 2 times."""
MAX_STATEMENTS = 200
MAX_ARGUMENTS = 48


def fuse(program: ir.Program, wishes: Wishes = Wishes()) -> Rewritten:  # noqa: B008
    """`program` with its loops joined, each in the order and shape that is best for memory.

    `wishes` come first: what is wanted together is joined wherever it can be, whether or not that pays.
    """
    done = rewrite(program, RULES, wishes)
    steps = [affine.simplify(s) if isinstance(s, ir.Loops) else s for s in done.program.steps]
    return replace(done, program=done.program.with_steps(steps))


def copy(pair: Pair) -> Merged | Refusal:
    """Compute a cheap producer in its consumer, and leave it to go when no one reads it."""
    first = pair.first
    if first.inner or not pair.readers_are_loops or not _is_cheap(pair):
        return Refusal("cost", f"{first.name} is not cheap, or not only read by loops")
    if pair.wish != "together" and len(first.body) + len(pair.second.body) > MAX_COPIED:
        return Refusal("size", f"more than {MAX_COPIED} statements with what would be computed again")
    few = hint(prod(pair.second.space)) < hint(prod(first.space))
    if not few and _bytes(first.reads, pair) > _bytes(first.writes, pair):
        return Refusal("cost", f"{first.name} reads more than it writes")
    joined = _join(pair, stored=frozenset())
    if isinstance(joined, Refusal):
        return joined
    return Merged(joined, f"{first.name} is cheap: computed in {pair.second.name} instead of read", False)


def producer(pair: Pair) -> Merged | Refusal:
    """Move a producer into its consumer."""
    joined = _join(pair, stored=pair.kept)
    if isinstance(joined, Refusal):
        return (_row_by_row(pair) if joined.kind == "inner" else None) or joined
    flows = [b for b in pair.first.writes if b in pair.second.reads]
    text = ", ".join(b if b not in pair.kept else f"{b} (still stored)" for b in flows)
    return Merged(joined, f"{pair.second.name} reads {text} at the index at which {pair.first.name} makes it")


def _row_by_row(pair: Pair) -> Merged | None:
    """Reduce in each row of a producer what its consumer reduces all of; a small kernel does the rest."""
    first, second = pair.first, pair.second
    if not _reduces_all_at_once(second) or hint(first.outer_numel) < FEW_ROWS.get(_device(pair), FEW_ROWS["cpu"]):
        return None
    buffers = dict(pair.buffers)
    names = partial_buffers(second, first.outer_numel, buffers)
    in_rows = _in_rows(first, second, names)
    joined = producer(replace(pair, second=in_rows)) if in_rows is not None else None
    if not isinstance(joined, Merged):
        return None
    left = rest(second, first.outer_numel, names)
    saved = traffic((first, second), buffers) - traffic((joined.loops, left), buffers)
    if saved <= 0 and pair.wish != "together":
        return None
    new = {name: buffers[name] for name in names.values()}
    return replace(joined, reason=f"{joined.reason}; what its rows come to is reduced after it", rest=left, buffers=new)


def _reduces_all_at_once(loops: ir.Loops) -> bool:
    return not loops.outer and not loops.scans and not any(sweep.inner for sweep in ir.sweeps(loops)[1:])


def _in_rows(first: ir.Loops, second: ir.Loops, names: Mapping[str, str]) -> ir.Loops | None:
    """The second, which reduces all of its indices, up to what each row of the first comes to."""
    solved = solve(first, second, flow_contacts(first, second))
    if solved is None:
        return None
    cut, rows = solved
    outer = [rows[k] for k in range(len(first.outer)) if k in rows]
    used = [t for t in range(len(cut.inner)) if any(row.strides[t] for row in outer)]
    others = [t for t in range(len(cut.inner)) if t not in used]
    return parts(affine.arrange(cut, used, others), names) if used and others else None


def sibling(pair: Pair) -> Merged | Refusal:
    """Join two loops over the same indices that read the same buffer."""
    common = [b for b in pair.first.reads if b in pair.second.reads]
    turned = replace(pair, first=pair.second, second=pair.first)
    outcomes = (_join(p, stored=frozenset(p.first.writes), shared=True) for p in (pair, turned))
    joined = next((o for o in outcomes if isinstance(o, ir.Loops)), None)
    if joined is None:
        return Refusal("address", f"{pair.first.name} and {pair.second.name} do not run over the same indices")
    return Merged(joined, f"both read {', '.join(common)}")


RULES = (Rule("copy", "flow", copy), Rule("producer", "flow", producer), Rule("sibling", "shared", sibling))


def _join(pair: Pair, stored: frozenset[str], shared: bool = False) -> ir.Loops | Refusal:
    """Both loops as one, in which the first stores only the buffers `stored`."""
    forced = pair.wish == "together"
    into_it = set(pair.second.writes) & set(pair.first.writes)
    if pair.first.scatters or into_it or (pair.second.scatters and (shared or pair.first.inner)):
        scattering = pair.first if pair.first.scatters else pair.second
        return Refusal("scatter", f"{scattering.name} writes to places that only the run tells")
    if not forced and len(pair.first.body) + len(pair.second.body) > MAX_STATEMENTS:
        return Refusal("size", f"more than {MAX_STATEMENTS} statements")
    if not forced and len({*pair.first.arguments, *pair.second.arguments}) > MAX_ARGUMENTS:
        return Refusal("size", f"more than {MAX_ARGUMENTS} arguments")
    met = meet(pair.first, pair.second, shared)
    if isinstance(met, Refusal):
        return met
    if problem := _unfit(pair, met, stored):
        return problem
    second = met.second
    before = _before(met, pair.first)
    if before is None:
        return Refusal("address", f"{second.name} finds out from {pair.first.name} where to read in it")
    body = apart(pair.first.body, second.body) if before else pair.first.body
    moved = [only_within(s, met.within) for s in affine.substitute(body, met.rows, len(second.space))]
    kept = [s for s in moved if not isinstance(s, ir.Store) or s.buffer in stored]
    values = {s.buffer: s.value for s in moved if isinstance(s, ir.Store)}
    rest = [s for s in second.body if s not in before]
    return ir.Loops(second.name, second.outer, second.inner, one_body([*before, *kept], rest, values))


# -- whether joining is right, and worth it --------------------------------------------------


def _unfit(pair: Pair, met: Meeting, stored: frozenset[str]) -> Refusal | None:
    """Why the first of the pair may not run at the indices of `met`, if it may not."""
    first, second, rows = pair.first, met.second, met.rows
    if met.parts and _device(pair) not in REPEATING:
        return Refusal("address", f"{second.name} reads different parts at the same indices")
    used = [t for row in rows for t, s in enumerate(row.strides) if s]
    exact = not met.within and len(used) == len(set(used)) and all(map(_covers(second), rows, first.space))
    unused = set(range(len(second.space))) - set(used)
    inner = set(range(len(second.outer), len(second.space)))
    once = exact and (not unused or unused == inner)
    if first.inner and not (once and not unused):
        return Refusal("repeat", f"{second.name} needs the reduction {first.name} other than once for each index")
    if first.scans and not _same_order(first, met):
        return Refusal(
            "inner", f"{second.name} walks its indices in another order than the one {first.name} adds up in"
        )
    if stored and not once:
        return Refusal("partial", f"{', '.join(sorted(stored))} must be stored once, and as a whole")
    runs = second.outer_numel * (second.inner_numel if inner & set(used) else 1)
    often = MOST_PARTS if met.within or met.parts else 1
    asked = pair.wish == "together"
    if not asked and hint(runs) > often * hint(first.outer_numel * first.inner_numel) and not _is_cheap(pair):
        return Refusal("repeat", f"{first.name} would run {runs} times instead of {first.outer_numel}")
    return None


def _same_order(first: ir.Loops, met: Meeting) -> bool:
    """Whether the inner indices of both, as one row-major number, are the same."""
    second = met.second
    row = ir.Load("row", torch.int64, "row", _flat_inner(first))
    (moved,) = affine.substitute([row], met.rows, len(second.space))
    return ir.addresses(moved) == (_flat_inner(second),)


def _flat_inner(loops: ir.Loops) -> ir.Address:
    return affine.contiguous(loops.inner, range(len(loops.outer), len(loops.space)), len(loops.space))


def _covers(second: ir.Loops) -> Callable[[ir.Address, Int], bool]:
    return lambda row, size: affine.covers(row, second.space, size)


def _is_cheap(pair: Pair) -> bool:
    """Whether an element of the first costs so little that it may be computed again."""
    price = sum(ir.OPS[s.op].cost for s in pair.first.body if isinstance(s, ir.Compute))
    return price <= CHEAP.get(_device(pair), CHEAP["cpu"])


def _device(pair: Pair) -> str:
    return pair.buffers[pair.first.writes[0]].device.type


def _bytes(buffers: Sequence[str], pair: Pair) -> int:
    return sum(pair.buffers[b].bytes for b in buffers)


def _before(met: Meeting, first: ir.Loops) -> tuple[ir.Statement, ...] | None:
    """The second's statements that the first's indices depend on; None where they depend on the first."""
    wanted: set[ir.Argument] = {name for row in met.rows for name, _ in row.values}
    wanted.update(name for r in met.within for name, _ in r.address.values)
    needed: list[ir.Statement] = []
    for statement in reversed(met.second.body):
        if not isinstance(statement, ir.Store) and statement.name in wanted:
            wanted.update(statement.arguments)
            needed.append(statement)
    if any(isinstance(s, ir.Load) and s.buffer in first.writes for s in needed):
        return None
    return tuple(reversed(needed))
