"""Two runs side by side, aligned by the user's lines: plain data.

    compare(record, record)     two engines; before and after an edit of the code; two ranks of a job
    compare(compile, compile)   a compile and its recompile

For each line: what stands there on one side, on the other, and whether that is the same, added, removed or changed.
Where the code was edited, lines that stayed are found again by their text.  It takes time linear in the records, and in
the number of lines of each file times its edits.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from compiler_core.records import Compile, Record
from compiler_core.records.differences import Aspect, Comparison, Difference, State, Total
from compiler_core.records.line_facts import ASPECTS, COUNTS, TIMES, Found, Place, Side

BEFORE = " (before)"
"""Stands after the name of a file whose line is gone on the second side."""
ALIKE = 1.25
"""Times that differ by no more than this factor count as the same."""


def compare(before: Record | Compile, after: Record | Compile) -> Comparison:
    """Both sides are records, or compiles that belong to records."""
    one, other = Side(before), Side(after)
    if one.title == other.title:
        one.title, other.title = f"{one.title} (before)", f"{other.title} (after)"
    for side in (one, other):
        side.in_detail = one.engine == other.engine
        side.same_process = one.record is other.record
    moved = _moves(one, other)
    lines = []
    for aspect, found in ASPECTS.items():
        left = _by_place(found(one), lambda place: moved.get(place, place))
        right = _by_place(found(other), lambda place: place)
        if aspect in TIMES and not (left and right):
            continue  # where only one side was timed there is nothing to compare
        for place in sorted({*left, *right}):
            text = other.text(place) or one.text((place[0].removesuffix(BEFORE), place[1]))
            lines.append(_difference(aspect, place, text, left.get(place, []), right.get(place, [])))
    return Comparison(one.title, other.title, _totals(one, other), lines)


def _difference(aspect: Aspect, place: Place, text: str, before: list[Found], after: list[Found]) -> Difference:
    alike = before and after and (_alike_times if aspect in TIMES else _alike)(before, after)
    state: State = "same" if alike else "added" if not before else "removed" if not after else "changed"
    return Difference(aspect, *place, text, state, _shown(before, after), _shown(after, before))


def _alike(before: list[Found], after: list[Found]) -> bool:
    return Counter((f.text, f.body) for f in before) == Counter((f.text, f.body) for f in after)


def _alike_times(before: list[Found], after: list[Found]) -> bool:
    times = sorted(sum(f.ns or 0 for f in found) for found in (before, after))
    return times[1] <= times[0] * ALIKE


def _shown(found: list[Found], other: list[Found]) -> list[str]:
    """The texts; and of what has a body that the other side has not, the lines that make the difference."""
    there = {line for each in other for line in each.body}
    return [
        "\n".join([each.text, *(line.strip() for line in each.body if other and line not in there)]) for each in found
    ]


def _by_place(found: Iterable[Found], moved: Callable[[Place], Place]) -> dict[Place, list[Found]]:
    places: dict[Place, list[Found]] = {}
    for each in found:
        places.setdefault(moved(each.place), []).append(each)
    return places


def _moves(one: Side, other: Side) -> dict[Place, Place]:
    """Where the lines of one side's files stand in the other's, where the text changed around them.  A line that was
    edited is the line in its place; one that is gone belongs to the file as it was."""
    moved: dict[Place, Place] = {}
    after = other.file_lines()
    for file, before in one.file_lines().items():
        if file in after and _was_edited(before, after[file]):
            for old, new in _counterparts(list(before.items()), list(after[file].items())):
                moved[file, old] = (file, new) if new else (file + BEFORE, old)
    return moved


def _was_edited(before: dict[int, str], after: dict[int, str]) -> bool:
    """Whether a line that both sides have reads otherwise.  Of a file that only a log speaks of, each side has some
    lines, and not the same ones."""
    return any(before[number] != after[number] for number in before.keys() & after.keys())


def _counterparts(before: Sequence[tuple[int, str]], after: Sequence[tuple[int, str]]) -> Iterator[tuple[int, int]]:
    """Each line's number before and after, 0 for one that is gone."""
    matcher = difflib.SequenceMatcher(None, [t for _, t in before], [t for _, t in after], autojunk=False)
    for _, first, last, there, end in matcher.get_opcodes():
        for i in range(first, last):
            now = i + end - last  # of lines that changed together, the last ones are paired
            yield before[i][0], after[now][0] if now >= there else 0


def _totals(one: Side, other: Side) -> list[Total]:
    totals = [Total(name, count(one), count(other)) for name, count in COUNTS.items()]
    return [total for total in totals if (total.before, total.after) != (None, None)]
