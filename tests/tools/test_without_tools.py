"""The compiler is whole without the tools: no stage imports them, and the golden book's programs are right."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sampling import sample

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("step", sample([3, 1], 2))
def test_programs_are_right_where_the_tools_cannot_be_imported(step: int) -> None:
    """Each third program of every kind; the golden book's own test runs all, with the tools."""
    command = [sys.executable, "-m", "tests.tools.without_tools", str(step)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
    (count,) = re.findall(r"^0 of (\d+) programs differ$", run.stdout, re.MULTILINE)
    assert int(count) > 100 // step
