"""The dependency graph of a program's steps while fusion rewrites them."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence, Set

from compiler_core.loops import ir


class StepGraph:
    """The steps of a program, by number, with their dependencies.

    Edges go from the definition of a buffer to its readers, from each random draw to the next, and between a call that
    changes an argument (a barrier) and all other steps.
    """

    def __init__(self, program: ir.Program) -> None:
        self.steps: dict[int, ir.Step] = dict(enumerate(program.steps))
        self.before: dict[int, set[int]] = {n: set() for n in self.steps}
        """For each step, the steps that must come before it."""
        self.after: dict[int, set[int]] = {n: set() for n in self.steps}
        """For each step, the steps that must come after it."""
        self.results = frozenset(r.buffer for r in program.results if isinstance(r, ir.TensorView))
        """The buffers that the program returns."""
        self._calls = {n for n, s in self.steps.items() if isinstance(s, ir.Call)}
        self._priority: dict[int, int] = {n: n for n in self.steps}
        """The position of each step in the original program, which decides between independent steps."""
        self._numbers = itertools.count(len(self.steps))
        self._readers: dict[str, set[int]] = {}
        """The steps that need each buffer."""
        for n, step in self.steps.items():
            self._add_reader(n, step)
        self._line: list[int | None] = list(self.steps)
        """The steps in a topological order, with gaps.  A path between two steps has only steps between them."""
        self._position = {n: n for n in self.steps}
        """The position of each step in `_line`."""
        self._add_edges()

    # -- queries ----------------------------------------------------------------------------

    def topological(self) -> Iterator[int]:
        """Yields the steps in the topological order that is closest to the order of the original program."""
        waiting = {n: len(before) for n, before in self.before.items()}
        ready = [(self._priority[n], n) for n, count in waiting.items() if not count]
        heapq.heapify(ready)
        while ready:
            _, n = heapq.heappop(ready)
            yield n
            for other in self.after[n]:
                waiting[other] -= 1
                if not waiting[other]:
                    heapq.heappush(ready, (self._priority[other], other))

    def reaches(self, start: int, goal: int) -> bool:
        """Whether there is a path from `start` to `goal`."""
        return self._any_reaches({start}, goal)

    def has_step_between(self, first: int, second: int) -> bool:
        """Whether a third step must come after the first and before the second."""
        return self._any_reaches(self.after[first] - {second}, second)

    def is_read_by_loops_only(self, n: int) -> bool:
        """Whether all steps after `n` are loops, and none of its buffers is a result of the program."""
        return self.after[n].isdisjoint(self._calls) and not self.results & set(self.steps[n].writes)

    def is_needed_by_others(self, buffer: str, first: int, second: int) -> bool:
        """Whether a step after the first, other than the second, needs a buffer that the first writes."""
        after = self.after[first]
        return any(n != second and n in after for n in self._readers.get(buffer, ()))

    def readers(self, buffers: Sequence[str], n: int) -> Iterator[ir.Step]:
        """Yields the steps after step `n` that need one of `buffers`."""
        for other in self.after[n]:
            if any(other in self._readers.get(b, ()) for b in buffers):
                yield self.steps[other]

    def only_for(self, n: int) -> tuple[ir.Loops, ...]:
        """Returns the loops that only step `n` needs."""
        steps = (self.steps[m] for m in sorted(self.before[n]) if self.after[m] == {n})
        return tuple(s for s in steps if isinstance(s, ir.Loops) and self.results.isdisjoint(s.writes))

    def is_needed(self, n: int) -> bool:
        """Whether a later step or the result of the program needs a buffer that step `n` writes."""
        readers = {b for m in self.after[n] for b in self.steps[m].needs}
        return bool(set(self.steps[n].writes) & (self.results | readers))

    def _any_reaches(self, starts: Set[int], goal: int) -> bool:
        """Whether there is a path from one of `starts` to `goal`."""
        end = self._position[goal]
        seen = {n for n in starts if self._position[n] < end}
        work = list(seen)
        while work:
            for n in self.after[work.pop()]:
                if n == goal:
                    return True
                if n not in seen and self._position[n] < end:
                    seen.add(n)
                    work.append(n)
        return False

    def _needs_only(self, n: int, step: ir.Loops, other: ir.Loops | None) -> bool:
        """Whether step `n` needs what `step` writes, and nothing that `other` writes."""
        needs = set(self.steps[n].needs)
        return not needs.isdisjoint(step.writes) and (other is None or needs.isdisjoint(other.writes))

    # -- changes ----------------------------------------------------------------------------

    def replace(
        self, first: int, second: int, loops: ir.Loops, remainder: ir.Loops | None, keeps_first: bool
    ) -> tuple[int, int, set[int]]:
        """Replaces two steps, or the second one only, by `loops` and, after it, `remainder`.

        A first step that is kept is removed too if nothing needs it any more.  Returns the numbers of the two new steps
        (the second one is unused without a remainder) and the steps that were removed.
        """
        gone = {second} if keeps_first else {first, second}
        new, rest = next(self._numbers), next(self._numbers)
        before = (self.before[first] | self.before[second]) - {first, second}
        after = {other for n in gone for other in self.after[n]} - gone
        after_rest = {n for n in self.after[second] - gone if not self._needs_only(n, loops, remainder)}
        priority = max(self._priority[n] for n in gone)
        self._insert_in_line([new] if remainder is None else [new, rest], (second,) if keeps_first else (first, second))
        for n in gone:
            self._remove(n)
        self._insert(new, loops, before, after, priority)
        if remainder is not None:
            self._insert(rest, remainder, before | {new}, after_rest, priority)
        if keeps_first and not self.is_needed(first):
            self._remove(first)
            gone.add(first)
        return new, rest, gone

    def _insert(self, n: int, step: ir.Loops, before: set[int], after: set[int], priority: int) -> None:
        """Adds step `n`, which has a position in the line already."""
        self.steps[n], self._priority[n] = step, priority
        self._add_reader(n, step)
        self.before[n], self.after[n] = set(before), set(after)
        for other in before:
            self.after[other].add(n)
        for other in after:
            self.before[other].add(n)

    def _add_reader(self, n: int, step: ir.Step) -> None:
        for buffer in step.needs:
            self._readers.setdefault(buffer, set()).add(n)

    def _insert_in_line(self, new: Sequence[int], replaced: Sequence[int]) -> None:
        """Puts the steps `new` into the line, after what they need and before what needs one of `replaced`."""
        start, end = sorted(self._position[n] for n in (replaced[0], replaced[-1]))
        between = [n for n in self._line[start : end + 1] if n is not None and n not in replaced]
        late = {n for n in (self._line[start],) if n is not None}
        for n in between:
            if not late.isdisjoint(self.before[n]):
                late.add(n)
        order = [*(n for n in between if n not in late), *new, *(n for n in between if n in late)]
        gap = end + 1 - start - len(order)
        self._line[start : end + 1] = [*[None] * gap, *order]
        self._position |= {n: at for at, n in enumerate(order, start + gap)}

    def _remove(self, n: int) -> None:
        for other in self.before.pop(n):
            self.after[other].discard(n)
        for other in self.after.pop(n):
            self.before[other].discard(n)
        for buffer in self.steps.pop(n).needs:
            self._readers[buffer].discard(n)
        if self._line[self._position[n]] == n:
            self._line[self._position[n]] = None

    def _add_edges(self) -> None:
        """Orders reads after writes, random draws one after the other, and all steps with respect to barriers."""
        writer: dict[str, int] = {}
        last_draw: int | None = None
        last_barrier: int | None = None
        for n, step in self.steps.items():
            before = {writer[b] for b in step.needs if b in writer}
            if isinstance(step, ir.Call) and step.ordered:
                if last_draw is not None:
                    before.add(last_draw)
                last_draw = n
            if isinstance(step, ir.Call) and step.barrier:
                before |= set(range(n))
                last_barrier = n
            elif last_barrier is not None:
                before.add(last_barrier)
            writer.update(dict.fromkeys(step.writes, n))
            self.before[n] = before
            for other in before:
                self.after[other].add(n)
