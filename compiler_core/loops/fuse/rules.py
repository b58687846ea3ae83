"""The fusion rules for pairs of loop nests, applied in this order by `rewriter`:

    copy       recompute a cheap producer in each of its consumers
    producer   move a producer into its consumer; buffers that other steps need are still stored;
               first everything but reductions across rows in memory, then the rest
    sibling    join two loop nests that read the same buffer and do not depend on each other

Each rule expresses the indices of the first loop nest in those of the second (`AccessMatch`) and merges the bodies.
If that is impossible or not profitable, the rule returns a `Refusal` of one of the kinds below.

The examples in the docstrings are checked by `tests/loops/test_docstring_examples.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from compiler_core.loops import ir
from compiler_core.loops.fuse.matching import (
    AccessMatch,
    flow_constraints,
    match_accesses,
    merge_bodies,
    rename_conflicting,
    restrict_to_ranges,
    solve_constraints,
)
from compiler_core.loops.fuse.rewriter import (
    FusedPair,
    FusionRequests,
    FusionResult,
    Pair,
    Refusal,
    Rule,
    rewrite,
    traffic,
)
from compiler_core.loops.ir import affine
from compiler_core.loops.schedule.block_sizes import has_strided_rows
from compiler_core.loops.schedule.splitting import add_partial_buffers, combine_partials, partial_reduction
from compiler_core.support.size_expr import hint, prod

REFUSALS = {
    "call": "One of the two is a call of a PyTorch kernel, which cannot be changed.",
    "cycle": "A step between the two needs the first and is needed by the second.",
    "address": "The second does not read what the first writes as a rearrangement of its indices.",
    "inner": "The two reduce over different index ranges, or one reduces what the other keeps.",
    "repeat": "The first would be recomputed for each index that broadcasts it, at too high a cost.",
    "partial": "The second reads a part of a result that the first must store as a whole for other steps.",
    "scatter": "The first writes at indices from a tensor, or the second does and the first is a reduction.",
    "size": "The kernel would have more statements or arguments than a compiler handles well.",
    "columns": "One sums over rows, the other over columns of a matrix: one kernel for both is impossible or no gain.",
    "cost": "Only cheap producers are recomputed in each consumer.",
    "asked": "You asked to keep the two apart (`keep_apart`).",
    "unrelated": "Neither reads what the other writes, and they read nothing in common: there is nothing to gain.",
    "unknown": "You named a node (`keep_apart`, `force_fuse`) that neither the forward nor the backward graph has.",
}
"""The kinds of refusal, and what each means."""

MAX_RECOMPUTE_COST = {"cpu": 4, "cuda": 16}
"""The highest cost of an element, in additions, at which it is recomputed rather than stored and read, by device."""
MAX_READS = {"cpu": 1, "cuda": 9 / 8}
"""The highest ratio of the bytes that a recomputed producer reads to those that it writes, by device.

An eighth more are the statistics of rows and parameters of columns that the gradient of a norm reads beside its input.
"""
MAX_REPEATS = 4
"""The largest ratio of a consumer's number of indices to its producer's, if it reads the producer at some only."""
DEVICES_THAT_REPEAT = {"cuda"}
"""The devices on which `MAX_REPEATS` also applies to consumers that read different parts at different indices."""
MIN_ROWS = {"cpu": 8, "cuda": 256}
"""Fewer rows keep only a part of the device busy: a full reduction does not become a reduction of each row."""
MAX_COPIED_STATEMENTS = 64
"""The largest number of statements of producer and consumer up to which a producer is recomputed.

