"""Compares two runs, aligned by the user's lines; the result is plain data.

    compare(record, record)     two engines; before and after an edit of the code; two ranks of a job
    compare(compile, compile)   a compile and its recompile

Each line has the facts of both sides, and whether they are the same, added, removed or changed.  If the code was
edited, lines that did not change are matched by their text.  The time is about linear in the size of the records: a
large part of a file that was edited throughout is aligned by the lines that it has only once.
"""

from __future__ import annotations

import difflib
import itertools
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from compiler_core.records import Compile, Record
from compiler_core.records.differences import Aspect, Comparison, Difference, State, Total
from compiler_core.records.user_lines import LineRef
from compiler_core.tools.questions.key_differences import key_differences
from compiler_core.tools.questions.line_facts import COUNTS, FACTS, TIMES, ComparedRun, LineFact, from_cache

_WORD = re.compile(r"\w+|[^\w\s]")
BEFORE = " (before)"
"""Suffix of the file name of a line that the second side no longer has."""
MAX_ALIGNED = 250_000
"""The greatest product of the numbers of edited lines that are aligned as `difflib` does, in quadratic time."""
MAX_WORDS_COMPARED = 10_000
"""The greatest product of the numbers of lines that changed together and are compared by their words."""


def compare(before: Record | Compile, after: Record | Compile) -> Comparison:
    """Compares two records, or two compiles that belong to records.

    Args:
        before: the first side.
        after: the second side, of the same kind; its line numbers are those of the result.

    Returns:
        Totals such as the number of graphs, and the differences at each of the user's lines; `str` prints them.

    Example::

        print(compiler_core.compare(record_of_core, record_of_stock))
    """
    first, second = ComparedRun(before), ComparedRun(after)
    if first.title == second.title:
        first.title, second.title = f"{first.title} (before)", f"{second.title} (after)"
    for side in (first, second):
        side.in_detail = first.engine == second.engine
        side.same_process = first.record is second.record
    moved = _moved_lines(first, second)
    differences = []
    for aspect, facts in FACTS.items():
        left = _by_line(facts(first), moved)
        right = _by_line(facts(second), {})
        if aspect in TIMES and not (left and right):
            continue  # times of one side only cannot be compared
        for line in sorted({*left, *right}):
            text = second.text(line) or first.text((line[0].removesuffix(BEFORE), line[1]))
            differences.append(_difference(aspect, line, text, left.get(line, []), right.get(line, [])))
    if first.in_detail and not first.same_process:
        differences[:0] = key_differences(first, second, lambda line: moved.get(line, line))
    notes = list(_cache_notes(first, second))
    return Comparison(first.title, second.title, _totals(first, second), differences, notes=notes)


def _cache_notes(first: ComparedRun, second: ComparedRun) -> Iterator[str]:
    """Notes that one side built its kernels and the other took some from a cache on disk."""
    cached = [sum(from_cache(c) is True for c in side.compiles) for side in (first, second)]
    built = [sum(from_cache(c) is False for c in side.compiles) for side in (first, second)]
    if cached[0] != cached[1] and any(built):
        texts = [
            f"{side.title} took {cached[i]} of {cached[i] + built[i]} compiles with a graph from the cache on disk"
            for i, side in enumerate((first, second))
        ]
        hint = "so their compile times cannot be compared; run it again, and both are cached"
        yield f"{' and '.join(texts)}, {hint}"


def _difference(aspect: Aspect, line: LineRef, text: str, before: list[LineFact], after: list[LineFact]) -> Difference:
    state = _state(aspect, before, after)
    return Difference(aspect, *line, text, state, _texts(before, after), _texts(after, before))


def _state(aspect: Aspect, before: list[LineFact], after: list[LineFact]) -> State:
    if not before:
        return "added"
    if not after:
        return "removed"
    # each time was measured once, from which `timings.faster` says nothing: both are shown, and no difference is marked
    counted = [Counter((fact.text, fact.body) for fact in side) for side in (before, after)]
    return "same" if aspect in TIMES or counted[0] == counted[1] else "changed"


def _texts(facts: list[LineFact], others: list[LineFact]) -> list[str]:
    """Returns the text of each fact; for one with a body also the lines of it that the other side does not have."""
    known = {line for other in others for line in other.body}
    texts = []
    for fact in facts:
        new_lines = [line.strip() for line in fact.body if line not in known] if others else []
        texts.append("\n".join([fact.text, *new_lines]))
    return texts


def _by_line(facts: Iterable[LineFact], moved: Mapping[LineRef, LineRef]) -> dict[LineRef, list[LineFact]]:
    """Groups facts by line; `moved`: the new positions of lines that moved."""
    lines: dict[LineRef, list[LineFact]] = {}
    for fact in facts:
        lines.setdefault(moved.get(fact.line, fact.line), []).append(fact)
    return lines


