"""Compares the ranks of a job: groups those that did the same, and finds the first difference of the others."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from compiler_core.records import to_plain
from compiler_core.records.timings import plural, time_text
from compiler_core.tools.ranks.facts import KINDS, Fact, Kind, RankFacts

SLOW = 1.5
"""A rank that compiles this many times as long as the median is slow."""
SLOW_S = 1.0
"""... and takes at least this many seconds longer."""
_MAX_TEXT, _BEFORE = 120, 30
"""Characters of a text that are shown, and how many of them are before the first difference."""
_WHOLE = 60
"""Texts up to this length are shown whole: one number of a guard says little alone."""
_SWITCHES = frozenset({"on", "off", "true", "false"})
_STRIDES = re.compile(r", stride=\([^)]*\)")
_TOKENS = re.compile(r"(?<![\w.])\d+\.\d+(?:e[+-]?\d+)?|\w+|\W")
"""Names, numbers, and characters between them."""
_SIZE = re.compile(r"(size|shape|stride)\W*[^a-z]*$|\w\[[^\]]*$", re.IGNORECASE)
"""What is before a number that is called a size; only the noun depends on it."""


@dataclass(frozen=True)
class Divergence:
    """The first fact of one kind that differs between a group and the largest group."""

    kind: Kind
    compile: str
    file: str
    line: int
    source: str
    here: str
    """What the group has; ``nothing`` if the others have a fact more."""
    others: str

    @property
    def place(self) -> str:
        """The line as ``model.py:24``; the compile's id if it belongs to no line."""
        if self.line:
            return f"{PurePath(self.file).name}:{self.line}"
        return f"compile {self.compile}" if self.compile else "a line that is not known"

    def __str__(self) -> str:
        what, here, others = _differing(self.kind, self.here, self.others)
        return f"{self.place}: {what} {here}, the others {others}"


@dataclass
class RankGroup:
    """Ranks that did the same."""

    ranks: list[RankFacts]
    first: Divergence | None = None
    """The first difference from the largest group; None for that group."""
    divergences: list[Divergence] = field(default_factory=list)
    """The first difference of each kind."""

    @property
    def name(self) -> str:
        """The ranks' names, as ``ranks 0 to 6, 8``."""
        numbers = [each.rank for each in self.ranks]
        if any(number is None for number in numbers):
            return ", ".join(each.name for each in self.ranks)
        return f"{plural('rank', len(numbers))} {ranges([number for number in numbers if number is not None])}"


