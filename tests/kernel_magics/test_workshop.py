"""The questions of the lessons: their forms say whether an answer is right, or what its learner probably thought."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kernel_magics.workshop import form
from kernel_magics.workshop.measures import BYTES_READ, COMPILES
from kernel_magics.workshop.question import BYTES, Asked, Measure, Missed, Question, Ticked, Wrong, measured, number
from kernel_magics.workshop.questions import QUESTIONS

NUMBER = Question(
    Measure("How many <bytes>", float, units=BYTES),
    "are there",
    "{rows} rows.",
    wrong=(
        Wrong(1025, "One too many for {rows} rows."),
        Wrong(Measure("", lambda right: right / 4), "These are elements."),
        Wrong(1024, "This is never said."),
    ),
)
CHOICE = Question(Measure("What", str, ("other", "this")), "is it", wrong=(Wrong("other", "It is not `that`."),))
CHOICES = Question(
    Measure("Which", tuple, ("other", "that", "this")),
    "are these",
    wrong=(Ticked("other", "Not the other."), Missed("that", "That, too."), Ticked("that", "This is never said.")),
)


def fill_in(question: Asked, *answers: Any) -> list[str]:
    """Gives answers to the form of a question; returns what it says of each, then the answer that it shows."""
    text, *fields, buttons, message = form._form(question).children
    check, show = buttons.children
    assert text.value.startswith(f"<b>{question.measure.words.replace('<', '&lt;').replace('>', '&gt;')}")
    shown = []
    for answer in answers:
        for field in fields:
            field.value = field.description in answer if isinstance(answer, tuple) else answer
        check.click()
        shown.append(message.value)
    assert show.layout.visibility == "visible"
    show.click()
    return [re.sub("</?span.*?>", "", each).strip() for each in (*shown, message.value)]


FORMS: list[tuple[Question, Any, dict[Any, str], str]] = [
    (
        NUMBER,
        1024.0,
        {
            "": "A number of bytes, please.",
            "1,025": "Not 1,025. One too many for 8 rows.",
            "256": "Not 256. These are elements.",
            "1e3": "Not 1,000.",
        },
        "1,024. 8 rows.",
    ),
    (
        CHOICE,
        "this",
        {None: "Choose one first.", "this": "this.", "other": "Not “other”. It is not <code>that</code>."},
        "this.",
    ),
    (
        CHOICES,
        ("that", "this"),
        {
            (): "0 right, 0 wrong, 2 missing. That, too.",
            ("that", "this"): "that, this.",
            ("other", "this"): "1 right, 1 wrong, 1 missing. other: Not the other.",
            ("this",): "1 right, 0 wrong, 1 missing. That, too.",
        },
        "that, this.",
    ),
]
"""Questions, their right answers, what is said of answers, and of the right one."""


@pytest.mark.parametrize(("question", "right", "answers", "solution"), FORMS)
def test_a_question_says_whether_an_answer_is_right(
    question: Question, right: Any, answers: dict[Any, str], solution: str
) -> None:
    assert fill_in(measured("name", question, right, {"rows": 8}), *answers) == [*answers.values(), solution]


NUMBERS: dict[str, float] = {
    "524,288": 524_288,
    "512 KiB": 524_288,
    "0.5 MiB": 524_288,
    "524.288 kB": 524_288,
    "5e3 bytes": 5_000,
    "about 2 KiB": 2_048,
    "zero": 0,
    "none": 0,
}
NUMBERS |= {"1.5": 1.5, "1,5": 1.5, "1,234.5": 1_234.5, "400_000": 400_000, "400 000": 400_000, "-2": -2}
NO_NUMBERS = ("", "many", "5 apples", "1.2.3")


@pytest.mark.parametrize(("text", "value"), [*NUMBERS.items(), *((text, None) for text in NO_NUMBERS)])
def test_a_number_is_read_as_people_write_it(text: str, value: float | None) -> None:
    assert number(text, BYTES) == value


def test_what_a_number_counts_may_be_named() -> None:
    texts = ("3", "3 compiles", "three", "Two graphs", "none", "no kernel", "once", "3 or 4", "thirty")
    assert [number(text, {}) for text in texts] == [3, 3, 3, 2, 0, 0, 1, None, None]


@pytest.mark.parametrize(
    ("given", "is_right"), [("524 KB", True), ("0.524 MB", True), ("514 KiB", False), ("2 KiB", False)]
)
def test_bytes_may_be_rounded_and_are_not_those_of_another_measure(given: str, is_right: bool) -> None:
    asked = Asked("kernels/read", "", 524_288, "", (), BYTES_READ)
    assert asked.is_right(number(given, BYTES) or 0) is is_right


@pytest.mark.parametrize(("given", "is_right"), [("1.02", True), ("1.0", True), ("1.0204x", True), ("1.1", False)])
def test_a_measured_number_may_have_any_sensible_precision(given: str, is_right: bool) -> None:
    asked = measured("name", QUESTIONS["step/bound"], 1 / (1 - 0.02), {"share": 0.02})
    answer = number(given, asked.measure.units)
    assert answer is not None
    assert asked.is_right(answer) is is_right


def test_each_question_knows_two_wrong_answers_which_can_be_given() -> None:
    assert [name for name, question in QUESTIONS.items() if len(question.wrong) < 2] == []
    with_choices = {name: each for name, each in QUESTIONS.items() if each.measure.among}
    answers = [(name, known.answer) for name, each in with_choices.items() for known in each.wrong]
    assert [(name, answer) for name, answer in answers if answer not in QUESTIONS[name].measure.among] == []


def test_what_is_counted_is_named_one_by_one_only_where_the_number_is_that() -> None:
    question = Question(COMPILES, "are there", "Sizes are guarded.", each=("for 4", "for 8"))
    records = [type("Record", (), {"compiles": range(count)}) for count in (2, 3)]
    becauses = [measured("name", question, record, {}).because for record in records]
    assert becauses == ["Namely for 4; for 8. Sizes are guarded.", "Sizes are guarded."]
