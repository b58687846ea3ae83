"""What follows from the flow of control: depth of the stack, which locals are live, what lies in a loop."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType

from compiler_core.bytecode import opset
from compiler_core.bytecode.instructions import Instruction, disassembled, index

_WRITES_ONLY = frozenset({"STORE_FAST"})


def falls_through(instruction: Instruction) -> bool:
    return instruction.opname not in opset.TERMINATORS


def depth_in_handler(instruction: Instruction) -> int:
    """Depth of the stack as this instruction's handler starts."""
    assert instruction.handler is not None
    return instruction.handler.depth + instruction.handler.lasti + 1


def stack_edges(instruction: Instruction, depth: int) -> Iterator[tuple[Instruction | None, int]]:
    """(where control can go, depth there) from `depth` before the instruction; None: the next instruction."""
    if instruction.handler is not None:
        yield instruction.handler.target, depth_in_handler(instruction)
    if instruction.target is not None:
        yield instruction.target, depth + opset.stack_effect(instruction.opname, instruction.arg, jump=True)
    if falls_through(instruction):
        yield None, depth + opset.stack_effect(instruction.opname, instruction.arg, jump=False)


def stack_size(instructions: Sequence[Instruction]) -> int:
    """The greatest depth on any path from the first instruction."""
    where = index(instructions)
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


def reachable(instructions: Sequence[Instruction]) -> set[Instruction]:
    """The instructions that some path from the first one runs."""
    where = index(instructions)
    found: set[Instruction] = set()
    work = list(instructions[:1])
    while work:
        x = work.pop()
        if x in found:
            continue
        found.add(x)
        work += [x.target] if x.target is not None else []
        work += [x.handler.target] if x.handler is not None else []
        if falls_through(x):
            work += instructions[where[x] + 1 : where[x] + 2]
    return found


def successors(instructions: Sequence[Instruction], where: dict[Instruction, int], at: int) -> list[int]:
    """Where control can go from instruction `at`, by an exception too."""
    x = instructions[at]
    found = [where[x.target]] if x.target is not None else []
    found += [where[x.handler.target]] if x.handler is not None else []
    return found + ([at + 1] if falls_through(x) and at + 1 < len(instructions) else [])


_LOOPS: dict[int, list[int | None]] = {}


def loops(code: CodeType) -> list[int | None]:
    """For each instruction the outermost loop around it, as the index of that loop's first instruction; else None.

    A loop is a set of instructions that can all reach one another, so one loop holds those nested in it, and what
    has left a loop never comes back to it.
    """
    found = _LOOPS.get(id(code))
    if found is None:
        found = _LOOPS[id(code)] = _components(*disassembled(code))
        weakref.finalize(code, _LOOPS.pop, id(code)).atexit = False  # what is known of code must not keep it
    return found


def _components(instructions: Sequence[Instruction], where: dict[Instruction, int]) -> list[int | None]:
    """Tarjan's strongly connected components, without recursion."""
    found: list[int | None] = [None] * len(instructions)
    if not any(x.target is not None and where[x.target] <= i for i, x in enumerate(instructions)):
        return found
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    path: list[int] = []
    for start in range(len(instructions)):
        work = [(start, iter(successors(instructions, where, start)))] if start not in order else []
        while work:
            at, following = work[-1]
            if at not in order:
                order[at] = low[at] = len(order)
                path.append(at)
            new = next((n for n in following if _unseen(n, at, order, low)), None)
            if new is not None:
                work.append((new, iter(successors(instructions, where, new))))
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[at])
            if low[at] == order[at]:
                _close(at, path, low, found, at in successors(instructions, where, at))
    return found


def _unseen(following: int, at: int, order: dict[int, int], low: dict[int, int]) -> bool:
    if following not in order:
        return True
    if following in low:  # on the path: part of the same loop
        low[at] = min(low[at], order[following])
    return False


def _close(at: int, path: list[int], low: dict[int, int], found: list[int | None], to_itself: bool) -> None:
    """Take the finished component of `at` off the path."""
    members = [path.pop()]
    while members[-1] != at:
        members.append(path.pop())
    first = min(members) if len(members) > 1 or to_itself else None
    for member in members:
        del low[member]
        found[member] = first


def names_read(instruction: Instruction) -> frozenset[str]:
    """Names whose value or cell the instruction needs; a store to a cell needs it too, for a closure may see that."""
    if instruction.opname in opset.PAIRS:
        (first, one), (second, two) = _halves(instruction)
        read = {one} if first == "LOAD_FAST" else set()
        return frozenset(read | {two} if second == "LOAD_FAST" and (first, two) != ("STORE_FAST", one) else read)
    number = opset.number(instruction.opname)
    touches = number in opset.HAS_LOCAL or number in opset.HAS_FREE
    return frozenset([str(instruction.argval)]) if touches and instruction.opname not in _WRITES_ONLY else frozenset()


def names_written(instruction: Instruction) -> frozenset[str]:
    if instruction.opname in opset.PAIRS:
        return frozenset(name for opname, name in _halves(instruction) if opname == "STORE_FAST")
    return frozenset([str(instruction.argval)]) if instruction.opname in _WRITES_ONLY else frozenset()


def _halves(instruction: Instruction) -> list[tuple[str, str]]:
    assert isinstance(instruction.argval, tuple)
    return list(zip(opset.PAIRS[instruction.opname], instruction.argval, strict=True))


def live_locals(instructions: Sequence[Instruction]) -> list[set[str]]:
    """For each instruction, names of locals, cells and free variables that may be read before written from it on.

    Exceptions count as control flow, and a delete or a mention of a cell as a read.
    """
    where, names = index(instructions), _Names()
    read = [names.bits(names_read(x)) for x in instructions]
    kept = [~names.bits(names_written(x)) for x in instructions]
    live = [0] * (len(instructions) + 1)
    changed = True
    while changed:
        changed = False
        for i in reversed(range(len(instructions))):
            x = instructions[i]
            after = live[i + 1] if falls_through(x) else 0
            if x.target is not None:
                after |= live[where[x.target]]
            found = after & kept[i] | read[i]
            if x.handler is not None:  # it may raise before it writes
                found |= live[where[x.handler.target]]
            if found != live[i]:
                live[i], changed = found, True
    sets = {bits: names.of(bits) for bits in set(live)}
    return [sets[bits] for bits in live]


class _Names:
    """Sets of names as bits of a number."""

    def __init__(self) -> None:
        self._bit: dict[str, int] = {}

    def bits(self, names: Iterable[str]) -> int:
        return sum(1 << self._bit.setdefault(name, len(self._bit)) for name in names)

    def of(self, bits: int) -> set[str]:
        return {name for name, bit in self._bit.items() if bits >> bit & 1}
