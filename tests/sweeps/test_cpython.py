"""CPython's own tests of some modules, over rewritten and captured functions.  `make cpython-tests` runs them all."""

from __future__ import annotations

import importlib.util

import pytest

from tests.sweeps.cpython import run


@pytest.mark.skipif(importlib.util.find_spec("test.test_bisect") is None, reason="this Python has no tests of its own")
@pytest.mark.parametrize("module", run.QUICK)
def test_module(module: str) -> None:
    before = run.run_module(module, "plain")
    assert before.tests > 5
    assert not before.faults
    for mode in ("rewritten", "captured"):
        outcome, wrong = run.broken(module, mode, before)
        assert not wrong, wrong[0]
        assert outcome.functions > 3
