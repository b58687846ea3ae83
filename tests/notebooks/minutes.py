"""Estimates how long a person needs for each lesson of the workshop: ``python -m tests.notebooks.minutes``.

It prints the table of ``docs/classroom.md``. Nobody was timed: the estimate adds what `MINUTES` gives each part of a
lesson, with technical text read at 150 words a minute, and a line of code in 6 seconds.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import NamedTuple

import nbformat

FOLDER = Path(__file__).parents[2] / "notebooks" / "workshop"
LESSONS = sorted(FOLDER.glob("[0-9]*.ipynb"))
QUESTIONS = r"^\s*workshop\.ask\("
GRADED = r"^workshop\.grade\(.\w+/(\w+)"
VIEWS = r"^%%compile|^%(?:frames|what_if|explain|capture_methods)\b|kernel_magics\.Explorer\("
MINUTES = {"words": 1 / 150, "lines": 0.1, "cells": 0.5, "questions": 1.0, "views": 1.5, "tasks": 3.0}
"""Of each word, line of code, cell without a question, question, explorer or other view, and task of *Try it*."""


class Lesson(NamedTuple):
    """What a lesson asks of a person."""

    title: str
    words: int
    lines: int
    cells: int
    questions: int
    views: int
    tasks: int
    exercises: tuple[str, ...]
    """The names of their notebooks, and of the tasks in the lesson that are checked; their time comes on top."""

    @property
    def minutes(self) -> float:
        return sum(float(getattr(self, name)) * each for name, each in MINUTES.items())


def read(path: Path) -> Lesson:
    cells = nbformat.read(path, as_version=4).cells
    cells = [cell for cell in cells if not cell.id.startswith("toy")]  # the toy compiler is beside the lesson's time
    texts = [cell.source for cell in cells if cell.cell_type == "markdown" and not cell.source.startswith("## Task")]
    code = [cell.source for cell in cells if cell.cell_type == "code"]
    starts = [cell for cell, check in itertools.pairwise(code) if re.match(GRADED, check)]
    shown = [cell for cell in code if not re.search(f"{QUESTIONS}|{GRADED}", cell, re.MULTILINE) and cell not in starts]
    items = re.findall(r"^\d\. .*", next(text for text in texts if text.startswith("## Try it")), re.MULTILINE)
    graded = [name for cell in code for name in re.findall(GRADED, cell)]
    exercises = [name for item in items for name in re.findall(r"exercises/(\w+)\.ipynb", item)]
    return Lesson(
        texts[0].splitlines()[0].rpartition(": ")[2],
        sum(len(text.split()) for text in texts),
        sum(bool(line.strip()) for cell in shown for line in cell.splitlines()),
        len(shown),
        sum(len(re.findall(QUESTIONS, cell, re.MULTILINE)) for cell in code),
        sum(bool(re.search(VIEWS, cell, re.MULTILINE)) for cell in code),
        len(items) - len(exercises),
        (*graded, *exercises),
    )


def table() -> str:
    rows = ["| lesson | minutes | questions | tasks | exercises |", "|---|---|---|---|---|"]
    for number, path in enumerate(LESSONS, 1):
        lesson = read(path)
        counts = (5 * round(lesson.minutes / 5), lesson.questions, lesson.tasks)
        exercises = ", ".join(lesson.exercises).replace("_", " ")
        rows.append(f"| {number} {lesson.title} | {' | '.join(map(str, counts))} | {exercises} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())
