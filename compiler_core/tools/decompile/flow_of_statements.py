"""Where control goes in a function, as its statements see it: jumps are followed, and a copied test is the first one.

CPython's compiler ends ``while test: body`` with a second copy of the test, which jumps back to the body.  Control that
reaches the copy is taken to the first one, so that each loop is entered at one place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from compiler_core.bytecode import Instruction
from compiler_core.bytecode.flow import falls_through

_OPPOSITE = (("IF_TRUE", "IF_FALSE"), ("IF_NONE", "IF_NOT_NONE"))


def is_conditional(instruction: Instruction) -> bool:
    """Returns whether an instruction jumps if a value is true, false, None or not None."""
    return instruction.opname.startswith("POP_JUMP") or instruction.opname.endswith("_OR_POP")


class StatementFlow:
    """The control flow of a function without its exceptions; instructions are given by index."""

    def __init__(self, instructions: Sequence[Instruction], where: Mapping[Instruction, int]) -> None:
        self._instructions, self._where = instructions, where
        self._copies: dict[int, int] = {}
        """From the first instruction of a copied test to that of the test."""
        for at, instruction in enumerate(instructions):
            if is_conditional(instruction) and instruction.target is not None and where[instruction.target] <= at:
                self._find_copied_test(at, where[instruction.target])

    def place(self, at: int) -> int:
        """Returns the instruction that is meant by `at`: the first copy of a test, and not a jump but its target.

        A negative number, which is no instruction, stays as it is.
        """
        seen = set()
        while at >= 0 and at not in seen:
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


def _same_target(first: Instruction, second: Instruction) -> bool:
    """Whether both jump nowhere, or to instructions that do the same."""
    targets: list[Any] = [first.target, second.target]
    return targets[0] is targets[1]
