"""The rewrites of loop nests of which the schedules of C++ kernels are made; `split` is of Triton kernels, too.

Each returns the nest with its loops in another order or of another kind; the values are the same.  It raises UsageError
if it is not legal there, and says why.  All loops over an index are changed: those of each sweep, and of each part of a
range that was cut.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence, Set
from dataclasses import replace

from compiler_core.errors import UsageError
from compiler_core.loops import ir
from compiler_core.loops.ir.nest import Accumulate, Do, For, If, Local, Nest, Node, map_nodes, statements, walk
from compiler_core.loops.schedule.vectors import (
    converts_float16,
    is_ordered,
    lane_count,
    live_in,
    loads_float16,
    loop_parts,
)
from compiler_core.support.size_expr import Int, Size, hint, prod

MAX_BLOCK = 1 << 31
"""The maximum number of elements of a block, far from where 64 bits overflow."""
MAX_VECTOR = 1024
"""The maximum number of elements of a vector, many times that of the largest registers."""
MAX_DISTRIBUTED = 256
"""The maximum number of rows whose values are kept in arrays between loops."""
MAX_JAMMED = 64
"""The maximum number of elements that are accumulated in a register before they reach an array."""
MAX_CHUNK = 4096
"""The maximum number of elements whose values are kept in arrays around a scan."""
ROW_BYTES = 32 * 1024
"""Values of a row are kept up to this size."""
SUM_BLOCK = 512
"""Elements that are summed in float, before the sum is added to the row's sum in double."""
EQUAL_POSITIONS = "the kernel updates elements whose positions are read from a tensor, and they may be equal"


def split(nest: Nest, index: str, size: int) -> Nest:
    """Splits loops over `index` in a loop over blocks of `size` elements, and one through a block.

    >>> rewritten("aten.neg(x)", "split(i0, 256)", x="f32[1000]")
    forward_0:
        for i0_tile < 1000 step 256:
            for i0 in i0_tile .. + 256:
                v0: f32 = load x[i0]
                neg: f32 = neg(v0)
                store neg[i0] = neg
    """
    tile = f"{index}_tile"
    expect(isinstance(size, int), f"a block has a known number of elements, not {size}")
    expect(size > 0, f"split needs a positive number of elements, not {size}")
    expect(size <= MAX_BLOCK, f"a block has at most {MAX_BLOCK:,} elements, not {size:,}")
    expect(not nest.find(tile), f"{index} is split already, into {tile} and {index}")
    steps = {loop.step for loop in found_loops(nest, index)}
    expect(not any(size % step for step in steps), f"a block of {index} has a multiple of {max(steps)} elements")
    expect(not any(loop.is_vector for loop in nest.find(index)), f"split {index} before it is vectorised")
    expect(index != nest.lane_index, f"split {index} before it is the innermost loop")

    def change(loop: For) -> Sequence[Node]:
        inside = replace(loop, block=tile, size=size, is_threaded=False, condition="")
        whole = replace(loop, index=tile, step=size, is_vector=False, lanes=0, is_exact=False, body=(inside,))
        return [whole]

    return change_loops(nest, index, change)


def cut(nest: Nest, index: str, *ends: Int) -> Nest:
    """Cuts the range of an outer index in parts, which are executed one after the other.

    `ends` are the ends of all parts but the last.  A load that is limited to one part needs no condition there.

    >>> rewritten("aten.neg(x)", "cut(i0, 300)", x="f32[1000]")
    forward_0:
        for i0 < 300:
            v0: f32 = load x[i0]
            neg: f32 = neg(v0)
            store neg[i0] = neg
        for i0 in 300 .. 1000:
            v0: f32 = load x[i0]
            neg: f32 = neg(v0)
            store neg[i0] = neg
    """
    loops = _outer_loops(nest, index)
    expect(not nest.loops.column_stores, "the rows of a part are accumulated in order")
    whole = nest.loops.space[nest.loops.index_names.index(index)]
    expect(all((loop.start, loop.end, loop.block) == (0, whole, "") for loop in loops), f"{index} is divided already")
    expect(not nest.lane_index, "cut a range before loops are reordered")
    body: list[Node] = []
    start: Int = 0
    expect(bool(ends), f"cut needs numbers between 0 and {whole}, where the parts end")
    words = [str(end) for end in ends if not isinstance(end, int | Size)]
    expect(not words, f"cut takes numbers, not {', '.join(words)}")
    for end in (*ends, whole):
        expect(hint(start) < hint(end), f"cut needs increasing numbers between 0 and {whole}")
        part = _part_of_range(start, end)
        body += change_loops(nest, index, part).body
        start = end
    return replace(nest, body=tuple(body))