def _moved_lines(first: ComparedRun, second: ComparedRun) -> dict[LineRef, LineRef]:
    """Maps the lines of edited files to their positions on the second side.

    A line that was edited maps to the line that replaces it, a line that is gone to the file name with `BEFORE`.
    """
    moved: dict[LineRef, LineRef] = {}
    after = second.file_lines()
    for file, before in first.file_lines().items():
        if file in after and _was_edited(before, after[file]):
            for old, new in _matched_lines(list(before.items()), list(after[file].items())):
                moved[file, old] = (file, new) if new else (file + BEFORE, old)
    return moved


def _was_edited(before: dict[int, str], after: dict[int, str]) -> bool:
    """Whether a line that both sides have differs.

    Lines that only one side has do not count: a log contains only some lines of a file.
    """
    return any(before[number] != after[number] for number in before.keys() & after.keys())


def _matched_lines(before: Sequence[tuple[int, str]], after: Sequence[tuple[int, str]]) -> Iterator[tuple[int, int]]:
    """Yields each line's number before and after the edit; 0 for a line that is gone."""
    i = j = 0
    for k, m in [*_common_lines([t for _, t in before], [t for _, t in after]), (len(before), len(after))]:
        replaced = _replaced_lines([t for _, t in before[i:k]], [t for _, t in after[j:m]])
        yield from ((before[n][0], after[j + replaced[n - i]][0] if n - i in replaced else 0) for n in range(i, k))
        if k < len(before):
            yield before[k][0], after[m][0]
        i, j = k + 1, m + 1


def _replaced_lines(before: Sequence[str], after: Sequence[str]) -> dict[int, int]:
    """Returns, for lines that changed together, the position of the line that replaces each.

    If there are not as many lines after the edit, those that have the most words in common belong together, in order.
    """
    fewer = min(len(before), len(after))
    if len(before) == len(after) or not fewer or len(before) * len(after) > MAX_WORDS_COMPARED:
        return {len(before) - n: len(after) - n for n in range(1, fewer + 1)}
    words = [[frozenset(_WORD.findall(text)) for text in side] for side in (before, after)]
    best = [[0.0] * (len(after) + 1) for _ in range(len(before) + 1)]
    """The most that the lines from these positions on have in common."""
    for i, j in itertools.product(reversed(range(len(before))), reversed(range(len(after)))):
        best[i][j] = max(best[i + 1][j], best[i][j + 1], best[i + 1][j + 1] + _alike(words[0][i], words[1][j]))
    pairs, i, j = {}, 0, 0
    while i < len(before) and j < len(after):
        if best[i][j] == best[i + 1][j]:
            i += 1
        elif best[i][j] == best[i][j + 1]:
            j += 1
        else:
            pairs[i] = j
            i, j = i + 1, j + 1
    return pairs


def _alike(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / max(len(one | other), 1)


def _common_lines(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yields the positions of lines that an edit left unchanged, in order."""
    shorter = min(len(before), len(after))
    head = next((i for i in range(shorter) if before[i] != after[i]), shorter)
    tail = next((i for i in range(shorter - head) if before[-1 - i] != after[-1 - i]), shorter - head)
    yield from ((i, i) for i in range(head))
    left, right = before[head : len(before) - tail], after[head : len(after) - tail]
    small = len(left) * len(right) <= MAX_ALIGNED
    yield from ((head + i, head + j) for i, j in (_aligned if small else _unique_pairs)(left, right))
    yield from ((len(before) - i, len(after) - i) for i in range(tail, 0, -1))


def _aligned(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[int, int]]:
    for i, j, size in difflib.SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks():
        yield from zip(range(i, i + size), range(j, j + size), strict=True)


def _unique_pairs(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yields the most lines that both sides have once, in one order on both: a longest increasing subsequence."""
    once, positions = Counter(before), {text: j for j, text in enumerate(after)}
    counts = Counter(after)
    lasts: list[int] = []  # the smallest last position of an increasing sequence of each length
    chains: list[tuple[int, int, Any]] = []
    for i, text in enumerate(before):
        if once[text] == counts[text] == 1:
            length = bisect_left(lasts, positions[text])
            chain = (i, positions[text], chains[length - 1] if length else None)
            lasts[length : length + 1], chains[length : length + 1] = [positions[text]], [chain]
    found, link = [], chains[-1] if chains else None
    while link:
        found.append(link[:2])
        link = link[2]
    yield from reversed(found)


def _totals(first: ComparedRun, second: ComparedRun) -> list[Total]:
    totals = [Total(name, count(first), count(second)) for name, count in COUNTS.items()]
    return [total for total in totals if (total.before, total.after) != (None, None)]
