"""Makes the student and solution versions of the workshop's exercises: ``python -m tests.notebooks.exercises``.

`notebooks/workshop/source` has a notebook for each exercise, in the format of otter-grader's `otter assign`: its text,
solution and checks.  Of each this makes `exercises/NAME.ipynb`, without the solution, and `solutions/NAME.ipynb`; in
both, the last cell runs the checks.
"""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from pathlib import Path

import nbformat

FOLDER = Path(__file__).parents[2] / "notebooks" / "workshop"
MARKS = re.compile(r'( *""" # BEGIN PROMPT.*?# END PROMPT| *# (BEGIN|END) SOLUTION[A-Z ]*)\n?', re.DOTALL)
SOURCES = sorted((FOLDER / "source").glob("*.ipynb"))


def versions(source: Path) -> dict[Path, str]:
    """Returns the text of both versions of an exercise, by the files that they belong in."""
    from otter.assign import main as assign

    with tempfile.TemporaryDirectory() as made, contextlib.redirect_stdout(io.StringIO()):
        assign(source, made, no_run_tests=True)
        student, solution = Path(made, "student", source.name), Path(made, "autograder", source.name)
        return {
            FOLDER / "exercises" / source.name: _tidy(student),
            FOLDER / "solutions" / source.name: _tidy(solution),
        }


def _tidy(path: Path) -> str:
    """Returns a notebook with the ids and metadata that the repository has, and without the marks of the source."""
    notebook = nbformat.read(path, as_version=4)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = {}
        cell.source = MARKS.sub("", cell.source)
    notebook.metadata = {name: notebook.metadata[name] for name in ("kernelspec", "language_info", "otter")}
    notebook.nbformat_minor = 5
    return str(nbformat.writes(notebook)) + "\n"


if __name__ == "__main__":
    for each in SOURCES:
        for file, text in versions(each).items():
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
