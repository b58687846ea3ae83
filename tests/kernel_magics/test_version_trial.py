"""Tests of the trial compile on untested versions, once, in a separate process."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import kernel_magics
from compiler_core.config import cache_dir
from kernel_magics.startup import version_trial


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("CUTAWAY_CACHE_DIR", str(tmp_path))
    version_trial.core_engine_problem.cache_clear()
    yield
    version_trial.core_engine_problem.cache_clear()


@pytest.fixture
def _untested_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretends that this version of PyTorch is untested."""
    monkeypatch.setattr(version_trial, "versions", lambda: ("3.11.7", "9.9.1"))


def test_tested_versions_start_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_trial, "run_trial", lambda program: pytest.fail("tried out"))
    assert version_trial.untested_versions() == ""
    assert version_trial.version_notice() == ""
    assert version_trial.core_engine_problem() == ""


@pytest.mark.usefixtures("_untested_torch")
def test_new_version_is_tried_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    output = version_trial.version_notice()
    assert output == "PyTorch 9.9.1 is not tested with this version of Cutaway; a trial compile succeeded"
    (kept,) = cache_dir().glob("engines/*.json")
    assert kept.stem == hashlib.sha256(b"Python 3.11.7, PyTorch 9.9.1").hexdigest()
    version_trial.core_engine_problem.cache_clear()
    monkeypatch.setattr(version_trial, "run_trial", lambda program: pytest.fail("tried out again"))
    assert version_trial.core_engine_problem() == ""


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("import os; os.abort()", "crashed with signal 6"),
        ("raise ImportError('no such hook')", "ImportError: no such hook"),
        ("import sys; sys.exit(3)", "the trial failed"),
        ("", ""),
    ],
)
def test_whatever_the_trial_does_is_one_line(program: str, says: str) -> None:
    reason = version_trial.run_trial(program)
    assert says in reason
    assert "\n" not in reason
    assert bool(says) == bool(reason)


def test_trial_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_trial, "TIMEOUT_S", 0.5)
    assert "did not end within" in version_trial.run_trial("import time; time.sleep(60)")


@pytest.mark.usefixtures("_untested_torch")
def test_cells_run_as_plain_python_where_no_engine_works(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version_trial, "PROGRAM", "import os; os.abort()")
    for name in ("api", "backends"):
        monkeypatch.setitem(sys.modules, f"compiler_core.{name}", None)  # as if PyTorch lacked what they import
    with capture_output() as output:
        shell.run_line_magic("load_ext", "kernel_magics")
        result = shell.run_cell("%%compile\nimport torch\nx = torch.ones(2).cos()\nx.shape[0] + 1")
    assert "PyTorch 9.9.1 is not tested with this version of Cutaway, and the core engine" in output.stdout
    assert result.result == 3
    record = kernel_magics.last_record()
    assert record.compiles == []
    assert record.notes == [
        "The cell ran as plain Python: the core engine does not work here (the trial crashed with signal 6)."
    ]


@pytest.mark.usefixtures("_untested_torch")
def test_damaged_or_unwritable_cache_costs_a_trial_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(version_trial, "PROGRAM", "")
    assert version_trial.core_engine_problem() == ""
    (kept,) = cache_dir().glob("engines/*.json")
    kept.write_text("{")
    version_trial.core_engine_problem.cache_clear()
    assert version_trial.core_engine_problem() == ""
    assert kept.read_bytes() != b"{"
    version_trial.core_engine_problem.cache_clear()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CUTAWAY_CACHE_DIR", str(tmp_path / "file" / "below"))
    assert version_trial.core_engine_problem() == ""
