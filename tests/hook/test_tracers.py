"""Compiled functions under PyTorch's tracers, transforms and modes, in a separate process: some have crashed it."""

from __future__ import annotations

import os

import pytest

from tests import warm_python
from tests.sampling import sample


@pytest.mark.parametrize("backend", sample(["eager", "aot_eager"], 2))
def test_tracers(backend: str) -> None:
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = warm_python.run(["-m", "tests.hook.case_tracers", backend], env=environment)
    assert done.returncode == 0, f"{done.stdout.splitlines()[-1:]}\n{done.stderr[-3000:]}"
