"""The lessons of the workshop, run one after another in one kernel: each runs without an error, as do the magics that
its tasks name, and its questions have the answers that the text expects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

from kernel_magics.workshop.question import are_equal
from kernel_magics.workshop.questions import QUESTIONS
from tests.limits import HANG_S
from tests.notebooks import minutes, teacher
from tests.notebooks.minutes import LESSONS
from tests.notebooks.second_ways import SECOND_WAYS
from tests.sampling import sample

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
ASK = re.compile(r'workshop\.ask\("([\w/]+)"')
"""How a cell asks a question."""

SMALLER = {
    "torch.randn(3000, 4000)": "torch.randn(100, 1000)",
    "seconds=0.5": "seconds=0.1",
}
"""What is measured here is smaller, and for a shorter time, than in the lessons."""

WRITE = "run `python -m tests.notebooks.teacher`"

SECOND = """
import sys
sys.path.insert(0, ROOT)
from tests.notebooks.second_ways import SECOND_WAYS
print("\\n" + json.dumps({each.name: SECOND_WAYS[each.name](globals()) for each in workshop.asked}))
"""
"""Prints the answers to the questions that were asked by a second way."""


@pytest.fixture(scope="module")
def kernel(warm_kernels: None) -> Iterator[BlockingKernelClient]:
    manager, client = start_new_kernel(
        kernel_name="python3",
        startup_timeout=HANG_S,
        extra_arguments=["--log-level=ERROR"],
        cwd=str(minutes.FOLDER),  # as JupyterLab does: lessons import the toy compiler
    )
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def run(kernel: BlockingKernelClient, code: str) -> str:
    """Runs a cell and returns what it printed; an exception of the cell is an error of the test."""
    printed: list[str] = []

    def note(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream":
            printed.append(message["content"]["text"])

    reply = kernel.execute_interactive(code, timeout=HANG_S, output_hook=note)["content"]
    assert reply["status"] == "ok", code + "\n" + "\n".join(reply["traceback"])
    return "".join(printed)


def smaller(source: str) -> str:
    for text, instead in SMALLER.items():
        source = source.replace(text, instead)
    return source


def differing(answers: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Returns both answers to each question of which they differ: numbers by more than a per cent."""

    def hashable(answer: Any) -> Any:
        return tuple(answer) if isinstance(answer, list) else answer

    pairs = {name: (hashable(answer), hashable(others[name])) for name, answer in answers.items()}
    return {name: pair for name, pair in pairs.items() if not are_equal(*pair, 0.01)}


def planted(answer: Any) -> Any:
    """Returns a wrong answer: another number, another choice, one choice less or more."""
    if isinstance(answer, list):
        return answer[1:] or ["another"]
    return f"not {answer}" if isinstance(answer, str) else answer * 1.05 + 1


@pytest.mark.parametrize("lesson", sample(LESSONS, 3), ids=lambda path: path.stem)
def test_a_lesson_runs_and_its_questions_have_the_answers_of_a_second_way(
    kernel: BlockingKernelClient, lesson: Path
) -> None:
    cells = nbformat.read(lesson, as_version=4).cells
    code = [smaller(cell.source) for cell in cells if cell.cell_type == "code"]
    for source in code:
        run(kernel, source)
    for magic in re.findall(r"`(%[a-z]\w* [^`]+)`", cells[-1].source):  # of the tasks at the end
        run(kernel, next(source for source in code if source.startswith("%%compile")))
        run(kernel, magic)
    asked = json.loads(run(kernel, teacher.ASKED).splitlines()[-1])
    printed = run(kernel, SECOND.replace("ROOT", repr(str(ROOT)))).splitlines()
    answers = {each["name"]: each["right"] for each in asked}
    others = json.loads(next(line for line in printed if line.startswith("{")))
    run(kernel, "workshop.asked.clear()\n%reset -f")
    assert {each["name"] for each in asked if len(each["wrong"]) < 2} == set()
    counted = {name: (answers[name], len(QUESTIONS[name].each)) for name in answers if QUESTIONS[name].each}
    assert {name: pair for name, pair in counted.items() if pair[0] != pair[1]} == {}, "not named one by one"
    page = teacher.PAGE.read_text(encoding="utf-8")
    assert [each["name"] for each in asked if teacher.block(each) not in page] == [], WRITE
    assert list(answers) == [name for source in code for name in ASK.findall(source)]
    assert differing(answers, others) == {}
    assert differing({name: planted(answer) for name, answer in answers.items()}, others).keys() == answers.keys()


def test_plans_take_as_long_as_they_say() -> None:
    page = teacher.PAGE.read_text(encoding="utf-8")
    assert [way.title for way in teacher.WAYS if teacher.plan(way) not in page] == [], WRITE
    lessons = {way.title: sum(minutes.read(LESSONS[at - 1]).minutes for at in way.lessons) for way in teacher.WAYS}
    assert lessons["A day"] < 300
    assert lessons["Half a day"] < 200
    assert lessons["Two hours"] < 120


def test_each_question_is_asked_once_and_has_a_second_way() -> None:
    cells = [cell for lesson in LESSONS for cell in nbformat.read(lesson, as_version=4).cells]
    assert sorted(name for cell in cells for name in ASK.findall(cell.source)) == sorted(QUESTIONS)
    assert sorted(SECOND_WAYS) == sorted(QUESTIONS)


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_the_committed_lessons_have_no_outputs(lesson: Path) -> None:
    cells = [c for c in nbformat.read(lesson, as_version=4).cells if c.cell_type == "code"]
    assert not any(c.outputs or c.execution_count for c in cells)


def test_each_lesson_shows_the_toy_beside_the_real_stage_in_the_explorer() -> None:
    shown = {
        lesson.stem
        for lesson in LESSONS
        for cell in nbformat.read(lesson, as_version=4).cells
        if cell.id == "toy-run" and re.search(r"^kernel_magics\.Explorer\(.*, beside=record\)$", cell.source, re.M)
    }
    assert shown == {lesson.stem for lesson in LESSONS} - {"11_stock"}


def test_a_lesson_takes_a_person_20_to_40_minutes_by_the_estimate() -> None:
    estimates = {lesson.stem: minutes.read(lesson).minutes for lesson in LESSONS}
    assert {name: estimate for name, estimate in estimates.items() if not 20 <= estimate <= 40} == {}
    page = Path(__file__).parents[2] / "docs" / "classroom.md"
    assert minutes.table() in page.read_text(encoding="utf-8"), "copy what `python -m tests.notebooks.minutes` prints"
