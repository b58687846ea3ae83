"""The one rewrite loop: it tries rules on pairs of steps and notes what each did and why.

A rule maps two loops to one, or to a `Refusal`; it knows nothing of the schedule, of the record
or of the other rules.  The loop sees to it that no rewrite makes a cycle, keeps the schedule,
and notes before, after, rule and reason.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Literal

from compiler_core.loops import ir
from compiler_core.support.interrupts import safe_point


@dataclass(frozen=True)
class Merged:
    """What a rule made; `replaces_first` is False where the first step stays as it is.

    `rest` is what the second still does after `loops`, by way of new `buffers`.
    """

    loops: ir.Loops
    reason: str
    replaces_first: bool = True
    rest: ir.Loops | None = None
    buffers: Mapping[str, ir.Buffer] = field(default_factory=dict)


@dataclass(frozen=True)
class Refusal:
    """Why two steps stay apart; `fuse.REFUSALS` documents the kinds."""

    kind: str
    reason: str


@dataclass(frozen=True)
class Wishes:
    """What the user asked of fusion, as pairs of names of graph nodes."""

    apart: tuple[tuple[str, str], ...] = ()
    together: tuple[tuple[str, str], ...] = ()

    def of(self, first: ir.Loops, second: ir.Loops) -> Literal["apart", "together"] | None:
        if _meets(self.apart, first, second):
            return "apart"
        return "together" if _meets(self.together, first, second) else None


def _meets(pairs: Sequence[tuple[str, str]], first: ir.Loops, second: ir.Loops) -> bool:
    if not pairs:
        return False
    one, other = nodes_in(first), nodes_in(second)
    return any((a in one and b in other) or (b in one and a in other) for a, b in pairs)


def nodes_in(step: ir.Step) -> set[str]:
    """The names of the graph nodes that a step computes."""
    return {step.name, *(item.rpartition("#")[2] for item in step.origin)}


@dataclass(frozen=True)
class Pair:
    """Two loops of which the second does not come before the first.

    `kept` are the buffers of `first` that something besides `second` needs.  `readers_are_loops`
    tells whether all that read from `first` are loops, and nothing else needs it.
    """

    first: ir.Loops
    second: ir.Loops
    kept: frozenset[str]
    readers_are_loops: bool
    buffers: dict[str, ir.Buffer]
    wish: Literal["apart", "together"] | None = None
    """Kept apart they are not tried at all; together, what is refused is only what cannot be."""


@dataclass(frozen=True)
class Rule:
    """`apply` is tried on pairs where the second reads what the first writes ("flow"), or where
    both read a buffer and neither needs the other ("shared")."""

    name: str
    related: Literal["flow", "shared"]
    apply: Callable[[Pair], Merged | Refusal]


@dataclass(frozen=True)
class Rewrite:
    """One step of the loop; `bytes_saved` is how much less the steps read and write after it."""

    rule: str
    before: tuple[str, str]
    after: str
    reason: str
    bytes_saved: int


@dataclass(frozen=True)
class Rewritten:
    """The program after, the rewrites in order, and the name of each kernel's rewrites."""

    program: ir.Program
    rewrites: tuple[Rewrite, ...]
    by_loops: dict[str, tuple[Rewrite, ...]]
    refusals: tuple[tuple[str, str, Refusal], ...]


def rewrite(program: ir.Program, rules: Sequence[Rule], wishes: Wishes = Wishes()) -> Rewritten:
    """Apply each of `rules` in turn until it changes nothing; then say what still stands apart.

    The last rule that follows the flow of tensors gives the reasons.
    """
    schedule = Schedule(program, wishes)
    for rule in rules:
        while schedule.sweep(rule):
            pass
    return schedule.result(rules)


