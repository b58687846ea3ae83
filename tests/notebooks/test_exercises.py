"""The exercises of the workshop: checks take right answers, and say of wrong ones what the author probably thought."""

from __future__ import annotations

import importlib
import json
import os
import re
from pathlib import Path

import pytest

from tests import warm_python
from tests.notebooks.exercises import SOURCES, versions
from tests.notebooks.graded import cells
from tests.sampling import sample

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

NAMES = [path.stem for path in SOURCES]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_committed_versions_are_those_of_the_source(source: Path) -> None:
    for path, text in versions(source).items():
        assert path.read_text(encoding="utf-8") == text, "run: python -m tests.notebooks.exercises"


@pytest.mark.parametrize("name", sample(NAMES, 3))
def test_right_answers_pass_and_wrong_ones_have_messages_that_fit(name: str) -> None:
    answers = importlib.import_module(f"tests.notebooks.answers.{name}")
    environment = os.environ | {"TRITON_INTERPRET": str(int(name.startswith("triton")))}  # as the exercise sets it
    ran = warm_python.run(["-m", "tests.notebooks.graded", name], env=environment)
    assert ran.returncode == 0, ran.stderr[-3000:]
    graded: dict[str, tuple[float, str]] = json.loads(ran.stdout.splitlines()[-1])
    messages = {answer: message for answer, (_, message) in graded.items()}
    passed = [answer for answer, (grade, _) in graded.items() if grade == 1]
    assert passed == ["solution", *answers.RIGHT], [messages[each] for each in answers.RIGHT if each not in passed]
    assert re.search(r"\d+ of \d+ cases are right\.", messages["unfinished"])
    assert {each.name: messages[each.name] for each in answers.WRONG if each.says not in messages[each.name]} == {}
    thoughts = re.findall(r'Misconception\(\s+"(.+)",\n', "\n".join(cells("source", name)))
    assert len(thoughts) >= 3
    assert [thought for thought in thoughts if not any(thought in message for message in messages.values())] == []


@pytest.mark.parametrize("name", NAMES)
def test_an_exercise_has_enough_answers(name: str) -> None:
    answers = importlib.import_module(f"tests.notebooks.answers.{name}")
    assert len(answers.RIGHT) >= 2
    assert sum(not each.code for each in answers.WRONG) >= 3
    assert len(answers.WRONG) >= 6
