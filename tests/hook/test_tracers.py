"""Compiled functions under PyTorch's tracers, transforms and modes, in a process of their own: some have ended it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_tracers(backend: str) -> None:
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "tests.hook.case_tracers", backend]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout.splitlines()[-1:]}\n{done.stderr[-3000:]}"
