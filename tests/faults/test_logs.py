"""Logs of stock `torch.compile` have the same causes, lines, advice and grades of planted faults as live records."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import compiler_core
from compiler_core.records import Compile, Frame
from tests import warm_python
from tests.faults import from_logs
from tests.faults.checks import errors
from tests.sampling import sample


@pytest.mark.parametrize("step", sample([3, 1], 2))
def test_logs_name_the_same(step: int, tmp_path: Path) -> None:
    """One process runs all scripts."""
    from_logs.write_scripts(tmp_path, step)
    environment = os.environ | {"TORCH_TRACE": str(tmp_path / "trace"), "TORCH_LOGS": "-all"}
    ran = warm_python.run(["-m", "tests.faults.from_logs", str(tmp_path)], env=environment)
    assert ran.returncode == 0, ran.stderr
    (record,) = compiler_core.read_logs(tmp_path / "trace")
    wrong = {}
    for fault in from_logs.FAULTS[::step]:
        file = str(from_logs.file_of(fault, tmp_path))
        compiles = [c for frame in record.frames for c in frame.compiles if is_of(c, frame, file)]
        problems = [problem for problem in record.problems if problem.filename == file]
        wrong[fault.title] = errors(fault, "logs", compiles, problems)
    assert {title: why for title, why in wrong.items() if why} == {}


def is_of(compile_: Compile, frame: Frame, file: str) -> bool:
    """Whether a compile is of a file, or of a package that the file calls."""
    return file in (frame.filename, compile_.caller.filename if compile_.caller else "")
