"""How many elements the vectors of a C++ kernel have, which accesses of float16 are converted for whole vectors, and
how a loop is distributed around such conversions and scans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

import torch

from compiler_core.loops import ir
from compiler_core.loops.ir import affine
from compiler_core.loops.ir.nest import Do, For, statements
from compiler_core.support.size_expr import Int

VECTOR_BYTES = 64
"""Bytes of the longest vector registers; a vector has as many elements as the narrowest type needs to fill one."""

SHORT_INTEGERS = (torch.int8, torch.uint8, torch.int16)


def lane_count(loops: ir.Loops, loop: For) -> int:
    """Returns the number of elements of a vector of `loop`; with fewer, compilers use shorter ones for all of it."""
    computed = _computed(loop)
    converted = {id(s) for s in _converted(loops, loop, computed)}
    types = [_memory_type(loops, s) for s in computed if isinstance(s, ir.Load | ir.Store) and id(s) not in converted]
    types += [s.dtype for s in computed if isinstance(s, ir.Compute) and s.dtype in SHORT_INTEGERS]
    lanes = VECTOR_BYTES // min([4, *(each.itemsize for each in types)])
    return 1 << min(loop.end, lanes).bit_length() - 1 if isinstance(loop.end, int) and not loop.block else lanes


def converts_float16(loops: ir.Loops, loop: For) -> bool:
    """Whether values of float16 are converted for whole vectors, which compilers do not do by themselves."""
    computed = _computed(loop)
    casts = [s for s in computed if isinstance(s, ir.Compute) and s.op == "cast"]
    if not any(torch.float16 in (s.dtype, loops.dtype(s.arguments[0])) for s in casts):
        return False
    return any(s.dtype is torch.float16 for s in casts) or bool(_converted(loops, loop, computed))


def converted_accesses(
    loops: ir.Loops, computed: Sequence[ir.Statement], index: str, ranges: Mapping[str, tuple[Int, Int]]
) -> list[ir.Load | ir.Store]:
    """Returns the loads and stores of float16 that are contiguous along `index`, and unconditional.

    `computed` is what the loop over `index` computes; `ranges` has the part of an index that loops cover, if it is not
    its whole range.
    """
    at, results = loops.index_names.index(index), {s.name for s in computed if not isinstance(s, ir.Store)}
    extents = [ranges.get(name, (0, size)) for name, size in zip(loops.index_names, loops.space, strict=True)]

    def is_converted(access: ir.Load | ir.Store) -> bool:
        address = access.address
        if _memory_type(loops, access) is not torch.float16 or address.strides[at] != 1:
            return False
        if results.intersection(name for name, _ in address.values):
            return False
        if isinstance(access, ir.Store):
            return access.mode != "+=" and not access.reduction
        return all(affine.always_within(r, extents, loops.position_sizes) for r in access.within)

    return [s for s in computed if isinstance(s, ir.Load | ir.Store) and is_converted(s)]


def _converted(loops: ir.Loops, loop: For, computed: Sequence[ir.Statement]) -> list[ir.Load | ir.Store]:
    return converted_accesses(loops, computed, loop.index, {loop.index: (loop.start, loop.end)})


def _computed(loop: For) -> list[ir.Statement]:
    return [d.statement for d in statements([loop]) if d.how in ("compute", "keep")]


def _memory_type(loops: ir.Loops, access: ir.Load | ir.Store) -> torch.dtype:
    return access.dtype if isinstance(access, ir.Load) else loops.dtype(access.value)


def is_ordered(do: Do) -> bool:
    """Whether a leaf needs the elements in order: a scan, or a store that adds to an element that others may add to."""
    s = do.statement
    return (isinstance(s, ir.Scan) and do.how != "read") or (isinstance(s, ir.Store) and s.mode != "=")


def loads_float16(loops: ir.Loops) -> bool:
    """Whether float16 is loaded, which is converted for whole vectors."""
    return any(isinstance(s, ir.Load) and s.dtype is torch.float16 for s in loops.body)


# -- loop distribution --------------------------------------------------------------------------

Reads = Callable[[Do], Set[str]]
"""Returns the names of the values that a leaf reads."""


def loop_parts(leaves: Sequence[Do], is_bulk: Callable[[Do], bool], reads: Reads) -> list[list[Do]]:
    """Loop distribution: assigns each leaf to a loop, in dependence order, with bulk operations between loops.

    A bulk operation handles all elements of a block at once: a conversion of float16, or a scan.  Loops have even
    numbers and bulk operations odd ones.  Returns the leaves of each, the first loop first.
    """
    earliest: list[int] = []
    producer: dict[str, int] = {}
    for d in leaves:
        number = max((producer.get(a, 0) for a in reads(d)), default=0)
        if (number % 2 == 1) != is_bulk(d):
            number += 1
        producer[d.value] = number
        earliest.append(number)
    # each leaf is placed as late as its readers allow, so that few values have to be stored between loops
    numbers = earliest[:]
    first_reader: dict[str, int] = {}
    for k, d in reversed(list(enumerate(leaves))):
        number = first_reader.get(d.value, earliest[k])
        if (number % 2 == 1) != is_bulk(d):
            number -= 1
        numbers[k] = number
        for name in reads(d):
            first_reader[name] = min(number, first_reader.get(name, number))
    return [[d for n, d in zip(numbers, leaves, strict=True) if n == number] for number in sorted({*numbers})]


def live_in(leaves: Sequence[Do], reads: Reads) -> Set[str]:
    """Returns the values that `leaves` read and do not compute."""
    return {a for d in leaves for a in reads(d)} - {d.value for d in leaves}
