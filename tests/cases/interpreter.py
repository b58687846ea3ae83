"""Triton's interpreter is chosen when Triton is imported, so what runs in it has a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType


def verdicts_of(cases: ModuleType) -> dict[str, str]:
    """What `cases`, which prints a verdict for each of its cases as JSON, says in the interpreter."""
    root = Path(__file__).parents[2]
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(root), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, str(cases.__file__)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    verdicts: dict[str, str] = json.loads(done.stdout)
    return verdicts
