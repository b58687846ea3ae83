"""The tasks of the lessons: right answers are accepted, and wrong ones refused with a message that fits."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import Any

import nbformat
import pytest
import torch

from kernel_magics.workshop.tasks import TASKS, capture, grade, kernels
from tests.notebooks.minutes import LESSONS
from tests.notebooks.wrong_tasks import OTHER_RIGHT, WRONG
from tests.sampling import sample

assert {*capture.TASKS, *kernels.TASKS} == {*TASKS}


def cells_of_tasks() -> Iterator[tuple[str, str, str]]:
    """The name of each task, the text of its cell, and the code that the learner begins with."""
    for lesson in LESSONS:
        cells = nbformat.read(lesson, as_version=4).cells
        for text, start, check in zip(cells, cells[1:], cells[2:], strict=False):
            found = re.fullmatch(r'workshop\.grade\("([\w/]+)", (\w+)\)', check.source)
            if found:
                yield found[1], text.source, start.source


TEXTS = {name: text for name, text, _ in cells_of_tasks()}
STARTS = {name: start for name, _, start in cells_of_tasks()}


def made(code: str) -> Callable[..., Any]:
    """Runs code, and returns the last function that it defines, with the functions of the lessons that it needs."""

    def clip(v: torch.Tensor) -> torch.Tensor:
        return v / v.norm() if v.norm() > 1 else v

    names: dict[str, Any] = {"torch": torch, "clip": clip}
    exec(compile(code, "answer.py", "exec"), names)
    last = [each.name for each in ast.parse(code).body if isinstance(each, ast.FunctionDef)][-1]
    function: Callable[..., Any] = names[last]
    return function


def solution(name: str) -> str:
    (code,) = re.findall(r"```python\n(.*?)```", TEXTS[name], re.DOTALL)
    return str(code)


def test_each_task_is_in_a_lesson() -> None:
    assert sorted(TEXTS) == sorted(TASKS) == sorted(WRONG) == sorted(OTHER_RIGHT)


@pytest.mark.parametrize("name", TASKS)
def test_the_solution_of_the_lesson_is_accepted_and_what_it_begins_with_is_not(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    grade(name, made(solution(name)))
    assert re.fullmatch(r"All \d+ cases are right\.\n", capsys.readouterr().out)
    assert "cases are right." in TASKS[name].check(made(STARTS[name]))
    assert not TASKS[name].check(made(STARTS[name])).startswith("All")


@pytest.mark.parametrize(("name", "code"), OTHER_RIGHT.items(), ids=OTHER_RIGHT)
def test_another_right_answer_is_accepted(name: str, code: str) -> None:
    assert re.fullmatch(r"All \d+ cases are right\.", TASKS[name].check(made(code)))


@pytest.mark.parametrize(
    ("name", "code", "thought"),
    sample([(name, code, thought) for name, answers in WRONG.items() for thought, code in answers.items()], 3),
)
def test_a_wrong_answer_is_refused_with_what_its_learner_probably_thought(name: str, code: str, thought: str) -> None:
    assert thought in TASKS[name].check(made(code))


@pytest.mark.parametrize("name", TASKS)
def test_each_misconception_has_a_wrong_answer(name: str) -> None:
    assert len(WRONG[name]) >= 6
    thoughts = [each.thought for each in TASKS[name].misconceptions]
    assert [thought for thought in thoughts if not any(each in thought for each in WRONG[name])] == []


def mutations(code: str) -> Iterator[str]:
    """Solutions with one statement left out, where what is left is Python."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        for field in ("body", "orelse"):
            body = getattr(node, field, None)
            if not isinstance(body, list) or node is tree:
                continue
            for at, statement in enumerate(body):
                if isinstance(statement, ast.FunctionDef):
                    continue
                body[at] = ast.Pass()
                yield ast.unparse(tree)
                body[at] = statement


@pytest.mark.parametrize("name", TASKS)
def test_solutions_without_one_of_their_statements_are_refused(name: str) -> None:
    mutated = list(mutations(solution(name)))
    assert len(mutated) >= 2
    accepted = [code for code in mutated if TASKS[name].check(made(code)).startswith("All")]
    assert accepted == []
