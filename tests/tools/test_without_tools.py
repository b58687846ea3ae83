"""The compiler is whole without the tools: no stage imports them, and the golden book's programs are right."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_programs_are_right_where_the_tools_cannot_be_imported() -> None:
    command = [sys.executable, "-m", "tests.tools.without_tools"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
    (count,) = re.findall(r"^0 of (\d+) programs differ$", run.stdout, re.MULTILINE)
    assert int(count) > 100