def _part_of_range(start: Int, end: Int) -> Callable[[For], Sequence[Node]]:
    return lambda loop: [replace(loop, start=start, end=end)]


def reorder(nest: Nest, *indices: str) -> Nest:
    """Puts loops that are directly inside each other in another order, the first one outermost.

    A loop over rows may move inside the loop over their elements, if nothing else is in it (see `distribute`).  Each
    row has its own accumulators then.

    >>> rewritten("aten.sum(x, [1])", "reorder(j0, i0)", x="f32[64, 128]")
    forward_0:
        accumulate sum_1 in a block:
            for j0 < 128:
                for i0 < 64:
                    v0: f32 = load x[128*i0 + j0]
                    sum_1: f32 = sum over j of v0
        for i0 < 64:
            read sum_1
            store sum_1[i0] = sum_1
    """
    expect(len({*indices}) == len(indices) > 1, "reorder needs at least two different loops")
    for index in indices:
        found_loops(nest, index)
    rows = [i for i in indices if i in nest.loops.index_names[: len(nest.loops.outer)]]
    elements = [i for i in indices if i in nest.loops.index_names[len(nest.loops.outer) :]]
    if rows and elements and indices.index(elements[0]) < indices.index(rows[-1]):
        expect(len(rows) + len(elements) == len(indices), "the loop over rows moves alone: name no loops over blocks")
        return _interchange(nest, rows, elements, indices)

    row = nest.lane_index
    expect(row not in indices, f"{row} stays the innermost loop: there is an accumulator for each row")
    changed = False

    def change(node: Node) -> Sequence[Node]:
        nonlocal changed
        if not isinstance(node, For) or node.index not in indices:
            return [node]
        chain = chain_from(node)
        held = [loop for loop in chain if loop.index in indices]
        if len(held) < len(indices):
            return [node]
        changed = True
        _check_order(nest, chain, indices)
        queue = sorted(held, key=lambda loop: indices.index(loop.index))
        order = [queue.pop(0) if loop.index in indices else loop for loop in chain]
        for loop in order:
            around = {other.index for other in order[: order.index(loop)]}
            expect(not loop.block or loop.block in around, f"{loop.index} runs through a block of {loop.block}")
        body = chain[-1].body
        for loop in reversed(order):
            body = (replace(loop, body=body),)
        return body

    result = replace(nest, body=map_nodes(nest.body, change))
    expect(changed, f"the loops {', '.join(indices)} are not directly inside each other")
    return result


def chain_from(loop: For) -> list[For]:
    """Returns a loop and those inside it, as long as the next one is all that each has in it."""
    found = [loop]
    while len(loop.body) == 1 and isinstance(loop.body[0], For):
        loop = loop.body[0]
        found.append(loop)
    return found


def _check_order(nest: Nest, chain: Sequence[For], indices: Sequence[str]) -> None:
    """Checks that the order in which the loops run may change."""
    leaves = [do.statement for do in statements(chain[-1].body)]
    scanned = any(isinstance(s, ir.Scan) for s in leaves)
    expect(not scanned, "a scan needs the elements of a row in order")
    if nest.loops.scatters:
        # updates of one element must stay in order; those with different last indices are of different elements
        last = nest.loops.index_names[-1]
        held = [loop.index for loop in chain if loop.index in indices and last not in (loop.index, _base(chain, loop))]
        kept = held == [index for index in indices if index in held]
        expect(last_index_is_disjoint(nest.loops) and kept, EQUAL_POSITIONS)
    threaded = [loop.index for loop in chain if loop.is_threaded or loop.is_vector]
    expect(not threaded, f"{', '.join(dict.fromkeys(threaded))}: order loops before they get a kind")


def _base(chain: Sequence[For], loop: For) -> str:
    """Returns the index over whose blocks a loop runs; empty if it is not over blocks."""
    return next((other.index for other in chain if other.block == loop.index), "")


