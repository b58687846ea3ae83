"""The exercises of the workshop: the untouched student version fails its checks, the solution passes them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell

from kernel_magics import workshop
from tests.notebooks.exercises import FOLDER, SOURCES, versions

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def run(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns a function that runs a notebook and returns the result of its last cell, which runs the checks."""

    def run_notebook(path: Path, folder: Path) -> Any:
        (folder / path.name).write_bytes(path.read_bytes())
        monkeypatch.chdir(folder)
        cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
        for cell in cells:
            ran = shell.run_cell(cell.source)
            assert ran.success, cell.source
        return ran.result

    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setenv("TRITON_INTERPRET", "0")  # so that what the exercise sets is undone
    return run_notebook


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_committed_versions_are_those_of_the_source(source: Path) -> None:
    for path, text in versions(source).items():
        assert path.read_text(encoding="utf-8") == text, "run: python -m tests.notebooks.exercises"


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_student_version_fails_and_the_solution_passes(source: Path, run: Any, tmp_path: Path) -> None:
    student = run(FOLDER / "exercises" / source.name, tmp_path)
    assert student.grade < 1
    assert re.search(r"\d of \d are right\.\n.*: yours .*, reference ", student.summary())
    solution = run(FOLDER / "solutions" / source.name, tmp_path)
    assert solution.grade == 1, solution.summary()


def test_a_comparison_shows_the_learner_s_values_beside_the_reference() -> None:
    workshop.compare({"a": 1}, {"a": 1})
    with pytest.raises(AssertionError, match=r"1 of 3 are right\.\nb: yours 2, reference 3\nc: yours None, reference"):
        workshop.compare({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": "x" * 1000})


def fill_in(question: workshop.Question, *answers: Any) -> list[str]:
    """Gives answers to the form of a question; returns what it says of each, then the answer that it shows."""
    text, *fields, buttons, message = workshop._form(question).children
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
    question = workshop.Question("Which <one>?", right, among, "", kind)
    assert [each.strip() for each in fill_in(question, *answers)][: len(expected)] == expected
