"""The questions of the workshop's lessons: their forms say whether an answer is right."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kernel_magics.workshop import form


def fill_in(question: form.Question, *answers: Any) -> list[str]:
    """Gives answers to the form of a question; returns what it says of each, then the answer that it shows."""
    text, *fields, buttons, message = form._form(question).children
    check, show = buttons.children
    assert text.value.startswith("<b>Which &lt;one&gt;?</b>")
    shown = []
    for answer in answers:
        for field in fields:
            field.value = field.description in answer if question.kind == "choices" else answer
        check.click()
        shown.append(message.value)
    assert show.layout.visibility == "visible"
    show.click()
    return [re.sub("<.*?>", "", each) for each in (*shown, message.value)]


@pytest.mark.parametrize(
    ("kind", "right", "among", "answers", "expected"),
    [
        ("number", (1024.0,), (), ["", "1,025", "1e3"], ["A number, please.", "Not 1,025.", "Not 1,000.", "1,024."]),
        ("choice", ("this",), ("other", "this"), [None, "this", "other"], ["Choose one first.", "this.", "Not other."]),
        (
            *("choices", ("that", "this"), ("other", "that", "this"), [(), ("that", "this"), ("other", "this")]),
            ["0 right, 0 wrong, 2 missing.", "that, this.", "1 right, 1 wrong, 1 missing."],
        ),
    ],
)
def test_a_question_says_whether_an_answer_is_right(
    kind: Any, right: Any, among: Any, answers: list[Any], expected: list[str]
) -> None:
    question = form.Question("Which <one>?", right, among, "", kind)
    assert [each.strip() for each in fill_in(question, *answers)][: len(expected)] == expected
