"""The exercises of the workshop: checks take right answers, and say of wrong ones what the author probably thought."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell

from tests.notebooks.exercises import FOLDER, SOURCES, versions

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

NAMES = [path.stem for path in SOURCES if Path(__file__).with_name("answers").joinpath(f"{path.stem}.py").exists()]


@pytest.fixture
def run(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Any]:
    """Returns a function that runs a cell and returns its result."""

    def run_cell(source: str) -> Any:
        ran = shell.run_cell(source)
        assert ran.success, source
        return ran.result

    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setenv("TRITON_INTERPRET", "0")  # so that what the exercise sets is undone
    monkeypatch.chdir(tmp_path)
    return run_cell


def cells(version: str, name: str) -> list[str]:
    """Returns the cells of code of an exercise: the last but one has the answer, the last has or calls the check."""
    notebook = nbformat.read(FOLDER / version / f"{name}.ipynb", as_version=4)
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_committed_versions_are_those_of_the_source(source: Path) -> None:
    for path, text in versions(source).items():
        assert path.read_text(encoding="utf-8") == text, "run: python -m tests.notebooks.exercises"


@pytest.mark.parametrize("name", NAMES)
def test_right_answers_pass_and_wrong_ones_have_messages_that_fit(
    name: str, run: Callable[[str], Any], tmp_path: Path
) -> None:
    answers = importlib.import_module(f"tests.notebooks.answers.{name}")
    *given, solution, check = cells("solutions", name)
    (tmp_path / f"{name}.ipynb").write_bytes((FOLDER / "solutions" / f"{name}.ipynb").read_bytes())
    for source in given:
        run(source)

    def graded(answer: str) -> Any:
        run(answer)
        return run(check)

    for right, text in {"solution": solution, **answers.RIGHT}.items():
        assert graded(text).grade == 1, f"{right}: {graded(text).summary()}"
    unfinished = graded(cells("exercises", name)[-2])
    assert unfinished.grade < 1
    assert re.search(r"\d+ of \d+ cases are right\.", unfinished.summary())
    results = {each.name: graded(each.text(solution)) for each in answers.WRONG}
    assert [name for name, result in results.items() if result.grade == 1] == []
    messages = {name: result.summary() for name, result in results.items()}
    assert {each.name: messages[each.name] for each in answers.WRONG if each.says not in messages[each.name]} == {}
    thoughts = re.findall(r'Misconception\(\s+"(.+)",\n', "\n".join(cells("source", name)))
    assert len(thoughts) >= 3
    assert [thought for thought in thoughts if not any(thought in message for message in messages.values())] == []
    thoughts = re.findall(r'Misconception\(\s+"(.+)",\n', "\n".join(cells("source", name)))
    assert len(thoughts) >= 3
    assert [thought for thought in thoughts if not any(thought in message for message in messages.values())] == []


@pytest.mark.parametrize("name", NAMES)
def test_an_exercise_has_enough_answers(name: str) -> None:
    answers = importlib.import_module(f"tests.notebooks.answers.{name}")
    assert len(answers.RIGHT) >= 2
    assert sum(not each.code for each in answers.WRONG) >= 3
    assert len(answers.WRONG) >= 6