def _interchange(nest: Nest, rows: Sequence[str], elements: Sequence[str], indices: Sequence[str]) -> Nest:
    """Moves the loop over rows inside those over their elements."""
    expect(len(rows) == 1, "one loop over rows at a time can move inside the loops over their elements")
    row, rank = rows[0], len(nest.loops.outer)
    expect(indices[-1] == row, f"{row} must be the innermost of these loops")
    expect(
        [*elements] == [*nest.loops.index_names[rank:]], "all loops over the elements of a row must be named, in order"
    )
    expect(not nest.loops.scans or len(elements) == 1, "a scan over several indices runs in order")
    expect(not _is_distributed(nest), f"order loops before {elements[0]} is distributed")
    expect(not nest.loops.column_stores, "the rows of a part are accumulated in order")
    expect(row == nest.loops.index_names[rank - 1], f"{row} is not the innermost loop over rows")
    kinds = [n.index for n in walk(nest.body) if isinstance(n, For) and n.index in indices and n.kind != "for"]
    expect(not kinds, f"{', '.join(dict.fromkeys(kinds))}: order loops before they get a kind")
    is_cut = any(loop.start != 0 or loop.end != nest.loops.outer[-1] for loop in nest.find(row))
    expect(not is_cut, f"the range of {row} is cut")
    nest = distribute(nest, row, each=True)

    def change(loop: For) -> Sequence[Node]:
        reads = [n for n in loop.body if isinstance(n, Do)]
        rest = [n for n in loop.body if not isinstance(n, Do)]
        return _push_inside(loop, reads, rest[0]) if rest else [loop]

    return change_loops(nest, row, change)


def _push_inside(loop: For, reads: Sequence[Do], node: Node) -> Sequence[Node]:
    """Returns `node` with the loop around its leaves rather than around itself."""
    if isinstance(node, Accumulate):
        (inside,) = node.body
        return [replace(node, place="block", body=tuple(_push_inside(loop, reads, inside)))]
    assert isinstance(node, For)
    if any(isinstance(n, Do) for n in node.body):
        return [replace(node, body=(replace(loop, body=(*reads, *node.body)),))]
    (inside,) = node.body
    return [replace(node, body=tuple(_push_inside(loop, reads, inside)))]


def distribute(nest: Nest, index: str, each: bool = False) -> Nest:
    """Distributes a loop over rows over its sweeps: all rows of a block finish one sweep before the next one starts.

    Values that a later loop needs are kept in arrays, so the loop must run through a block, or have few elements.
    With `each`, the statements between two sweeps are in another loop.

    A loop over elements with a scan is distributed over what is before the scan, the scan, and what is after it; so is
    a loop that adds to elements whose positions are read from a tensor.

    >>> rewritten("aten.mul(aten.cumsum(x, 1), 2)", "split(j0, 32)\\ndistribute(j0)", x="f32[8, 64]")
    forward_0:
        for i0 < 8:
            accumulate cumsum:
                for j0_tile < 64 step 32:
                    array cumsum[32]
                    array v0[32]
                    for j0 in j0_tile .. + 32:
                        keep v0: f32 = load x[64*i0 + j0]
                    for j0 in j0_tile .. + 32:
                        read v0
                        keep cumsum: f32 = sum up to j of v0
                    for j0 in j0_tile .. + 32:
                        read cumsum
                        mul: f32 = mul(cumsum, 2.0)
                        store mul[64*i0 + j0] = mul
    """
    rank, names = len(nest.loops.outer), nest.loops.index_names
    if (nest.loops.scans and index in names[rank:]) or (nest.loops.scatters and index == names[-1]):
        return _distribute_ordered(nest, index)
    loops = _outer_loops(nest, index)
    counts = [loop.size or loop.end for loop in loops]
    are_few = all(isinstance(n, int) and n <= MAX_DISTRIBUTED for n in counts)
    expect(are_few, f"split {index} first: the values of at most {MAX_DISTRIBUTED} rows are kept in arrays")
    size = max(map(hint, counts))
    moved = any(isinstance(n, Do) and n.how != "compute" for loop in loops for n in loop.body)
    expect(not moved, f"{index} is distributed already")

    def change(loop: For) -> Sequence[Node]:
        groups = _sections(loop.body, each)
        return _distributed(loop, groups, size, each) if len(groups) > 1 else [loop]

    return change_loops(nest, index, change)


def _distribute_ordered(nest: Nest, index: str) -> Nest:
    """Distributes the loops over `index` that have a scan or an update in them."""
    loops = [loop for loop in found_loops(nest, index) if _has_order(loop)]
    expect(bool(loops), f"the loops over {index} have loops inside, or no scan")
    updated = {s.buffer for s in nest.loops.body if isinstance(s, ir.Store) and s.mode != "="}
    others = {
        s.buffer for s in nest.loops.body if isinstance(s, ir.Load) or (isinstance(s, ir.Store) and s.mode == "=")
    }
    expect(updated.isdisjoint(others), "the kernel reads what it updates")
    expect(not any(loop.is_vector for loop in loops), f"distribute {index} before it is vectorised")
    counts = [loop.size or loop.end for loop in loops]
    are_few = all(isinstance(n, int) and n <= MAX_CHUNK for n in counts)
    expect(are_few, f"split {index} first: the values of at most {MAX_CHUNK:,} elements are kept in arrays")
    expect(not nest.lane_index, f"distribute {index} before loops are reordered")
    expect(not _is_distributed(nest), f"{index} is distributed already")

    def change(loop: For) -> Sequence[Node]:
        leaves = [n for n in loop.body if isinstance(n, Do)]
        parts = loop_parts(leaves, is_ordered, lambda do: do.arguments) if loop in loops else []
        return _around_ordered(loop, leaves, parts) if len(parts) > 1 else [loop]

    return change_loops(nest, index, change)


