"""A question of a lesson as data: what is asked, how it is measured, and which wrong answers are known.

Its text, its form, its check and its explanation are made from this one piece.  The right answer is measured in what
the lesson ran, on the machine on which it runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Answer = float | str | tuple[str, ...]
"""A number, one of several choices, or all right ones of them."""

BYTES = {"bytes": 1.0, "byte": 1.0, "b": 1.0, "kb": 1e3, "kib": 2.0**10, "mb": 1e6, "mib": 2.0**20}
MICROSECONDS = {"microseconds": 1.0, "us": 1.0, "µs": 1.0, "ns": 1e-3, "ms": 1e3, "s": 1e6}
TIMES = {"times": 1.0, "x": 1.0}
WORDS = "zero one two three four five six seven eight nine ten eleven twelve".split()
NUMBERS = {word: str(value) for value, word in enumerate(WORDS)} | {
    "none": "0",
    "no": "0",
    "nothing": "0",
    "once": "1",
    "twice": "2",
}


@dataclass(frozen=True)
class Measure:
    """What a question asks for, in words, and how it is found in what a lesson ran.

    A number has units, with what they are worth in the first one, and may be off by the share `within`.  What is one
    or several of some choices has these.
    """

    words: str
    find: Callable[[Any], Answer]
    among: tuple[str, ...] = ()
    units: Mapping[str, float] = field(default_factory=dict)
    within: float = 0.0


@dataclass(frozen=True)
class Wrong:
    """A wrong answer that is known, which may be another measure, and what its learner probably thought."""

    answer: float | str | Measure
    thought: str


@dataclass(frozen=True)
class Ticked:
    """A choice that is no right one, and what a learner who ticks it probably thought."""

    answer: str
    thought: str


@dataclass(frozen=True)
class Missed:
    """A choice that is right, and what a learner who does not tick it probably thought."""

    answer: str
    thought: str


@dataclass(frozen=True)
class Question:
    """A measure, of what (`of`), and what to say of answers.

    `each` names what is counted, one by one.  In all texts, ``{name}`` is a fact that `ask` gets, and ``{right}`` the
    right answer.
    """

    measure: Measure
    of: str
    because: str = ""
    each: tuple[str, ...] = ()
    wrong: tuple[Wrong | Ticked | Missed, ...] = ()
    given: str = ""
    """What is said before the question."""


@dataclass(frozen=True)
class Asked:
    """A question with the answer that was measured."""

    name: str
    text: str
    right: Answer
    because: str
    wrong: tuple[tuple[Wrong | Ticked | Missed, Answer, str], ...]
    measure: Measure

    def is_right(self, given: Answer) -> bool:
        """Whether an answer is the one that was measured, within the measure's precision."""
        return are_equal(given, self.right, self.measure.within)

    def correction(self, given: Answer) -> str:
        """Returns what is said of a wrong answer; it does not contain the right one."""
        thought = next(self._thoughts(given), "")
        if not isinstance(given, tuple):
            quoted = f"“{given}”" if isinstance(given, str) else shown(given)
            return f"Not {quoted}. {thought}".strip()
        right = set(self.right) if isinstance(self.right, tuple) else set()
        found = len({*given} & right)
        counts = f"{found} right, {len(given) - found} wrong, {len(right) - found} missing."
        return f"{counts} {thought}".strip()

    def _thoughts(self, given: Answer) -> Iterator[str]:
        """The thoughts of the known wrong answers that this answer has."""
        for known, answer, thought in self.wrong:
            is_ticked = isinstance(given, tuple) and answer in given
            if isinstance(known, Wrong):
                found = are_equal(given, answer, self.measure.within)
            else:
                found = is_ticked if isinstance(known, Ticked) else not is_ticked
            if found:
                yield f"{answer}: {thought}" if isinstance(known, Ticked) else thought


def measured(name: str, question: Question, what: object, facts: Mapping[str, object]) -> Asked:
    """Returns a question with its answer for what a lesson ran; wrong answers that are right there are left out."""
    measure = question.measure
    right = measure.find(what)
    facts_and_answer = {**facts, "right": shown(right)}
    wrong = []
    for known in question.wrong:
        answer = known.answer.find(what) if isinstance(known.answer, Measure) else known.answer
        is_right = answer in right if isinstance(right, tuple) else are_equal(answer, right, measure.within)
        if is_right == isinstance(known, Missed):
            wrong.append((known, answer, known.thought.format(**facts_and_answer)))
    each = f"Namely {'; '.join(question.each)}." if question.each and len(question.each) == right else ""
    because = f"{each} {question.because.format(**facts_and_answer)}".strip()
    text = f"{question.given} {measure.words} {question.of}?".format(**facts).strip()
    return Asked(name, text, right, because, tuple(wrong), measure)


def are_equal(one: Answer, other: Answer, within: float = 0.0) -> bool:
    """Whether two answers are the same: numbers to a share of the second, several choices in any order."""
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=max(within, 1e-9))
    if isinstance(one, tuple) and isinstance(other, tuple):
        return {*one} == {*other}
    return one == other


def number(text: str, units: Mapping[str, float]) -> float | None:
    """Returns a number as people write it, in the first of the units: ``1,024``, ``about 512 KiB``; None: it is none.

    A number without units counts something, which may be named: ``3 compiles``, ``two graphs``, ``none``.
    """
    text = re.sub(r"^(about|some|around|~|≈)\s*", "", text.strip().lower())
    text = re.sub(r"^[a-z]+", lambda found: NUMBERS.get(found[0], found[0]), text)
    found = re.fullmatch(r"([-+]?[\d., _]*\d\.?(?:e[-+]?\d+)?)\s*([a-zµμ ]*)", text)
    if not found or (units and found[2] and found[2] not in units):
        return None
    digits = re.sub(r"[ _]", "", found[1])
    is_decimal_comma = re.fullmatch(r"[-+]?\d+,(\d|\d\d|\d{4,})", digits)
    digits = digits.replace(",", "." if is_decimal_comma else "")
    try:
        return float(digits) * units.get(found[2], 1.0)
    except ValueError:
        return None


def shown(answer: Answer) -> str:
    """Returns an answer as text."""
    if isinstance(answer, tuple):
        return ", ".join(answer) or "none of them"
    return answer if isinstance(answer, str) else f"{answer:,.4g}" if answer % 1 else f"{answer:,.0f}"
