"""The structure of a function's control flow: where its loops are, and where the sides of a branch come together.

CPython's compiler ends ``while test: body`` with a second copy of the test, which jumps back to the body.  Control that
reaches the copy is taken to the first one, so that each loop is entered at one place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from compiler_core.bytecode import Instruction
from compiler_core.bytecode.flow import falls_through

_OPPOSITE = (("IF_TRUE", "IF_FALSE"), ("IF_NONE", "IF_NOT_NONE"))


def is_conditional(instruction: Instruction) -> bool:
    """Returns whether an instruction jumps if a value is true, false, None or not None."""
    return instruction.opname.startswith("POP_JUMP") or instruction.opname.endswith("_OR_POP")


class Structure:
    """The control flow of a function; instructions are given by index."""

    def __init__(self, instructions: Sequence[Instruction], where: Mapping[Instruction, int]) -> None:
        self._instructions, self._where = instructions, where
        self._copies: dict[int, int] = {}
        """From the first instruction of a copied test to that of the test."""
        for at, instruction in enumerate(instructions):
            if is_conditional(instruction) and instruction.target is not None and where[instruction.target] <= at:
                self._find_copied_test(at, where[instruction.target])
        self.loops = self._find_loops()
        """The instructions of each loop, by the index of its first one."""

    def place(self, at: int) -> int:
        """Returns the instruction that is meant by `at`: the first copy of a test, and not a jump but its target."""
        seen = set()
        while at not in seen:
            seen.add(at)
            at = self._copies.get(at, at)
            instruction = self._instructions[at]
            if instruction.opname in ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"):
                assert instruction.target is not None
                at = self._where[instruction.target]
        return at

    def successors(self, at: int) -> list[int]:
        """Returns where control goes from an instruction: what follows it, then the target of its jump."""
        instruction = self._instructions[at]
        found = [at + 1] if falls_through(instruction) and at + 1 < len(self._instructions) else []
        if instruction.target is not None:
            found.append(self._where[instruction.target])
        return [self.place(each) for each in found]

    def reachable(self, start: int, barriers: Iterable[int | None]) -> set[int]:
        """Returns what can be reached from `start`, itself included, without leaving any of `barriers`."""
        limits, found, work = set(barriers), set(), [self.place(start)]
        while work:
            at = work.pop()
            if at not in found:
                found.add(at)
                work += [] if at in limits else self.successors(at)
        return found

    def join_point(self, starts: Iterable[int], barriers: Sequence[int | None]) -> int | None:
        """Returns the first instruction that can be reached from two of `starts`; a barrier only if there is no other.

        None: there is none.
        """
        sides = [self.reachable(start, barriers) for start in starts]
        shared = {at for i, side in enumerate(sides) for other in sides[i + 1 :] for at in side & other}
        return min(shared.difference(barriers) or shared, default=None)

    def _find_copied_test(self, jump: int, body: int) -> None:
        """Notes that the instructions before a jump back to `body` are a copy of those before `body`."""
        length = 0
        while body > length < jump and self._is_copy(body - 1 - length, jump - length, is_last=length == 0):
            length += 1
        if length:
            self._copies[jump - length + 1] = body - length

    def _is_copy(self, one: int, other: int, is_last: bool) -> bool:
        first, second = self._instructions[one], self._instructions[other]
        if first.positions != second.positions:
            return False
        names = [each.opname.replace("FORWARD_", "").replace("BACKWARD_", "") for each in (first, second)]
        if is_last:
            return any(sorted(names) == sorted(f"POP_JUMP_{kind}" for kind in pair) for pair in _OPPOSITE)
        return names[0] == names[1] and first.argval == second.argval and _same_target(first, second)

    def _find_loops(self) -> dict[int, set[int]]:
        """Finds natural loops: for each jump back, what reaches it without passing the instruction it jumps to."""
        back: dict[int, list[int]] = {}
        before: dict[int, list[int]] = {}
        path, done, work = set[int](), set[int](), [(0, False)]
        while work:
            at, is_left = work.pop()
            if is_left:
                path.discard(at)
                continue
            if at in done:
                continue
            done.add(at)
            path.add(at)
            work.append((at, True))
            for following in self.successors(at):
                before.setdefault(following, []).append(at)
                if following in path:
                    back.setdefault(following, []).append(at)
                else:
                    work.append((following, False))
        return {header: self._members(header, ends, before) for header, ends in back.items()}

    def _members(self, header: int, ends: Sequence[int], before: Mapping[int, Sequence[int]]) -> set[int]:
        found, work = {header}, list(ends)
        while work:
            at = work.pop()
            if at not in found:
                found.add(at)
                work += before.get(at, ())
        return found


def _same_target(first: Instruction, second: Instruction) -> bool:
    """Whether both jump nowhere, or to instructions that do the same."""
    targets: list[Any] = [first.target, second.target]
    return targets[0] is targets[1]