@dataclass
class RankComparison:
    """All ranks of a job, the largest group first; `str` says what differs."""

    groups: list[RankGroup]
    missing: list[int] = field(default_factory=list)
    """Ranks of which there is no file."""
    slow: list[RankFacts] = field(default_factory=list)
    """Ranks that compiled much longer than the others."""
    notes: list[str] = field(default_factory=list)
    """What of the files was left out, and why."""

    @property
    def ranks(self) -> list[RankFacts]:
        """All ranks, by their numbers."""
        found = [rank for group in self.groups for rank in group.ranks]
        return sorted(found, key=lambda each: (each.rank is None, each.rank or 0, each.name))

    @property
    def median_seconds(self) -> float:
        """The median of the ranks' times of compiling."""
        times = sorted(each.compile_seconds for each in self.ranks)
        return times[len(times) // 2] if times else 0.0

    def as_json(self) -> dict[str, Any]:
        """Returns dicts, lists, texts and numbers only."""
        groups = [
            {"ranks": [each.name if each.rank is None else each.rank for each in group.ranks],
             "first": group.first and to_plain(group.first), "divergences": to_plain(group.divergences)}
            for group in self.groups
        ]  # fmt: skip
        ranks = [
            {"rank": each.rank, "files": each.files, "compile_seconds": each.compile_seconds,
             "cache_hits": each.cache_hits, "cache_misses": each.cache_misses,
             **{f"{kind}s".replace(" ", "_"): each.count(kind) for kind in KINDS}}
            for each in self.ranks
        ]  # fmt: skip
        slow = [each.name if each.rank is None else each.rank for each in self.slow]
        return {"groups": groups, "ranks": ranks, "missing": self.missing, "slow": slow, "notes": self.notes}

    def __str__(self) -> str:
        if not self.groups:
            return "there is no rank"
        count = len(self.groups[0].ranks)
        lines = [f"{count} alike" if count > 1 or len(self.ranks) == 1 else f"compared with {self.groups[0].name}:"]
        for group in self.groups[1:]:
            verb = "differs" if len(group.ranks) == 1 else "differ"
            lines.append(f"{group.name} {verb} at {group.first}")
            lines += [f"    {each.kind}: {each}" for each in group.divergences if each != group.first]
        lines += [f"{each.name} compiled for {time_text(each.compile_seconds)}, the median is "
                  f"{time_text(self.median_seconds)}" for each in self.slow]  # fmt: skip
        if self.missing:
            lines.append(f"missing: {plural('rank', len(self.missing))} {ranges(self.missing)}")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def compare_rank_facts(ranks: Sequence[RankFacts], notes: Sequence[str] = ()) -> RankComparison:
    """Groups ranks by their facts; the largest group, the one with the lowest rank of several, is the reference."""
    groups: dict[tuple[object, ...], list[RankFacts]] = {}
    for rank in ranks:
        groups.setdefault(tuple(map(_compared, rank.facts)), []).append(rank)
    ordered = sorted(groups.values(), key=lambda each: (-len(each), each[0].rank or 0))
    found = [RankGroup(group) for group in ordered]
    for group in found[1:]:
        group.first = _first_difference(group.ranks[0].facts, found[0].ranks[0].facts)
        group.divergences = list(_divergences(group.ranks[0], found[0].ranks[0]))
        group.first = _most_telling(group.first, group.divergences)
    comparison = RankComparison(found, _missing(ranks), notes=list(notes))
    median = comparison.median_seconds
    comparison.slow = [
        each for each in comparison.ranks if each.compile_seconds > max(SLOW * median, median + SLOW_S)
    ]  # fmt: skip
    return comparison


def _missing(ranks: Sequence[RankFacts]) -> list[int]:
    numbers = {each.rank for each in ranks if each.rank is not None}
    return sorted(set(range(max(numbers, default=-1) + 1)) - numbers)


def _divergences(rank: RankFacts, reference: RankFacts) -> Iterator[Divergence]:
    for kind in KINDS:
        found = _first_difference(rank.of(kind), reference.of(kind))
        if found is not None:
            yield found


def _most_telling(first: Divergence | None, divergences: Sequence[Divergence]) -> Divergence | None:
    """Returns the first difference; of a guard that one side has more, the graph break that is no later in its compile,
    as what follows that has guards of its rest, else the operation at its line."""
    if first is None or first.kind != "guard" or "nothing" not in (first.here, first.others):
        return first
    of_kind = {each.kind: each for each in divergences}
    break_, operation = of_kind.get("graph break"), of_kind.get("graph")
    if break_ and (break_.compile, break_.file) == (first.compile, first.file) and break_.line <= first.line:
        return break_
    return operation if operation and operation.place == first.place else first


def _first_difference(here: Sequence[Fact], others: Sequence[Fact]) -> Divergence | None:
    """Returns the first position at which two lists of facts differ; None if they are equal."""
    for position in range(max(len(here), len(others))):
        one = here[position] if position < len(here) else None
        other = others[position] if position < len(others) else None
        if one is not None and other is not None and _compared(one) == _compared(other):
            continue
        if one is not None and other is not None and _place(one) == _place(other):
            if one.kind == "guard":
                return _guards_at_line(one, here[position:], others[position:])
            return _divergence(one, one.text, other.text)
        if one is not None and other is not None and one.kind == other.kind == "collective call":
            # The ranks wait for one another in these two.
            return _divergence(one, one.text, f"{other.text} at {PurePath(other.file).name}:{other.line}")
        if (last := one or other) and last.kind == "collective call" and (one is None or other is None):
            return _divergence(last, *(each.text if each else "none from here on" for each in (one, other)))
        # One side has a fact more: that which the other side does not have from here on.
        if one is not None and _compared(one) not in map(_compared, others[position:]):
            return _divergence(one, one.text, _at_line(one, others))
        if other is not None:
            return _divergence(other, _at_line(other, here), other.text)
        if one is not None:
            return _divergence(one, one.text, "nothing")
    return None


def _guards_at_line(at: Fact, here: Sequence[Fact], others: Sequence[Fact]) -> Divergence:
    """Returns the first guard at a line that only one side has, and that of the other side."""
    sides = [[fact for fact in facts if _place(fact) == _place(at)] for facts in (here, others)]
    own = [[fact.text for fact in side if fact not in other] for side, other in (sides, sides[::-1])]
    if not any(own):  # their order differs
        own = [[fact.text for fact in side] for side in sides]
    return _divergence(at, *(next(iter(texts), "none") for texts in own))


def _compared(fact: Fact) -> tuple[object, ...]:
    """Returns what is compared of a fact: the number of a compile follows from how many were before it."""
    return fact.kind, fact.file, fact.line, fact.text


def _place(fact: Fact) -> tuple[str, str, int]:
    return fact.kind, fact.file, fact.line


def _at_line(fact: Fact, others: Sequence[Fact]) -> str:
    """Returns what the other side has of this kind at this line."""
    texts = [each.text for each in others if _place(each) == _place(fact)]
    return "nothing" if fact.text in texts or not texts else texts[0]


def _divergence(fact: Fact, here: str, others: str) -> Divergence:
    return Divergence(fact.kind, fact.compile, fact.file, fact.line, fact.source, here, others)


def _differing(kind: str, here: str, others: str) -> tuple[str, str, str]:
    """Returns what differs (``size``, or the kind of the fact), and the differing parts of both texts."""
    shapes = [_STRIDES.sub("", text) for text in (here, others)]
    if shapes[0] != shapes[1]:  # other strides follow from other sizes
        here, others = shapes
    left, right = (_TOKENS.findall(text) for text in (here, others))
    if len(left) == len(right) and len(left) > 1:
        places = [i for i in range(len(left)) if left[i] != right[i]]
        if len({(left[i], right[i]) for i in places}) == 1:
            i = places[0]
            if left[i].lower() in _SWITCHES:  # it says little alone
                return kind, _part_of(here, left, i), _part_of(others, right, i)
            is_size = left[i].isdigit() and right[i].isdigit() and _SIZE.search("".join(left[:i]))
            if is_size or max(len(here), len(others)) > _WHOLE:
                return "size" if is_size else kind, left[i], right[i]
    return kind, _short(here, others), _short(others, here)


def _part_of(text: str, tokens: Sequence[str], i: int) -> str:
    """Returns the part of a list of settings, or of conditions, in which the token with this number is."""
    start = len("".join(tokens[:i]))
    return text[text.rfind(",", 0, start) + 1 :].partition(",")[0].strip()


def _short(text: str, other: str) -> str:
    """Returns a text, or the part of it in which it differs from another one."""
    if len(text) <= _MAX_TEXT:
        return text
    equal = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(text, other, strict=False))
    start = max(0, sum(1 for _ in equal) - _BEFORE)
    return ("..." if start else "") + text[start : start + _MAX_TEXT] + ("..." if start + _MAX_TEXT < len(text) else "")


def ranges(numbers: Sequence[int]) -> str:
    """Returns numbers as text: ``0 to 6, 8``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return ", ".join(parts)