class Schedule:
    """The steps while they are rewritten, by number, with what must come before what."""

    def __init__(self, program: ir.Program, wishes: Wishes) -> None:
        self._program, self._wishes = program, wishes
        self._steps: dict[int, ir.Step] = dict(enumerate(program.steps))
        self._before: dict[int, set[int]] = {n: set() for n in self._steps}
        self._after: dict[int, set[int]] = {n: set() for n in self._steps}
        self._place: dict[int, int] = {n: n for n in self._steps}
        self._results = frozenset(r.buffer for r in program.results if isinstance(r, ir.View))
        self._rewrites: list[Rewrite] = []
        self._history: dict[int, tuple[Rewrite, ...]] = dict.fromkeys(self._steps, ())
        self._refused: set[tuple[str, int, int, frozenset[str], bool]] = set()
        self._numbers = itertools.count(len(self._steps))
        self._calls = {n for n, s in self._steps.items() if isinstance(s, ir.Call)}
        self._readers: dict[str, set[int]] = {}
        """The steps that need each buffer."""
        for n, step in self._steps.items():
            self._note_needs(n, step)
        self._line: list[int | None] = list(self._steps)
        """The steps, each after all that it needs: only what stands between two leads from one to the other."""
        self._at = {n: n for n in self._steps}
        """Where each stands in it."""
        self._order_steps()

    # -- the loop ---------------------------------------------------------------------------

    def sweep(self, rule: Rule) -> bool:
        """Try `rule` once on every pair; whether anything changed."""
        changed = False
        for first, second in self._pairs(rule.related):
            safe_point()
            # an earlier rewrite of this sweep may have taken either away
            if first in self._steps and second in self._steps:
                changed |= self._apply(rule, first, second)
        return changed

    def _apply(self, rule: Rule, first: int, second: int) -> bool:
        """Try `rule` on one pair; whether it merged them."""
        if rule.related == "shared" and (self._reaches(first, second) or self._reaches(second, first)):
            return False
        pair = self._pair(first, second)
        tried = (rule.name, first, second, pair.kept, pair.readers_are_loops)
        if tried in self._refused:
            return False
        outcome = _outcome(rule, pair)
        if isinstance(outcome, Refusal):
            self._refused.add(tried)
            return False
        if outcome.replaces_first and self._cyclic(first, second):
            return False
        ir.check(outcome.loops)
        self._replace(rule, first, second, outcome)
        return True

    def _replace(self, rule: Rule, first: int, second: int, merged: Merged) -> None:
        gone = {first, second} if merged.replaces_first else {second}
        made, rest = next(self._numbers), next(self._numbers)
        old = {n: self._steps[n] for n in (first, second)}
        new = [step for step in (merged.loops, merged.rest) if step is not None]
        before = (self._before[first] | self._before[second]) - {first, second}
        after = {other for n in gone for other in self._after[n]} - gone
        after_rest = {n for n in self._after[second] - gone if not self._needs_only(n, merged.loops, merged.rest)}
        place = max(self._place[n] for n in gone)
        instead_of = (first, second) if merged.replaces_first else (second,)
        self._line_up([made] if merged.rest is None else [made, rest], instead_of)
        for n in gone:
            self._drop(n)
        if merged.buffers:
            self._program = replace(self._program, buffers={**self._program.buffers, **merged.buffers})
        self._insert(made, merged.loops, before, after, place)
        if merged.rest is not None:
            self._insert(rest, merged.rest, before | {made}, after_rest, place)
        if not merged.replaces_first and not self._needed(first):
            self._drop(first)
            gone.add(first)
        saved = traffic([old[n] for n in gone], self._program.buffers) - traffic(new, self._program.buffers)
        note = Rewrite(rule.name, (_name(old[first]), _name(old[second])), merged.loops.name, merged.reason, saved)
        self._rewrites.append(note)
        history = (*(h for n in sorted(gone) for h in self._history[n]), note)
        self._history |= {made: history, rest: history}

    def _insert(self, n: int, step: ir.Loops, before: set[int], after: set[int], place: int) -> None:
        """Step `n`, which already stands in the line."""
        self._steps[n], self._place[n] = step, place
        self._note_needs(n, step)
        self._before[n], self._after[n] = set(before), set(after)
        for other in before:
            self._after[other].add(n)
        for other in after:
            self._before[other].add(n)

    def _note_needs(self, n: int, step: ir.Step) -> None:
        for buffer in step.needs:
            self._readers.setdefault(buffer, set()).add(n)

    def _line_up(self, made: Sequence[int], instead_of: Sequence[int]) -> None:
        """Put `made` into the line; what stands between the steps that it is made of and needs one comes after it."""
        start, end = sorted(self._at[n] for n in (instead_of[0], instead_of[-1]))
        between = [n for n in self._line[start : end + 1] if n is not None and n not in instead_of]
        late = {n for n in (self._line[start],) if n is not None}
        for n in between:
            if not late.isdisjoint(self._before[n]):
                late.add(n)
        order = [*(n for n in between if n not in late), *made, *(n for n in between if n in late)]
        self._line[start : end + 1] = [*[None] * (end + 1 - start - len(order)), *order]
        self._at |= {n: at for at, n in enumerate(order, end + 1 - len(order))}

    def _drop(self, n: int) -> None:
        for other in self._before.pop(n):
            self._after[other].discard(n)
        for other in self._after.pop(n):
            self._before[other].discard(n)
        for buffer in self._steps.pop(n).needs:
            self._readers[buffer].discard(n)
        if self._line[self._at[n]] == n:
            self._line[self._at[n]] = None

    # -- questions --------------------------------------------------------------------------

    def _pairs(self, related: str) -> list[tuple[int, int]]:
        """Pairs of loops, in order of the second."""
        loops = [(n, s) for n in self._topological() if isinstance(s := self._steps[n], ir.Loops)]
        if related == "flow":
            writer = {b: n for n, s in loops for b in s.writes}
            return [(writer[b], n) for n, s in loops for b in reversed(s.reads) if b in writer and writer[b] != n]
        readers: dict[str, list[int]] = {}
        pairs: dict[tuple[int, int], None] = {}
        for n, s in loops:
            for b in s.reads:
                pairs.update(dict.fromkeys((m, n) for m in readers.get(b, ())))
                readers.setdefault(b, []).append(n)
        return list(pairs)

    def _pair(self, first: int, second: int) -> Pair:
        a, b = self._steps[first], self._steps[second]
        assert isinstance(a, ir.Loops)
        assert isinstance(b, ir.Loops)
        others, writes = self._after[first], set(a.writes)
        loops_only = others.isdisjoint(self._calls) and not self._results & writes
        kept = (self._results & writes).union(b for b in writes if self._needed_beside(b, first, second))
        return Pair(a, b, kept, loops_only, self._program.buffers, self._wishes.of(a, b))

    def _needed_beside(self, buffer: str, first: int, second: int) -> bool:
        """Whether a step after the first, other than the second, needs a buffer that the first writes."""
        after = self._after[first]
        return any(n != second and n in after for n in self._readers.get(buffer, ()))

    def _needed(self, n: int) -> bool:
        writes = set(self._steps[n].writes)
        readers = {b for m in self._after[n] for b in self._steps[m].needs}
        return bool(writes & (self._results | readers))

    def _cyclic(self, first: int, second: int) -> bool:
        """Whether something must come after the first and before the second."""
        return self._lead_to(self._after[first] - {second}, second)

    def _reaches(self, start: int, goal: int) -> bool:
        return self._lead_to({start}, goal)

    def _lead_to(self, starts: Set[int], goal: int) -> bool:
        """Whether `goal` comes after one of `starts`."""
        end = self._at[goal]
        seen = {n for n in starts if self._at[n] < end}
        work = list(seen)
        while work:
            for n in self._after[work.pop()]:
                if n == goal:
                    return True
                if n not in seen and self._at[n] < end:
                    seen.add(n)
                    work.append(n)
        return False

    def _needs_only(self, n: int, step: ir.Loops, other: ir.Loops | None) -> bool:
        """Whether `n` reads what `step` writes and nothing that `other` does."""
        needs = set(self._steps[n].needs)
        return not needs.isdisjoint(step.writes) and (other is None or needs.isdisjoint(other.writes))

    # -- order ------------------------------------------------------------------------------

    def _order_steps(self) -> None:
        """Reads after writes; random draws in turn; nothing passes a mutation."""
        made: dict[str, int] = {}
        ordered = barrier = None
        for n, step in self._steps.items():
            before = {made[b] for b in step.needs if b in made}
            if isinstance(step, ir.Call) and step.ordered:
                before |= {ordered} if ordered is not None else set()
                ordered = n
            if isinstance(step, ir.Call) and step.barrier:
                before |= set(range(n))
                barrier = n
            elif barrier is not None:
                before.add(barrier)
            made.update(dict.fromkeys(step.writes, n))
            self._before[n] = before
            for other in before:
                self._after[other].add(n)

    def _topological(self) -> Iterator[int]:
        """Each step after all that it needs, and otherwise as in the program."""
        waiting = {n: len(before) for n, before in self._before.items()}
        ready = [(self._place[n], n) for n, count in waiting.items() if not count]
        heapq.heapify(ready)
        while ready:
            _, n = heapq.heappop(ready)
            yield n
            for other in self._after[n]:
                waiting[other] -= 1
                if not waiting[other]:
                    heapq.heappush(ready, (self._place[other], other))

    # -- the outcome ------------------------------------------------------------------------

    def result(self, rules: Sequence[Rule]) -> Rewritten:
        order = list(self._topological())
        program = self._program.with_steps([self._steps[n] for n in order]).numbered()
        names = {n: _name(step) for n, step in zip(order, program.steps, strict=True)}
        history = {names[n]: self._history.get(n, ()) for n in order}
        apart = dict.fromkeys((*self._stand_apart(rules), *self._asked_in_vain(rules)))
        refusals = tuple((names[first], names[second], refusal) for first, second, refusal in apart)
        return Rewritten(program, tuple(self._rewrites), history, refusals)

    def _stand_apart(self, rules: Sequence[Rule]) -> Iterator[tuple[int, int, Refusal]]:
        """Why each two steps between which a tensor flows are still two."""
        flow = [rule for rule in rules if rule.related == "flow"]
        for second in self._topological():
            for first in sorted(self._before[second]):
                if set(self._steps[first].writes) & set(self._steps[second].reads):
                    yield first, second, self._reason(flow, first, second)

    def _asked_in_vain(self, rules: Sequence[Rule]) -> Iterator[tuple[int, int, Refusal]]:
        """Why two steps are two though the user wants them together, where no tensor flows between them."""
        order = list(self._topological())
        for pair in self._wishes.together:
            one, other = ([n for n in order if name in nodes_in(self._steps[n])] for name in pair)
            if not one or not other or set(one) & set(other):
                continue
            first, second = sorted((one[0], other[0]), key=order.index)
            if not set(self._steps[first].writes) & set(self._steps[second].reads):
                yield first, second, self._unrelated(rules, first, second)

    def _unrelated(self, rules: Sequence[Rule], first: int, second: int) -> Refusal:
        if self._reaches(first, second):
            return Refusal("cycle", "a step in between needs the first and is needed by the second")
        if not set(self._steps[first].reads) & set(self._steps[second].reads):
            return Refusal("unrelated", "neither reads what the other writes, and they read nothing in common")
        return self._reason([rule for rule in rules if rule.related == "shared"], first, second)

    def _reason(self, rules: Sequence[Rule], first: int, second: int) -> Refusal:
        for n in (first, second):
            if isinstance(step := self._steps[n], ir.Call):
                why = f": {step.reason}" if step.reason else ""
                return Refusal("call", f"{step.name} is one of PyTorch's own kernels{why}")
        outcome = _outcome(rules[-1], self._pair(first, second)) if rules else Refusal("off", "nothing is fused")
        if isinstance(outcome, Refusal):
            return outcome
        return Refusal("cycle", "a step in between needs the first and is needed by the second")


def traffic(steps: Iterable[ir.Step], buffers: Mapping[str, ir.Buffer]) -> int:
    """The bytes of what the steps read and write."""
    return sum(buffers[b].bytes for step in steps for b in (*step.reads, *step.writes))


def _outcome(rule: Rule, pair: Pair) -> Merged | Refusal:
    return Refusal("asked", "you asked to keep them apart") if pair.wish == "apart" else rule.apply(pair)


def _name(step: ir.Step) -> str:
    return step.name
