"""The rewrite loop of fusion: applies rules to pairs of loop nests, and records each rewrite and its reason.

A rule maps two loop nests to one, or to a `Refusal`.  It depends only on the pair.  The rewriter makes sure that
no rewrite causes a cycle, maintains the dependency graph (`StepGraph`), and notes the steps before and after, the rule
and the reason of each rewrite.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Literal

from compiler_core.loops import ir
from compiler_core.support.interrupts import safe_point
from compiler_core.support.size_expr import hint, prod


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


@dataclass(frozen=True)
class FusedPair:
    """The result of a rule; `replaces_first` is False if the first loop nest stays as it is.

    `remainder` is what is left to do of the second after `loops`; it communicates with them in the new `buffers`.
    """

    loops: ir.Loops
    reason: str
    replaces_first: bool = True
    remainder: ir.Loops | None = None
    buffers: Mapping[str, ir.Buffer] = field(default_factory=dict)


@dataclass(frozen=True)
class Refusal:
    """Why two steps are not fused; `rules.REFUSALS` documents the kinds."""

    kind: str
    reason: str
    for_now: bool = False
    """Whether a later rule may fuse the two."""


Decision = Literal["keep_apart", "force_fuse"]


@dataclass(frozen=True)
class FusionRequests:
    """What the user asked of fusion.

    `keep_apart` and `force_fuse` are pairs of names of graph nodes (`Options.keep_apart`, `Options.force_fuse`); `rule`
    decides on other pairs (`GraphPass` with ``at="fusion"``).
    """

    keep_apart: tuple[tuple[str, str], ...] = ()
    force_fuse: tuple[tuple[str, str], ...] = ()
    rule: Callable[[ir.Loops, ir.Loops], Decision | None] | None = None

    def between(self, first: ir.Loops, second: ir.Loops) -> Decision | None:
        """Returns the request for two loop nests; `keep_apart` takes precedence."""
        if _names_match(self.keep_apart, first, second):
            return "keep_apart"
        if _names_match(self.force_fuse, first, second):
            return "force_fuse"
        return self.rule(first, second) if self.rule else None


def _names_match(pairs: Sequence[tuple[str, str]], first: ir.Loops, second: ir.Loops) -> bool:
    """Whether one of `pairs` has a node of each of two loop nests, in either order."""
    if not pairs:
        return False
    one, other = node_names(first), node_names(second)
    return any((a in one and b in other) or (b in one and a in other) for a, b in pairs)


def node_names(step: ir.Step) -> set[str]:
    """Returns the names of the graph nodes that a step computes."""
    return {step.name, *(item.rpartition("#")[2] for item in step.origin)}


@dataclass(frozen=True)
class Pair:
    """Two loop nests, of which the second need not come before the first."""

    first: ir.Loops
    second: ir.Loops
    still_needed: frozenset[str]
    """The buffers of `first` that something other than `second` needs."""
    is_read_by_loops_only: bool
    """Whether only loops need the buffers of `first`."""
    is_read_whole_by_others: bool
    """Whether a loop nest other than `second` has at least as many indices as `first` and reads what it writes."""
    sources: tuple[ir.Loops, ...]
    """The loop nests of which only `first` reads the results."""
    buffers: dict[str, ir.Buffer]
    request: Decision | None = None
    """With `keep_apart` no rule is tried; with `force_fuse` rules ignore their limits of size and cost."""


@dataclass(frozen=True)
class Rule:
    """A fusion rule.

    `apply` is tried on pairs whose second loop nest reads what the first writes (`related` is "flow"), or on pairs
    that read the same buffer and do not depend on each other ("shared").
    """

    name: str
    related: Literal["flow", "shared"]
    apply: Callable[[Pair], FusedPair | Refusal]


@dataclass(frozen=True)
class Rewrite:
    """One application of a rule; `bytes_saved` is the decrease of what all steps read and write."""

    rule: str
    before: tuple[str, str]
    after: str
    reason: str
    bytes_saved: int


@dataclass(frozen=True)
class FusionResult:
    """The fused program, all rewrites in order, those that led to each loop nest, and the refusals."""

    program: ir.Program
    rewrites: tuple[Rewrite, ...]
    rewrites_by_loops: dict[str, tuple[Rewrite, ...]]
    refusals: tuple[tuple[str, str, Refusal], ...]


def rewrite(
    program: ir.Program,
    rules: Sequence[Rule],
    requests: FusionRequests = FusionRequests(),
) -> FusionResult:
    """Applies each of `rules` in turn until it changes nothing, then determines why the remaining pairs are not fused.

    The reason for a pair of which the second reads what the first writes is that of the last rule for such pairs.
    """
    rewriter = _Rewriter(program, requests)
    for rule in rules:
        while rewriter.apply(rule):
            pass
    return rewriter.result(rules)


class _Rewriter:
    """The program under rewriting, and the rewrites so far."""

    def __init__(self, program: ir.Program, requests: FusionRequests) -> None:
        self._program, self._requests = program, requests
        self._graph = StepGraph(program)
        self._rewrites: list[Rewrite] = []
        self._history: dict[int, tuple[Rewrite, ...]] = dict.fromkeys(self._graph.steps, ())
        self._refused: set[tuple[str, int, int, frozenset[str], bool]] = set()
        """Failed attempts, which need not be repeated: rule, steps, and the fields of the pair that may change."""

    def apply(self, rule: Rule) -> bool:
        """Tries `rule` once on every pair; returns whether anything changed."""
        changed = False
        for first, second in self._related_pairs(rule.related):
            safe_point()
            # an earlier rewrite of this pass may have removed either
            if first in self._graph.steps and second in self._graph.steps:
                changed |= self._try_pair(rule, first, second)
        return changed

    def _try_pair(self, rule: Rule, first: int, second: int) -> bool:
        """Tries `rule` on one pair; returns whether it was fused."""
        graph = self._graph
        if rule.related == "shared" and (graph.reaches(first, second) or graph.reaches(second, first)):
            return False
        pair = self._pair(first, second)
        attempt = (rule.name, first, second, pair.still_needed, pair.is_read_by_loops_only)
        if attempt in self._refused:
            return False
        outcome = _apply_rule(rule, pair)
        if isinstance(outcome, Refusal):
            if not outcome.for_now:
                self._refused.add(attempt)
            return False
        if outcome.replaces_first and graph.has_step_between(first, second):
            return False
        ir.check(outcome.loops)
        self._replace(rule, first, second, outcome)
        return True

    def _replace(self, rule: Rule, first: int, second: int, fused: FusedPair) -> None:
        old = {n: self._graph.steps[n] for n in (first, second)}
        fused_name, rest, removed = self._graph.replace(
            first, second, fused.loops, fused.remainder, not fused.replaces_first
        )
        if fused.buffers:
            self._program = replace(self._program, buffers={**self._program.buffers, **fused.buffers})
        new = [step for step in (fused.loops, fused.remainder) if step is not None]
        saved = traffic([old[n] for n in removed], self._program.buffers) - traffic(new, self._program.buffers)
        note = Rewrite(rule.name, (old[first].name, old[second].name), fused.loops.name, fused.reason, saved)
        self._rewrites.append(note)
        history = (*(h for n in sorted(removed) for h in self._history[n]), note)
        self._history |= {fused_name: history, rest: history}

    # -- pairs ------------------------------------------------------------------------------

    def _related_pairs(self, related: str) -> list[tuple[int, int]]:
        """Returns the pairs of loop nests that a rule is for, ordered by the second."""
        steps = self._graph.steps
        loops = [(n, step) for n in self._graph.topological() for step in [steps[n]] if isinstance(step, ir.Loops)]
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
        graph = self._graph
        a, b = graph.steps[first], graph.steps[second]
        assert isinstance(a, ir.Loops)
        assert isinstance(b, ir.Loops)
        needed = {w for w in a.writes if w in graph.results or graph.is_needed_by_others(w, first, second)}
        loops_only, size = graph.is_read_by_loops_only(first), hint(prod(a.space))
        readers = (r for r in graph.readers(a.writes, first) if r is not b and isinstance(r, ir.Loops))
        whole = any(hint(prod(r.space)) >= size for r in readers)
        buffers, request = self._program.buffers, self._requests.between(a, b)
        return Pair(a, b, frozenset(needed), loops_only, whole, graph.only_for(first), buffers, request)

    # -- the result -------------------------------------------------------------------------

    def result(self, rules: Sequence[Rule]) -> FusionResult:
        """Returns the program with its loops numbered, the rewrites, and why the remaining pairs are not fused."""
        order = list(self._graph.topological())
        program = self._program.with_steps([self._graph.steps[n] for n in order]).numbered()
        names = {n: step.name for n, step in zip(order, program.steps, strict=True)}
        history = {names[n]: self._history.get(n, ()) for n in order}
        unfused = dict.fromkeys((*self._unfused_flows(rules), *self._unfused_requests(rules)))
        refusals = tuple((names[first], names[second], refusal) for first, second, refusal in unfused)
        return FusionResult(program, tuple(self._rewrites), history, refusals)

    def _unfused_flows(self, rules: Sequence[Rule]) -> Iterator[tuple[int, int, Refusal]]:
        """Yields the pairs of steps of which the second reads what the first writes, with the reason."""
        steps = self._graph.steps
        flow = [rule for rule in rules if rule.related == "flow"]
        for second in self._graph.topological():
            for first in sorted(self._graph.before[second]):
                if set(steps[first].writes) & set(steps[second].reads):
                    yield first, second, self._reason(flow, first, second)

    def _unfused_requests(self, rules: Sequence[Rule]) -> Iterator[tuple[int, int, Refusal]]:
        """Yields the pairs of steps that the user wants fused, between which no tensor flows, with the reason."""
        steps = self._graph.steps
        order = list(self._graph.topological())
        for pair in self._requests.force_fuse:
            one, other = ([n for n in order if name in node_names(steps[n])] for name in pair)
            if not one or not other or set(one) & set(other):
                continue
            first, second = sorted((one[0], other[0]), key=order.index)
            if not set(steps[first].writes) & set(steps[second].reads):
                yield first, second, self._reason_without_flow(rules, first, second)

    def _reason_without_flow(self, rules: Sequence[Rule], first: int, second: int) -> Refusal:
        if self._graph.reaches(first, second):
            return Refusal("cycle", "a step in between needs the first and is needed by the second")
        if not set(self._graph.steps[first].reads) & set(self._graph.steps[second].reads):
            return Refusal("unrelated", "neither reads what the other writes, and they read nothing in common")
        return self._reason([rule for rule in rules if rule.related == "shared"], first, second)

    def _reason(self, rules: Sequence[Rule], first: int, second: int) -> Refusal:
        """Returns why the last of `rules` did not fuse two steps."""
        for n in (first, second):
            step = self._graph.steps[n]
            if isinstance(step, ir.Call):
                why = f": {step.reason}" if step.reason else ""
                return Refusal("call", f"{step.name} is one of PyTorch's own kernels{why}")
        if not rules:
            return Refusal("off", "nothing is fused")
        outcome = _apply_rule(rules[-1], self._pair(first, second))
        if isinstance(outcome, Refusal):
            return outcome
        return Refusal("cycle", "a step in between needs the first and is needed by the second")


def traffic(steps: Iterable[ir.Step], buffers: Mapping[str, ir.Buffer]) -> int:
    """Returns the bytes that the steps read and write."""
    return sum(buffers[b].bytes for step in steps for b in (*step.reads, *step.writes))


def _apply_rule(rule: Rule, pair: Pair) -> FusedPair | Refusal:
    if pair.request == "keep_apart":
        return Refusal("asked", "you asked to keep them apart")
    return rule.apply(pair)
