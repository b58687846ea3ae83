"""Grades answers to an exercise of the workshop: ``python -m tests.notebooks.graded NAME``.

It runs the cells of the solution in a shell of IPython, then each answer of `answers/NAME.py` in the place of the
solution, and prints as JSON what the check says of each: its grade and its message.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import shutil
import sys
import tempfile
import warnings
from typing import Any

import nbformat
from IPython.core.interactiveshell import InteractiveShell

from tests.notebooks.exercises import FOLDER


def cells(version: str, name: str) -> list[str]:
    """Returns the cells of code of an exercise: the last but one has the answer, the last has or calls the check."""
    notebook = nbformat.read(FOLDER / version / f"{name}.ipynb", as_version=4)
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def texts(name: str) -> dict[str, str]:
    """Returns the text of each answer to an exercise by its name."""
    answers, solution = importlib.import_module(f"tests.notebooks.answers.{name}"), cells("solutions", name)[-2]
    own = {"solution": solution, "unfinished": cells("exercises", name)[-2]}
    wrong = {each.name: each.text(solution) for each in answers.WRONG}
    return {**own, **answers.RIGHT, **wrong}


def grades(name: str) -> dict[str, tuple[float, str]]:
    """Returns the grade and the message of each answer."""
    shell = InteractiveShell.instance()
    *given, _, check = cells("solutions", name)

    def run(source: str) -> Any:
        with contextlib.redirect_stdout(io.StringIO()):
            ran = shell.run_cell(source)
        ran.raise_error()
        return ran.result

    for source in given:
        run(source)

    def graded(answer: str) -> tuple[float, str]:
        run(answer)
        result = run(check)
        return result.grade, result.summary()

    return {answer: graded(text) for answer, text in texts(name).items()}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(FOLDER / "solutions" / f"{sys.argv[1]}.ipynb", folder)
        with contextlib.chdir(folder):
            print(json.dumps(grades(sys.argv[1])))