def _around_ordered(loop: For, leaves: Sequence[Do], parts: Sequence[Sequence[Do]]) -> list[Node]:
    """Returns a loop for each part, and the arrays of the values that pass between them."""
    made = {do.value: do for do in leaves if do.value}
    needed = [sorted(live_in(part, lambda do: do.arguments) & made.keys()) for part in parts]
    passed = {name for names in needed for name in names}
    size, term = int(loop.size or loop.end), (loop.index, loop.block, 1)  # type: ignore[arg-type]
    in_rows = {name for name in passed if made[name].how in ("keep", "read")}
    found: list[Node] = [Local(made[name].statement, (term,), size, "chunk") for name in sorted(passed - in_rows)]
    for part, names in zip(parts, needed, strict=True):
        body = [Do(made[name].statement, "read") for name in names]
        body += [replace(do, how="keep") if do.value in passed - in_rows else do for do in part]
        found.append(replace(loop, body=tuple(body)))
    return found


def _has_order(loop: For) -> bool:
    return any(isinstance(node, Do) and is_ordered(node) for node in loop.body)


def _is_distributed(nest: Nest) -> bool:
    """Whether a loop over elements is distributed around a scan or an update."""
    return any(isinstance(node, Local) and node.name == "chunk" for node in walk(nest.body))


def _sections(body: Sequence[Node], each: bool) -> list[list[Node]]:
    """Divides the body of a loop over rows: at each sweep but the first, or before and after each."""
    groups: list[list[Node]] = [[]]
    for node in (n for n in body if not isinstance(n, Local)):
        is_sweep, swept = not isinstance(node, Do), any(not isinstance(n, Do) for n in groups[-1])
        if groups[-1] and ((is_sweep or swept) if each else (is_sweep and swept)):
            groups.append([])
        groups[-1].append(node)
    return groups


def _distributed(loop: For, groups: Sequence[Sequence[Node]], size: int, each: bool) -> list[Node]:
    """Returns a loop for each group, and the arrays of the values that pass between them."""
    made = [{d.value for d in statements(group)} for group in groups]
    used = [{a for d in statements(group) for a in d.arguments} - m for group, m in zip(groups, made, strict=True)]
    passed = set().union(*used) & set().union(*made)
    values = {d.value: d.statement for d in statements(loop.body) if not isinstance(d.statement, ir.Store)}
    term = (loop.index, loop.block, 1)
    found: list[Node] = [
        replace(a, terms=((loop.index, loop.block, a.size), *a.terms), size=a.size * size)
        for a in loop.body
        if isinstance(a, Local)
    ]
    if not each:
        found += [Local(values[name], (term,), size, "few") for name in sorted(passed)]
    for group, makes, uses in zip(groups, made, used, strict=True):
        body: list[Node] = [Do(values[name], "read") for name in sorted(passed & uses)]
        if not each:
            body += [*group, *(Do(values[name], "write") for name in sorted(passed & makes))]
            found.append(replace(loop, body=tuple(body)))
            continue
        for node in group:
            if isinstance(node, Do) and node.value in passed and not isinstance(node.statement, ir.Store):
                found.append(Local(node.statement, (term,), size, "lane"))
                body.append(replace(node, how="keep"))
            else:
                body.append(node)
        found.append(replace(loop, body=tuple(body)))
    return found


def hoist(nest: Nest, index: str) -> Nest:
    """Moves statements that do not depend on `index` before the loop over it.

    >>> rewritten("aten.add(x, y)", "hoist(i1)", x="f32[64, 128]", y="f32[64, 1]")
    forward_0:
        for i0 < 64:
            v1: f32 = load y[i0]
            for i1 < 128:
                v0: f32 = load x[128*i0 + i1]
                add: f32 = add(v0, v1)
                store add[128*i0 + i1] = add
    """
    names = nest.loops.index_names
    expect(index in names, f"{index} is not an index of the kernel; it has {', '.join(names)}")
    at = names.index(index)

    def change(loop: For) -> Sequence[Node]:
        before: list[Node] = []
        rest: list[Node] = []
        varying: set[str] = set()
        for node in loop.body:
            if isinstance(node, Do) and _is_fixed(node, at) and not varying & node.arguments:
                before.append(node)
            else:
                varying.update(d.value for d in statements([node]))
                rest.append(node)
        return [*before, replace(loop, body=tuple(rest))]

    return change_loops(nest, index, change)


