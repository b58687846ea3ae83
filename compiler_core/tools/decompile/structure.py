"""The structure of a function's control flow: where its loops are, and where the sides of a branch come together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from compiler_core.bytecode import Instruction
from compiler_core.tools.decompile.handlers import Handlers

Flow = Callable[[int], Iterable[int]]
"""Returns where control goes from an instruction."""


class Structure(Handlers):
    """The control flow of a function; instructions are given by index."""

    def __init__(self, instructions: Sequence[Instruction], where: Mapping[Instruction, int]) -> None:
        super().__init__(instructions, where)
        self.loops = self._find_loops()
        """The instructions of each loop, by the index of its first one."""

    def reachable(self, start: int, barriers: Iterable[int | None], flow: Flow) -> set[int]:
        """Returns what can be reached from `start`, itself included, without leaving any of `barriers`."""
        limits, found, work = set(barriers), set(), [self.place(start)]
        while work:
            at = work.pop()
            if at not in found:
                found.add(at)
                work += [] if at in limits else flow(at)
        return found

    def join_point(self, starts: Iterable[int], barriers: Sequence[int | None], flow: Flow) -> int | None:
        """Returns the first instruction that can be reached from two of `starts`; a barrier only if there is no other.

        None: there is none.
        """
        sides = [self.reachable(start, barriers, flow) for start in starts]
        shared = {at for i, side in enumerate(sides) for other in sides[i + 1 :] for at in side & other}
        return min(shared.difference(barriers) or shared, default=None)

    def _find_loops(self) -> dict[int, set[int]]:
        """Finds natural loops: for each jump back, what reaches it without passing the instruction it jumps to."""
        back: dict[int, list[int]] = {}
        before: dict[int, list[int]] = {}
        path, done = set[int](), set[int]()
        work = [*((handler, False) for handler in self.entries), (0, False)]
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
            for following in self.flow(at, ()):
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
