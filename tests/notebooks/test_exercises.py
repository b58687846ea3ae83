"""The exercises of the workshop: the untouched student version fails its checks, the solution passes them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell

from kernel_magics.workshop import checks
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
    checks.compare({"a": 1}, {"a": 1})
    with pytest.raises(AssertionError, match=r"1 of 3 are right\.\nb: yours 2, reference 3\nc: yours None, reference"):
        checks.compare({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": "x" * 1000})