def _is_fixed(do: Do, at: int) -> bool:
    """Whether a statement computes a value, and its addresses do not depend on the index with number `at`."""
    s = do.statement
    is_value = do.how == "compute" and not isinstance(s, ir.Store | ir.Reduce | ir.Scan)
    return is_value and not any(a.strides[at] for a in ir.addresses(s))


def keep(nest: Nest, *values: str) -> Nest:
    """Keeps values of a row in arrays for later sweeps, instead of computing them again.

    If the length of a row is symbolic, the kernel decides at the call: up to `ROW_BYTES` are kept.

    >>> rewritten("aten.div(e := aten.exp(x), aten.sum(e, [1], True))", "keep(exp)", x="f32[64, 128]")
    forward_0:
        for i0 < 64:
            array exp[128]
            accumulate sum_1:
                for j0 < 128:
                    v0: f32 = load x[128*i0 + j0]
                    keep exp: f32 = exp(v0)
                    sum_1: f32 = sum over j of exp
            for j0 < 128:
                read exp
                div: f32 = div(exp, sum_1)
                store div[128*i0 + j0] = div
    """
    loops = nest.loops
    row = loops.index_names[len(loops.outer) - 1] if loops.outer else ""
    is_whole = not row or len({loop.start for loop in nest.find(row)}) == len(nest.find(row))
    expect(is_whole and not nest.lane_index, f"keep values before the loop over {row} is distributed or reordered")
    expect(not _is_distributed(nest), "keep values before the loop over elements is distributed")
    again = {d.value for d in statements(nest.body) if d.is_again and d.how == "compute"}
    expect(bool(values), f"name values to keep: {', '.join(sorted(again)) or 'no later sweep computes one again'}")
    _expect_once(values)
    wrong = [v for v in values if v not in again]
    expect(not wrong, f"no later sweep computes {', '.join(wrong)} again")
    length, rank = loops.inner_numel, len(loops.outer)
    by_name = {s.name: s for s in loops.body if not isinstance(s, ir.Store)}
    largest = max(by_name[v].dtype.itemsize for v in values)
    capacity = length if isinstance(length, int) else ROW_BYTES // largest
    strides = [prod(loops.inner[k + 1 :]) for k in range(len(loops.inner))]
    terms = tuple((name, "", stride) for name, stride in zip(loops.index_names[rank:], strides, strict=True))
    arrays = [Local(by_name[v], terms, capacity, "row") for v in sorted(values)]
    innermost = loops.index_names[rank - 1] if rank else ""

    def change(node: Node) -> Sequence[Node]:
        if isinstance(node, Accumulate):
            return _with_running_scans(node)
        if not isinstance(node, For):
            return [node]
        if node.index == innermost:
            return [replace(node, body=(*arrays, *node.body))]
        return [replace(node, body=_with_kept(node.body, {*values}))]

    body = map_nodes(nest.body, change)
    body = body if rank else (*arrays, *body)
    return replace(nest, body=(If(f"{length} <= {capacity}", body, nest.body),) if length != capacity else body)


def _with_kept(body: Sequence[Node], values: Set[str]) -> tuple[Node, ...]:
    """Returns the leaves of a sweep that write `values` to arrays or read them there, without what only they needed."""
    if not all(isinstance(node, Do) for node in body):
        return tuple(body)
    changed: list[Node] = []
    needed: set[str] = set()
    for node in reversed(body):
        assert isinstance(node, Do)
        if node.is_again and node.value not in needed:
            continue
        if node.value in values and node.how == "compute":
            node = replace(node, how="read" if node.is_again else "keep")
        needed |= node.arguments
        changed.append(node)
    return tuple(reversed(changed))


def _with_running_scans(node: Accumulate) -> Sequence[Node]:
    """Returns an `Accumulate` without the scans whose values are read from arrays."""
    running = {d.value for d in statements(node.body) if d.how != "read"}
    scans = tuple(s for s in node.scans if s.name in running)
    return [replace(node, scans=scans)] if node.reductions or scans else node.body


def partial(nest: Nest, index: str) -> Nest:
    """Accumulates columns in a block of rows first, in the element type, and then in those of all rows.

    `index` is the loop through a block of rows.
    """
    loops = found_loops(nest, index)
    columns = nest.loops.column_stores
    expect(bool(columns), "no value is accumulated over the rows")
    expect(all(loop.block for loop in loops), f"split {index} first")
    return change_loops(nest, index, lambda loop: [Accumulate(columns, (), (loop,), "columns")])


