"""Triton's interpreter is chosen when Triton is imported, so a separate process runs it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import ModuleType

from tests import warm_python


def verdicts_of(cases: ModuleType, *names: str) -> dict[str, str]:
    """What `cases`, which prints verdicts as JSON, says in the interpreter on its cases of these names, or on all."""
    root = Path(__file__).parents[2]
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(root), "PYTHONWARNINGS": "ignore"}
    done = warm_python.run([str(cases.__file__), *names], env=environment)
    assert done.returncode == 0, done.stderr
    verdicts: dict[str, str] = json.loads(done.stdout)
    return verdicts