In a chain of n cheap loop nests, each of which a kernel reads too, n * n / 2 producers would be copied.
"""
MAX_STATEMENTS = 200
MAX_ARGUMENTS = 48


def fuse(program: ir.Program, requests: FusionRequests = FusionRequests()) -> FusionResult:  # noqa: B008
    """Fuses the loop nests of `program`, and brings each into the order of indices that is best for memory.

    `requests` take precedence: a pair of `force_fuse` is fused wherever that is possible, even if it does not pay.
    """
    result = rewrite(program, RULES, requests)
    steps = [affine.canonicalize(s) if isinstance(s, ir.Loops) else s for s in result.program.steps]
    return replace(result, program=result.program.with_steps(steps))


def recompute_producer(pair: Pair) -> FusedPair | Refusal:
    """Recomputes a cheap producer in its consumer.  The producer is removed when nothing reads it any more.

    A producer that reads more than it writes (`MAX_READS`) is recomputed only in consumers that read a part of it.

    >>> fused("copy", "[aten.exp(aten.neg(x)), aten.neg(x)]", x="f32[4]")
    neg: for i0 < 4:
        v0: f32 = load x[i0]
        neg: f32 = neg(v0)
        store neg[i0] = neg
    exp: for i0 < 4:
        v2: f32 = load neg[i0]
        exp: f32 = exp(v2)
        store exp[i0] = exp
    neg_1: for i0 < 4:
        v4: f32 = load x[i0]
        neg_1: f32 = neg(v4)
        store neg_1[i0] = neg_1
    ---
    forward_0: for i0 < 4:
        v0: f32 = load x[i0]
        neg: f32 = neg(v0)
        exp: f32 = exp(neg)
        store exp[i0] = exp
    forward_1: for i0 < 4:
        v4: f32 = load x[i0]
        neg_1: f32 = neg(v4)
        store neg_1[i0] = neg_1
    """
    first = pair.first
    if first.inner or not pair.is_read_by_loops_only or not _is_cheap(pair):
        return Refusal("cost", f"{first.name} is not cheap, or not only read by loops")
    if pair.request != "force_fuse" and len(first.body) + len(pair.second.body) > MAX_COPIED_STATEMENTS:
        return Refusal("size", f"more than {MAX_COPIED_STATEMENTS} statements with those to recompute")
    if pair.still_needed and _is_copy(first) and any(map(_is_concatenation, pair.sources)):
        return Refusal("cost", f"{first.name} is stored instead of {pair.sources[0].name}, which it copies")
    few = hint(prod(pair.second.space)) < hint(prod(first.space))
    if few and pair.is_read_whole_by_others and _is_concatenation(first):
        return Refusal("cost", f"{first.name} is stored for others, and has a load for each of its parts")
    if not few and _total_bytes(first.reads, pair) > _for_device(MAX_READS, pair) * _total_bytes(first.writes, pair):
        return Refusal("cost", f"{first.name} reads more than it writes")
    joined = _merge_loops(pair, stored=frozenset())
    if isinstance(joined, Refusal):
        return joined
    return FusedPair(joined, f"{first.name} is cheap: computed in {pair.second.name} instead of read", False)


def fuse_producer(pair: Pair) -> FusedPair | Refusal:
    """Moves a producer into its consumer.

    >>> fused("producer", "aten.sum(aten.exp(x), [1])", x="f32[4, 8]")
    exp: for i0 < 4, i1 < 8:
        v0: f32 = load x[8*i0 + i1]
        exp: f32 = exp(v0)
        store exp[8*i0 + i1] = exp
    sum_1: for i0 < 4: over j0 < 8:
        v2: f32 = load exp[8*i0 + j0]
        sum_1: f32 = sum over j of v2
        store sum_1[i0] = sum_1
    ---
    forward_0: for i0 < 4: over j0 < 8:
        v0: f32 = load x[8*i0 + j0]
        exp: f32 = exp(v0)
        sum_1: f32 = sum over j of exp
        store sum_1[i0] = sum_1

    A consumer that reduces the whole result of a row-wise producer is fused by `_fuse_row_partials`.
    """
    joined = _merge_loops(pair, stored=pair.still_needed)
    if isinstance(joined, Refusal):
        by_row = _fuse_row_partials(pair) if joined.kind == "inner" else None
        return joined if by_row is None else by_row
    flows = [b for b in pair.first.writes if b in pair.second.reads]
    text = ", ".join(b if b not in pair.still_needed else f"{b} (still stored)" for b in flows)
    return FusedPair(joined, f"{pair.second.name} reads {text} at the index at which {pair.first.name} makes it")


def _fuse_row_partials(pair: Pair) -> FusedPair | None:
    """Fuses a full reduction into a row-wise producer: each row is reduced there, and a small kernel combines the rows.

    >>> fused("producer", "aten.sum(aten.div(x, aten.sum(x, [1], True)))", x="f32[256, 8]", device="cuda")
    sum_1: for i0 < 256: over j0 < 8:
        v0: f32 = load x[8*i0 + j0]
        sum_1: f32 = sum over j of v0
        store sum_1[i0] = sum_1
    div: for i0 < 256, i1 < 8:
        v2: f32 = load x[8*i0 + i1]
        v3: f32 = load sum_1[i0]
        div: f32 = div(v2, v3)
        store div[8*i0 + i1] = div
    sum_2: for (): over j0 < 256, j1 < 8:
        v5: f32 = load div[8*j0 + j1]
        sum_2: f32 = sum over j of v5
        store sum_2[0] = sum_2
    ---
    forward_0: for i0 < 256: over j0 < 8:
        v0: f32 = load x[8*i0 + j0]
        sum_1: f32 = sum over j of v0
        div: f32 = div(v0, sum_1)
        sum_2: f32 = sum over j of div
        store sum_2_part[i0] = sum_2
    forward_1: for (): over j0 < 256:
        sum_2_part: f32 = load sum_2_part[j0]
        sum_2: f32 = sum over j of sum_2_part
        store sum_2[0] = sum_2
    """
    first, second = pair.first, pair.second
    if not _is_full_reduction(second) or hint(first.outer_numel) < MIN_ROWS.get(_device(pair), MIN_ROWS["cpu"]):
        return None
    buffers = dict(pair.buffers)
    names = add_partial_buffers(second, first.outer_numel, buffers)
    in_rows = _row_partials(first, second, names)
    if in_rows is None:
        return None
    joined = fuse_producer(replace(pair, second=in_rows))
    if isinstance(joined, Refusal):
        return None
    left = combine_partials(second, first.outer_numel, names)
    saved = traffic((first, second), buffers) - traffic((joined.loops, left), buffers)
    if saved <= 0 and pair.request != "force_fuse":
        return None
    new = {name: buffers[name] for name in names.values()}
    reason = f"{joined.reason}; the results of its rows are reduced after it"
    return replace(joined, reason=reason, remainder=left, buffers=new)


def _is_full_reduction(loops: ir.Loops) -> bool:
    """Whether the loops reduce all their indices in one sweep."""
    return not loops.outer and not loops.scans and not any(sweep.inner for sweep in ir.sweeps(loops)[1:])


def _row_partials(first: ir.Loops, second: ir.Loops, names: Mapping[str, str]) -> ir.Loops | None:
    """Returns the part of the second, which reduces all its indices, that reduces each row of the first."""
    solved = solve_constraints(first, second, flow_constraints(first, second))
    if solved is None:
        return None
    cut, rows = solved
    outer = [rows[k] for k in range(len(first.outer)) if k in rows]
    used = [t for t in range(len(cut.inner)) if any(row.strides[t] for row in outer)]
    others = [t for t in range(len(cut.inner)) if t not in used]
    return partial_reduction(affine.reorder_indices(cut, used, others), names) if used and others else None


def fuse_siblings(pair: Pair) -> FusedPair | Refusal:
    """Joins two loop nests over the same indices that read the same buffer, so that they share the load.

    >>> fused("sibling", "[aten.exp(x), aten.sin(x)]", x="f32[4]")
    exp: for i0 < 4:
        v0: f32 = load x[i0]
        exp: f32 = exp(v0)
        store exp[i0] = exp
    sin: for i0 < 4:
        v2: f32 = load x[i0]
        sin: f32 = sin(v2)
        store sin[i0] = sin
    ---
    forward_0: for i0 < 4:
        v0: f32 = load x[i0]
        exp: f32 = exp(v0)
        store exp[i0] = exp
        sin: f32 = sin(v0)
        store sin[i0] = sin
    """
    common = [b for b in pair.first.reads if b in pair.second.reads]
    swapped = replace(pair, first=pair.second, second=pair.first)
    outcomes = (_merge_loops(p, stored=frozenset(p.first.writes), shared=True) for p in (pair, swapped))
    joined = next((o for o in outcomes if isinstance(o, ir.Loops)), None)
    if joined is None:
        return Refusal("address", f"{pair.first.name} and {pair.second.name} do not run over the same indices")
    return FusedPair(joined, f"both read {', '.join(common)}")


def fuse_producer_in_rows(pair: Pair) -> FusedPair | Refusal:
    """Moves a producer into its consumer, unless that makes a reduction across rows in memory, on a GPU.

    Such a reduction of what a row-wise producer makes can join its kernel later (`program_passes`), but only if
    all that works in rows is one kernel by then.  So it does not take a part of it away first:

    >>> fused("producer", "[(y := x - aten.sum(x, [1], True)), aten.sum(y, [0])]", x="f32[512, 96]", device="cuda")
    sum_1: for i0 < 512: over j0 < 96:
        v0: f32 = load x[96*i0 + j0]
        sum_1: f32 = sum over j of v0
        store sum_1[i0] = sum_1
    sub: for i0 < 512, i1 < 96:
        v2: f32 = load x[96*i0 + i1]
        v3: f32 = load sum_1[i0]
        sub: f32 = sub(v2, v3)
        store sub[96*i0 + i1] = sub
    sum_2: for i0 < 96: over j0 < 512:
        v5: f32 = load sub[i0 + 96*j0]
        sum_2: f32 = sum over j of v5
        store sum_2[i0] = sum_2
    ---
    forward_0: for i0 < 512: over j0 < 96:
        v0: f32 = load x[96*i0 + j0]
        sum_1: f32 = sum over j of v0
        sub: f32 = sub(v0, sum_1)
        store sub[96*i0 + j0] = sub
    forward_1: for i0 < 96: over j0 < 512:
        v5: f32 = load sub[i0 + 96*j0]
        sum_2: f32 = sum over j of v5
        store sum_2[i0] = sum_2
    """
    fused = fuse_producer(pair)
    reduces = pair.first.inner or pair.second.inner
    if pair.request is not None or _device(pair) == "cpu" or not reduces:
        return fused
    if isinstance(fused, FusedPair) and has_strided_rows(fused.loops):
        return Refusal("inner", f"{fused.loops.name} would reduce across rows in memory", for_now=True)
    return fused


RULES = (
    Rule("copy", "flow", recompute_producer),
    Rule("producer", "flow", fuse_producer_in_rows),
    Rule("producer", "flow", fuse_producer),
    Rule("sibling", "shared", fuse_siblings),
)


def _merge_loops(pair: Pair, stored: frozenset[str], shared: bool = False) -> ir.Loops | Refusal:
    """Merges both loop nests into one, in which the first stores only the buffers `stored`."""
    forced = pair.request == "force_fuse"
    updates_result = set(pair.second.writes) & set(pair.first.writes)
    if pair.first.scatters or updates_result or (pair.second.scatters and (shared or pair.first.inner)):
        scattering = pair.first if pair.first.scatters else pair.second
        return Refusal("scatter", f"{scattering.name} writes at indices that it reads from a tensor")
    if not forced and len(pair.first.body) + len(pair.second.body) > MAX_STATEMENTS:
        return Refusal("size", f"more than {MAX_STATEMENTS} statements")
    if not forced and len({*pair.first.arguments, *pair.second.arguments}) > MAX_ARGUMENTS:
        return Refusal("size", f"more than {MAX_ARGUMENTS} arguments")
    matched = match_accesses(pair.first, pair.second, shared)
    if isinstance(matched, Refusal):
        return matched
    if problem := _placement_problem(pair, matched, stored):
        return problem
    second = matched.second
    before = _index_dependencies(matched, pair.first)
    if before is None:
        return Refusal("address", f"{second.name} reads {pair.first.name} at indices that depend on {pair.first.name}")
    body = rename_conflicting(pair.first.body, second.body) if before else pair.first.body
    moved = affine.substitute_indices(body, matched.index_map, len(second.space))
    moved = [restrict_to_ranges(s, matched.within) for s in moved]
    kept = [s for s in moved if not isinstance(s, ir.Store) or s.buffer in stored]
    values = {s.buffer: s.value for s in moved if isinstance(s, ir.Store)}
    rest = [s for s in second.body if s not in before]
    return ir.Loops(second.name, second.outer, second.inner, merge_bodies([*before, *kept], rest, values))


# -- whether a rule is possible and profitable -----------------------------------------------


def _placement_problem(pair: Pair, matched: AccessMatch, stored: frozenset[str]) -> Refusal | None:
    """Returns why the first must not run at the indices of `matched`, or None if it may."""
    first, second, rows = pair.first, matched.second, matched.index_map
    if matched.reads_several_parts and _device(pair) not in DEVICES_THAT_REPEAT:
        return Refusal("address", f"{second.name} reads different parts at the same indices")
    used = [t for row in rows for t, s in enumerate(row.strides) if s]
    bijective = all(affine.is_bijective(row, second.space, n) for row, n in zip(rows, first.space, strict=True))
    exact = not matched.within and len(used) == len(set(used)) and bijective
    unused = set(range(len(second.space))) - set(used)
    inner = set(range(len(second.outer), len(second.space)))
    once = exact and (not unused or unused == inner)
    if first.inner and not (once and not unused):
        return Refusal("repeat", f"{second.name} needs the reduction {first.name} other than once for each index")
    if first.scans and not _same_order(first, matched):
        return Refusal("inner", f"{second.name} iterates in another order than the scan {first.name}")
    if stored and not once:
        return Refusal("partial", f"{', '.join(sorted(stored))} must be stored once, and as a whole")
    runs = second.outer_numel * (second.inner_numel if inner & set(used) else 1)
    allowed = MAX_REPEATS if matched.within or matched.reads_several_parts else 1
    forced = pair.request == "force_fuse"
    if not forced and hint(runs) > allowed * hint(first.outer_numel * first.inner_numel) and not _is_cheap(pair):
        return Refusal("repeat", f"{first.name} would run {runs} times instead of {first.outer_numel}")
    return None


def _same_order(first: ir.Loops, matched: AccessMatch) -> bool:
    """Whether the inner indices of both have the same row-major number."""
    second = matched.second
    row = ir.Load("row", torch.int64, "row", _flat_inner(first))
    (moved,) = affine.substitute_indices([row], matched.index_map, len(second.space))
    return ir.addresses(moved) == (_flat_inner(second),)


def _flat_inner(loops: ir.Loops) -> ir.Address:
    """Returns the row-major number of the inner indices."""
    return affine.row_major_address(loops.inner, range(len(loops.outer), len(loops.space)), len(loops.space))


def _is_cheap(pair: Pair) -> bool:
    """Whether an element of the first is so cheap that it may be recomputed."""
    cost = sum(ir.OPS[s.op].cost for s in pair.first.body if isinstance(s, ir.Compute))
    return cost <= _for_device(MAX_RECOMPUTE_COST, pair)


def _is_copy(loops: ir.Loops) -> bool:
    """Whether the loops only change the order of elements in memory."""
    return [type(s) for s in loops.body] == [ir.Load, ir.Store]


def _is_concatenation(loops: ir.Loops) -> bool:
    """Whether the loops read several buffers at a part of their indices each."""
    return sum(bool(s.within) for s in loops.body if isinstance(s, ir.Load)) > 1


def _device(pair: Pair) -> str:
    return pair.buffers[pair.first.writes[0]].device.type


def _for_device(limits: Mapping[str, float], pair: Pair) -> float:
    """Returns the limit for the device of the pair; devices without one have that of the CPU."""
    return limits.get(_device(pair), limits["cpu"])


def _total_bytes(buffers: Sequence[str], pair: Pair) -> int:
    return sum(pair.buffers[b].bytes for b in buffers)


def _index_dependencies(matched: AccessMatch, first: ir.Loops) -> tuple[ir.Statement, ...] | None:
    """Returns the statements of the second that the first's indices depend on; None if they depend on the first."""
    used_addresses = (*matched.index_map, *(r.address for r in matched.within))
    needed = ir.dependencies(matched.second.body, [name for address in used_addresses for name, _ in address.values])
    if any(isinstance(s, ir.Load) and s.buffer in first.writes for s in needed):
        return None
    return needed