def vectorize(nest: Nest, index: str, lanes: int = 0) -> Nest:
    """Vectorises the innermost loops over `index`, with `lanes` elements in a vector; 0 for as many as fit.

    A reduction has an accumulator for each lane, combined at the end.  In rows, the rest that fills no vector is
    processed in vectors of half as many lanes each time.

    >>> rewritten("aten.sum(x, [1])", "vectorize(j0, 16)", x="f32[64, 128]")
    forward_0:
        for i0 < 64:
            accumulate sum_1 in lanes:
                vector j0 < 128, 16 lanes:
                    v0: f32 = load x[128*i0 + j0]
                    sum_1: f32 = sum over j of v0
            store sum_1[i0] = sum_1
    """
    loops = nest.loops
    found = found_loops(nest, index)
    expect(isinstance(lanes, int), f"the number of lanes is a number, not {lanes}")
    expect(lanes >= 0 and not lanes & (lanes - 1), f"the number of lanes is a power of two, not {lanes}")
    expect(lanes <= MAX_VECTOR, f"a vector has at most {MAX_VECTOR:,} lanes, not {lanes:,}")
    expect(index in loops.index_names, f"{index} runs over blocks; vectorize the loop through a block")
    is_inner = index in loops.index_names[len(loops.outer) :]
    expect(not is_inner or index == loops.index_names[-1], f"{index} is not the last index of a row")
    expect(
        any(all(isinstance(n, Do) for n in loop.body) for loop in found), f"there are loops inside those over {index}"
    )

    expect(not any(loop.is_vector for loop in found), f"{index} is a vector loop already")
    together = [
        loop for loop in walk(nest.body) if isinstance(loop, For) and loop.is_threaded and loop.body[0] in found
    ]
    expect(not any(loop.is_threaded for loop in found) or not together, f"{index} shares threads with a loop around it")

    is_apart = loops.scatters and index == loops.index_names[-1] and last_index_is_disjoint(loops)

    def keeps_order(loop: For) -> bool:
        return not is_apart and not nest.lane_index and _has_order(loop)

    scan = f"a scan needs the elements of a row in order: distribute {index} first"
    expect(not all(map(keeps_order, found)), EQUAL_POSITIONS if loops.scatters else scan)

    def change(node: Node) -> Sequence[Node]:
        if isinstance(node, For) and node.index == index and all(isinstance(n, Do) for n in node.body):
            if keeps_order(node):
                return [node]
            exact = is_inner or converts_float16(loops, node)
            expect(not (exact and node.is_threaded), f"split {index} first: threads share its blocks")
            count = lanes or (lane_count(loops, node) if exact else 0)
            return [replace(node, is_vector=True, lanes=count, is_exact=exact)]
        if isinstance(node, Accumulate) and node.place == "row" and is_inner:
            return [_with_lanes(node)]
        return [node]

    return replace(nest, body=map_nodes(nest.body, change))


def _with_lanes(node: Accumulate) -> Accumulate:
    """Returns accumulators of a sweep with those of its vector loops."""
    if len(node.body) == 1 and _is_of_lanes(node.body[0]):
        return replace(node, place="lanes")

    def change(inside: Node) -> Node:
        if isinstance(inside, For) and (inside.is_vector or _is_of_lanes(inside)):
            leaves = {id(do.statement) for do in statements([inside])}
            added = tuple(r for r in node.reductions if id(r) in leaves)
            return Accumulate(added, (), (inside,), "lanes") if added else inside
        return replace(inside, body=tuple(map(change, inside.body))) if isinstance(inside, For) else inside

    return replace(node, body=tuple(map(change, node.body)))


def _is_of_lanes(node: Node) -> bool:
    """Whether a node is a vector loop, or loops around one with few elements in all.

    Their accumulators are combined once then; as many elements are added in float32 as of one long row.
    """
    chain = chain_from(node) if isinstance(node, For) else []
    elements = prod(loop.size or loop.end for loop in chain)
    are_few = isinstance(elements, int) and elements <= SUM_BLOCK
    are_plain = not any(loop.is_threaded or loop.step != 1 for loop in chain)
    return bool(chain) and chain[-1].is_vector and (len(chain) == 1 or (are_few and are_plain))


