"""Writes the page for teachers of the workshop, `docs/teacher.md`: ``python -m tests.notebooks.teacher``.

Plans with the minutes of `minutes.py`; for each lesson its questions, their answers as the lesson's run measured them,
what to say then, and the wrong answers that are known.  It runs all lessons, which takes two minutes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
from nbclient import NotebookClient

from kernel_magics.workshop.question import shown
from kernel_magics.workshop.tasks import TASKS
from tests.notebooks import minutes
from tests.notebooks.minutes import LESSONS

PAGE = Path(__file__).parents[2] / "docs" / "teacher.md"
TASK_MINUTES = 10
BREAK_MINUTES, LUNCH_MINUTES = 15, 60
ASKED = """
import json
from kernel_magics import workshop
from kernel_magics.workshop.measures import DURATION, SPEEDUP
print("\\n" + json.dumps([
    {
        "name": each.name,
        "text": each.text,
        "right": each.right,
        "because": each.because,
        "wrong": [[type(known).__name__, answer, thought] for known, answer, thought in each.wrong],
        "depends": each.measure in (DURATION, SPEEDUP),  # of the machine
    }
    for each in workshop.asked
]))
"""
"""Prints the questions that a lesson has asked."""


class Way(NamedTuple):
    """A way through the workshop: its lessons, of which these have time for their tasks."""

    title: str
    text: str
    lessons: tuple[int, ...]
    with_tasks: tuple[int, ...]
    starts: str = "9:00"


WAYS = (
    Way(
        "A day",
        "Bytecode (2), sizes (9), the whole step (10) and stock's logs (11) are for reading afterwards.",
        (1, 3, 4, 5, 6, 7, 8),
        (1, 3, 4, 5, 6, 7, 8),
    ),
    Way(
        "Half a day",
        "From the frame to fusion, with two tasks. Lesson 6 is about memory in training.",
        (1, 3, 4, 6, 7),
        (1, 4),
    ),
    Way("Two hours", "Why code is compiled again, and why graphs break: what most people come for.", (1, 3, 4), ()),
)

HEAD = f"""# For the teacher

Plans, answers, and what people often answer instead. [A class](classroom.md) says how to set up the room.
`python -m tests.notebooks.teacher` writes this page: a run of the lessons measured the answers.

## Plans

The minutes of a lesson are [the estimate](classroom.md#plan-the-day) for a person who works alone. Nobody was timed.
A task or an exercise has {TASK_MINUTES} minutes. Times of day are examples.
"""

AT_A_QUESTION = """## At each question

1. Read the question aloud. Let everybody write an answer before anybody presses a key.
2. Ask for hands by answer. The wrong answers below are those to wait for. Ask one person each why.
3. Run the next cell, which shows the record, and say what is behind the answer here. If a pane is covered, uncover it.
"""


def block(asked: dict[str, Any]) -> str:
    """Returns the part of the page about a question: its answer, what to say, and known wrong answers."""
    right = tuple(asked["right"]) if isinstance(asked["right"], list) else asked["right"]
    answer = "Depends on the machine." if asked["depends"] else f"**{shown(right)}.** {asked['because']}".strip()
    ways = {"Wrong": "{}: ", "Ticked": "ticks *{}*: ", "Missed": "leaves out *{}*: "}
    wrong = [] if asked["depends"] else asked["wrong"]
    lines = [f"- {ways[kind].format(shown(value))}{thought}" for kind, value, thought in wrong]
    return "\n".join([f"{asked['text']} {answer}", "", *lines])


def plan(path: Way) -> str:
    """Returns the timetable of a path, with a break after each second lesson and lunch in the middle of a day."""
    now, rows = datetime.strptime(path.starts, "%H:%M"), ["| time | minutes | |", "|---|---|---|"]

    def add(length: int, text: str) -> None:
        nonlocal now
        rows.append(f"| {now:%H:%M} | {length} | {text} |")
        now += timedelta(minutes=length)

    for place, number in enumerate(path.lessons):
        if place and place % 2 == 0 and len(path.lessons) > 3:
            is_lunch = place == 4 and len(path.lessons) > 6
            add(LUNCH_MINUTES if is_lunch else BREAK_MINUTES, "lunch" if is_lunch else "break")
        lesson = minutes.read(LESSONS[number - 1])
        add(5 * round(lesson.minutes / 5), f"lesson {number}: {lesson.title}")
        if number in path.with_tasks and lesson.exercises:
            name = lesson.exercises[0].replace("_", " ")
            add(TASK_MINUTES, f"its task or exercise: {name}")
    return "\n".join([f"### {path.title}", "", f"Until {now:%H:%M}. {path.text}", "", *rows])


def questions_of(lesson: Path) -> list[dict[str, Any]]:
    """Runs a lesson and returns the questions that it asked."""
    notebook = nbformat.read(lesson, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(ASKED))
    resources = {"metadata": {"path": str(lesson.parent)}}
    NotebookClient(
        notebook, kernel_name="python3", extra_arguments=["--log-level=ERROR"], timeout=600, resources=resources
    ).execute()
    printed = "".join(output.get("text", "") for output in notebook.cells[-1].outputs)
    return list(json.loads(printed.strip().splitlines()[-1]))


def task_of(lesson: Path) -> Iterator[str]:
    """The parts of the page about the tasks of a lesson."""
    for name in TASKS:
        if f'grade(\\"{name}\\"' in lesson.read_text(encoding="utf-8"):
            thoughts = [f"- {each.thought}".replace("\n", " ") for each in TASKS[name].misconceptions]
            yield "\n".join([f"Task `{name}`. What is said of wrong answers that are known:", "", *thoughts])


def page(asked: Sequence[list[dict[str, Any]]]) -> str:
    parts = [HEAD, *map(plan, WAYS), AT_A_QUESTION.rstrip()]
    for number, (lesson, questions) in enumerate(zip(LESSONS, asked, strict=True), 1):
        parts.append(f"## Lesson {number}: {minutes.read(lesson).title}")
        parts += [*map(block, questions), *task_of(lesson)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page([questions_of(lesson) for lesson in LESSONS]), encoding="utf-8")
