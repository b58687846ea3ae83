"""Runs CPython's tests of some modules with rewritten and captured functions; `make cpython-tests` runs all."""

from __future__ import annotations

import importlib.util

import pytest

from tests.sampling import sample
from tests.sweeps.cpython import run

pytestmark = pytest.mark.slow


@pytest.mark.skipif(
    importlib.util.find_spec("test.test_bisect") is None, reason="this Python was installed without its tests"
)
@pytest.mark.parametrize("module", sample(run.QUICK, 2))
def test_module(module: str) -> None:
    before = run.run_module(module, "plain")
    assert before.tests > 5
    assert not before.faults
    for mode in ("rewritten", "captured"):
        outcome, wrong = run.broken(module, mode, before)
        assert not wrong, wrong[0]
        assert outcome.functions > 3