def jam(nest: Nest, index: str, count: int) -> Nest:
    """Unrolls loops over the elements of rows, and moves the copies inside the loops over the rows of a block.

    `count` elements of each row are accumulated in the element type, in a register, before they reach the accumulators
    of the block.  The rest of the elements follows in another loop.

    >>> rewritten("aten.sum(x, [0])", "reorder(j0, i0)\\nvectorize(i0)\\njam(j0, 4)", x="f32[30, 8]")
    forward_0:
        accumulate sum_1 in a block:
            for j0_tile < 28 step 4:
                vector i0 < 8:
                    accumulate sum_1:
                        for j0 in j0_tile .. + 4:
                            v0: f32 = load x[i0 + 8*j0]
                            sum_1: f32 = sum over j of v0
            for j0 in 28 .. 30:
                vector i0 < 8:
                    v0: f32 = load x[i0 + 8*j0]
                    sum_1: f32 = sum over j of v0
        vector i0 < 8:
            read sum_1
            store sum_1[i0] = sum_1
    """
    found = [loop for loop in found_loops(nest, index) if is_around_lanes(nest, loop)]
    expect(bool(found), f"no loop over {index} has only a loop over rows inside, with an accumulator for each")
    expect(isinstance(count, int) and 1 < count <= MAX_JAMMED, f"jam takes 2 to {MAX_JAMMED} elements, not {count}")
    expect(
        all(isinstance(loop.end, int) for loop in found), f"the number of elements of {index} is known at the call only"
    )
    expect(not loads_float16(nest.loops), "float16 is converted for all rows of a block at a time")
    tile = f"{index}_tile"

    def change(loop: For) -> Sequence[Node]:
        if loop not in found or loop.block or loop.end < count:
            return [loop]
        (rows,) = loop.body
        assert isinstance(rows, For)
        whole = loop.end - loop.end % count
        through = replace(loop, body=rows.body, block=tile, size=count, end=whole)
        own = {id(do.statement) for do in statements(rows.body)}
        reductions = tuple(s for s in nest.loops.body if isinstance(s, ir.Reduce) and id(s) in own)
        jammed = replace(rows, body=(Accumulate(reductions, (), (through,), "few"),))
        rest = [replace(loop, start=whole)] if whole < loop.end else []
        return [replace(loop, index=tile, step=count, end=whole, body=(jammed,)), *rest]

    return change_loops(nest, index, change)


def is_around_lanes(nest: Nest, loop: For) -> bool:
    """Whether a loop has only a loop over rows inside, whose elements are accumulated in a block."""
    rows = loop.body[0] if len(loop.body) == 1 else None
    if not isinstance(rows, For) or rows.index != nest.lane_index:
        return False
    return any(isinstance(do.statement, ir.Reduce) and do.how == "compute" for do in statements(rows.body))


def parallelize(nest: Nest, *indices: str, condition: str = "") -> Nest:
    """Distributes loops that are directly inside each other over threads; the first one is the outermost.

    `condition` is tested at the call: with symbolic sizes, a kernel may have too little work for threads.  If they
    share the elements of a row, the kernel has a version of its loops for either case.

    >>> rewritten("aten.add(x, y)", "parallelize(i0)", x="f32[64, 128]", y="f32[64, 1]")
    forward_0:
        thread i0 < 64:
            for i1 < 128:
                v0: f32 = load x[128*i0 + i1]
                v1: f32 = load y[i0]
                add: f32 = add(v0, v1)
                store add[128*i0 + i1] = add
    """
    expect(bool(indices), "name a loop to distribute over threads")
    _expect_once(indices)
    _check_condition(nest, condition)
    found = found_loops(nest, indices[0])
    for index in indices:
        found_loops(nest, index)
        _check_threads(nest, index)
    inside = all([other.index for other in chain_from(loop)][: len(indices)] == [*indices] for loop in found)
    expect(len(indices) == 1 or inside, f"the loops {', '.join(indices)} are not directly inside each other")
    threaded = [loop for loop in walk(nest.body) if isinstance(loop, For) and loop.is_threaded]
    covered = {id(node) for loop in threaded for node in (loop, *walk(loop.body))}
    inside = any(isinstance(n, For) and n.is_threaded for loop in found for n in walk(loop.body))
    is_free = not inside and not any(id(loop) in covered for loop in found)
    expect(is_free, "a loop is distributed over threads already")

    vectors = [loop.index for index in indices for loop in nest.find(index) if loop.is_vector]
    expect(not vectors or len(indices) == 1, f"{', '.join(vectors)} is a vector loop: name the loops around it only")
    expect(not any(loop.is_exact for loop in found), f"split {indices[0]} first: threads share its blocks")
    nested = any(loop.block in indices for index in indices for loop in nest.find(index))
    expect(not nested, "the loop over blocks and that through a block share no threads: name one of them")
    expect(not any(loop.index in indices for loop in nest.in_blocks), "threads would share the accumulators of a row")
    is_of_row = indices[0].startswith("j")

    def change(node: Node) -> Sequence[Node]:
        if isinstance(node, Accumulate) and node.scans:
            return [replace(node, body=map_nodes(node.body, _serial))]
        if isinstance(node, For) and node.index in indices:
            return [replace(node, is_threaded=True, condition="" if is_of_row else condition)]
        return [node]

    changed = replace(nest, body=map_nodes(nest.body, change))
    expect(any(n.is_threaded for n in changed.find(indices[0])), "a scan needs the elements of a row in order")
    if condition and is_of_row:
        serial = map_nodes(changed.body, _serial)
        return replace(changed, body=(If(condition, changed.body, serial),))
    return changed


