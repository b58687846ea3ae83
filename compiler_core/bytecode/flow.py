"""Control-flow analysis: stack depth, reachable code, live locals, loops."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import CodeType

from compiler_core.bytecode import opset
from compiler_core.bytecode.instructions import Instruction, disassemble_cached, instruction_indices

_WRITES_ONLY = frozenset({"STORE_FAST"})


def falls_through(instruction: Instruction) -> bool:
    """Returns whether the next instruction can follow this one."""
    return instruction.opname not in opset.TERMINATORS


def stack_edges(instruction: Instruction, depth: int) -> Iterator[tuple[Instruction | None, int]]:
    """Yields where control can go from an instruction, and the stack depth there; None stands for the next instruction.

    `depth` is the stack depth before the instruction.
    """
    if instruction.handler is not None:
        yield instruction.handler.target, instruction.handler.start_depth
    if instruction.target is not None:
        yield instruction.target, depth + opset.stack_effect(instruction.opname, instruction.arg, jump=True)
    if falls_through(instruction):
        yield None, depth + opset.stack_effect(instruction.opname, instruction.arg, jump=False)


def stack_size(instructions: Sequence[Instruction]) -> int:
    """Returns the greatest stack depth on any path from the first instruction."""
    where = instruction_indices(instructions)
    depths: dict[int, int] = {}
    work = [(0, 0)]
    while work:
        at, depth = work.pop()
        if at >= len(instructions) or at in depths:
            continue
        depths[at] = depth
        for target, after in stack_edges(instructions[at], depth):
            work.append((at + 1 if target is None else where[target], after))
    return max(depths.values(), default=0) + 1  # room for what an instruction holds while it runs


def reachable(instructions: Sequence[Instruction], start: int = 0) -> set[Instruction]:
    """Returns the instructions on any path from the one with the index `start`, which is the first."""
    where = instruction_indices(instructions)
    found: set[Instruction] = set()
    work = list(instructions[start : start + 1])
    while work:
        instruction = work.pop()
        if instruction in found:
            continue
        found.add(instruction)
        work += [instruction.target] if instruction.target is not None else []
        work += [instruction.handler.target] if instruction.handler is not None else []
        if falls_through(instruction):
            work += instructions[where[instruction] + 1 : where[instruction] + 2]
    return found


def successors(instructions: Sequence[Instruction], where: dict[Instruction, int], at: int) -> list[int]:
    """Returns where control can go from instruction `at`, including by an exception."""
    instruction = instructions[at]
    found = [where[instruction.target]] if instruction.target is not None else []
    found += [where[instruction.handler.target]] if instruction.handler is not None else []
    return found + ([at + 1] if falls_through(instruction) and at + 1 < len(instructions) else [])


_LOOPS: dict[int, list[int | None]] = {}


def outermost_loops(code: CodeType) -> list[int | None]:
    """Returns, for each instruction, the index of the first instruction of the outermost loop around it, or None.

    A loop is a strongly connected component of the control-flow graph.  So it includes the loops nested in it, and
    control that has left it never comes back.
    """
    found = _LOOPS.get(id(code))
    if found is None:
        found = _LOOPS[id(code)] = _components(*disassemble_cached(code))
        weakref.finalize(code, _LOOPS.pop, id(code)).atexit = False  # what is known of code must not keep it
    return found


def _components(instructions: Sequence[Instruction], where: dict[Instruction, int]) -> list[int | None]:
    found: list[int | None] = [None] * len(instructions)
    if not any(
        instruction.target is not None and where[instruction.target] <= i for i, instruction in enumerate(instructions)
    ):
        return found
    following = [successors(instructions, where, at) for at in range(len(instructions))]
    reached = [0] * len(instructions)  # a bit for each instruction that can run later
    changed = True
    while changed:
        changed = False
        for at in reversed(range(len(instructions))):
            bits = reached[at]
            for each in following[at]:
                bits |= reached[each] | 1 << each
            if bits != reached[at]:
                reached[at], changed = bits, True
    # those of one component reach the same instructions, themselves included
    first: dict[int, int] = {}
    for at, bits in enumerate(reached):
        if bits >> at & 1:
            found[at] = first.setdefault(bits, at)
    return found


def names_read(instruction: Instruction) -> frozenset[str]:
    """Returns the names whose value or cell the instruction needs.  A store to a cell counts, since closures may see
    it."""
    if instruction.opname in opset.PAIRS:
        (first, one), (second, two) = pair_halves(instruction)
        read = {one} if first == "LOAD_FAST" else set()
        return frozenset(read | {two} if second == "LOAD_FAST" and (first, two) != ("STORE_FAST", one) else read)
    number = opset.number(instruction.opname)
    touches = number in opset.HAS_LOCAL or number in opset.HAS_FREE
    return frozenset([str(instruction.argval)]) if touches and instruction.opname not in _WRITES_ONLY else frozenset()


def names_written(instruction: Instruction) -> frozenset[str]:
    """Returns the names of the locals that an instruction writes; cells and free variables are not counted."""
    if instruction.opname in opset.PAIRS:
        return frozenset(name for opname, name in pair_halves(instruction) if opname == "STORE_FAST")
    return frozenset([str(instruction.argval)]) if instruction.opname in _WRITES_ONLY else frozenset()


def pair_halves(instruction: Instruction) -> list[tuple[str, str]]:
    """Returns the opname and the local of each half of an instruction that does two things (3.13)."""
    assert isinstance(instruction.argval, tuple)
    return list(zip(opset.PAIRS[instruction.opname], instruction.argval, strict=True))


def comprehension_variables(instructions: Sequence[Instruction]) -> dict[Instruction, frozenset[str]]:
    """Returns the names that instructions use as variables of a comprehension that Python has inlined (3.12).

    Such a variable uses the slot of a local of the same name.  What is in the slot before the comprehension is on the
    stack meanwhile, and is put back after it: so the comprehension leaves the local as it is.
    """
    found: dict[Instruction, frozenset[str]] = {}
    where = instruction_indices(instructions)
    for at, instruction in enumerate(instructions):
        if instruction.opname != "LOAD_FAST_AND_CLEAR":
            continue
        name = str(instruction.argval)
        head = next(x for x in instructions[at:] if x.opname == "FOR_ITER")
        assert head.target is not None
        end = where[head.target]
        inside = list(instructions[at:end])
        for start in [end, *([where[head.handler.target]] if head.handler is not None else [])]:
            restoring = next((x for x in instructions[start:] if name in names_written(x)), None)
            inside += [restoring] if restoring is not None and not _writes_twice(restoring) else []
        for each in inside:
            if name in names_read(each) | names_written(each):
                found[each] = found.get(each, frozenset()) | {name}
    return found


def _writes_twice(instruction: Instruction) -> bool:
    """Whether both halves of an instruction write the same local: that of a comprehension, then the one around it."""
    return instruction.opname == "STORE_FAST_STORE_FAST" and len(names_written(instruction)) == 1


def live_locals(
    instructions: Sequence[Instruction], ignored: Mapping[Instruction, frozenset[str]] | None = None
) -> list[set[str]]:
    """Returns, for each instruction, the locals, cells and free variables that may be read before they are written from
    it on.

    Exceptions count as control flow; a delete, or any use of a cell, counts as a read.  The uses in `ignored` do not
    count (`comprehension_variables`).
    """
    where, names, ignored = instruction_indices(instructions), _NameBits(), ignored or {}
    none = frozenset[str]()
    read = [names.bits(names_read(x) - ignored.get(x, none)) for x in instructions]
    kept = [~names.bits(names_written(x) - ignored.get(x, none)) for x in instructions]
    live = [0] * (len(instructions) + 1)
    changed = True
    while changed:
        changed = False
        for i in reversed(range(len(instructions))):
            instruction = instructions[i]
            after = live[i + 1] if falls_through(instruction) else 0
            if instruction.target is not None:
                after |= live[where[instruction.target]]
            found = after & kept[i] | read[i]
            if instruction.handler is not None:  # it may raise before it writes
                found |= live[where[instruction.handler.target]]
            if found != live[i]:
                live[i], changed = found, True
    sets = {bits: names.of(bits) for bits in set(live)}
    return [sets[bits] for bits in live]


def bound_locals(instructions: Sequence[Instruction], bound: Iterable[str], start: int = 0) -> list[set[str]]:
    """Returns, for each instruction, the locals that are bound on every path to it from the one at `start`, where those
    of `bound` are.  Of what no path reaches, all are.  Variables of inlined comprehensions do not count.
    """
    where, names = instruction_indices(instructions), _NameBits()
    ignored, none = comprehension_variables(instructions), frozenset[str]()
    written = [names.bits(names_written(x) - ignored.get(x, none)) for x in instructions]
    unbound = [names.bits([str(x.argval)] if x.opname == "DELETE_FAST" else ()) for x in instructions]
    first = names.bits(bound)
    found = [-1] * len(instructions)
    found[start] = first
    work = [start]
    while work:
        at = work.pop()
        instruction = instructions[at]
        after = found[at] & ~unbound[at] | written[at]
        to = [] if instruction.target is None else [(where[instruction.target], after)]
        if instruction.handler is not None:  # it may raise before or after it writes
            to.append((where[instruction.handler.target], after & found[at]))
        if falls_through(instruction):
            to.append((at + 1, after))
        for each, bits in to:
            if found[each] & bits != found[each]:
                found[each] &= bits
                work.append(each)
    return [names.of(bits) for bits in found]


class _NameBits:
    """Converts sets of names to bit sets and back."""

    def __init__(self) -> None:
        self._bit: dict[str, int] = {}

    def bits(self, names: Iterable[str]) -> int:
        return sum(1 << self._bit.setdefault(name, len(self._bit)) for name in names)

    def of(self, bits: int) -> set[str]:
        return {name for name, bit in self._bit.items() if bits >> bit & 1}