def _serial(node: Node) -> Sequence[Node]:
    return [replace(node, is_threaded=False, condition="")] if isinstance(node, For) else [node]


def _check_threads(nest: Nest, index: str) -> None:
    """Checks that the elements of a loop may be processed at the same time."""
    loops, rank = nest.loops, len(nest.loops.outer)
    names = {loop.index for loop in walk(nest.body) if isinstance(loop, For) and loop.block == index} | {index}
    rows = loops.index_names[rank - loops.sequential_rank : rank] if loops.column_stores else ()
    expect(names.isdisjoint(rows), "the rows of a part are accumulated in order")
    is_apart = rank > 0 and loops.index_names[rank - 1] in names and last_index_is_disjoint(loops)
    expect(not loops.scatters or is_apart, EQUAL_POSITIONS)


def _check_condition(nest: Nest, condition: str) -> None:
    """Checks that a condition compares two numbers, which may have the kernel's symbols."""
    symbols = nest.loops.symbols
    expect(
        not condition or bool(symbols), "all sizes of this kernel are known: there is no condition to test at a call"
    )
    try:
        comparison = ast.parse(str(condition) or "0 < 1", mode="eval").body
    except SyntaxError:
        comparison = ast.Constant(condition)
    parts = [*ast.walk(comparison)]
    is_one = isinstance(comparison, ast.Compare) and len(comparison.ops) == 1
    is_simple = is_one and all(isinstance(part, _OF_CONDITIONS) for part in parts)
    names = [part.id for part in parts if isinstance(part, ast.Name)]
    is_known = is_simple and {*names} <= {*symbols}
    expect(is_known, f"a condition compares sizes that are known at the call ({', '.join(symbols)}) and numbers")


_OF_CONDITIONS = (
    *(ast.Compare, ast.BinOp, ast.UnaryOp, ast.Name, ast.Constant, ast.expr_context),
    *(ast.Add, ast.Sub, ast.Mult, ast.USub),
    *(ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq),
)
"""The parts of a condition, which mean the same in C++."""


def _expect_once(names: Sequence[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), "")
    expect(not twice, f"{twice} is named twice")


def last_index_is_disjoint(loops: ir.Loops) -> bool:
    """Whether loops that scatter write to different addresses for different values of the last index."""
    if not loops.outer:
        return False
    addresses = [s.address for s in loops.body if isinstance(s, ir.Store) and s.mode != "="]
    return all(_last_index_fits(a, loops.outer[-1]) for a in addresses)


def _last_index_fits(address: ir.Address, size: Int) -> bool:
    """Whether the last index has stride 1 and all other strides are multiples of its size."""
    *others, last = address.strides
    steps = [s for s in (*others, *(factor for _, factor in address.values)) if s != 0]
    return last == 1 and all(divmod(s, size)[1] == 0 for s in steps)


# -- helpers ---------------------------------------------------------------------------------------


def change_loops(nest: Nest, index: str, change: Callable[[For], Sequence[Node]]) -> Nest:
    """Replaces each loop over `index` by the nodes that `change` returns for it."""
    found_loops(nest, index)

    def change_node(node: Node) -> Sequence[Node]:
        return change(node) if isinstance(node, For) and node.index == index else [node]

    return replace(nest, body=map_nodes(nest.body, change_node))


def _outer_loops(nest: Nest, index: str) -> list[For]:
    loops = found_loops(nest, index)
    expect(index in nest.loops.index_names[: len(nest.loops.outer)], f"{index} is not an outer index")
    return loops


def found_loops(nest: Nest, index: str) -> list[For]:
    """Returns the loops over `index`, of which there must be one at least."""
    found = nest.find(index)
    names = dict.fromkeys(n.index for n in walk(nest.body) if isinstance(n, For))
    expect(bool(found), f"there is no loop over {index}; there are loops over {', '.join(names) or 'nothing'}")
    return found


def expect(condition: bool, otherwise: str) -> None:
    """Raises UsageError unless the condition of a rewrite holds."""
    if not condition:
        raise UsageError(otherwise)
