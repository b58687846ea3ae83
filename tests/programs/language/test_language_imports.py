# mypy: ignore-errors
# ruff: noqa: F401
"""Imports inside compiled functions: a module that is not loaded yet is imported where the program does it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch

import compiler_core

LOG = []
MODULE = f"""
from {__name__} import LOG
LOG.append("imported")
factor = len(LOG)
"""


def at_the_start(x):
    import imported_late

    return x * imported_late.factor


def after_an_operation_and_a_change(x):
    y = x.sin()
    LOG.append("before")
    from imported_late import factor

    return y * factor


def importing(x):
    import imported_late as late

    return x * late.factor


def in_a_called_function(x):
    return importing(x.cos()) + 1


def one_that_is_caught(x):
    try:
        import imported_never
    except ImportError:
        LOG.append("caught")
    from imported_package import part

    return x * part.factor


def below_a_package(x):
    from imported_package import part

    return x * part.factor


PROGRAMS = [
    at_the_start,
    after_an_operation_and_a_change,
    in_a_called_function,
    one_that_is_caught,
    below_a_package,
]


@pytest.fixture(autouse=True)
def _modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "imported_late.py").write_text(MODULE)
    (tmp_path / "imported_package").mkdir()
    (tmp_path / "imported_package" / "__init__.py").write_text("")
    (tmp_path / "imported_package" / "part.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    unload()


def unload():
    LOG.clear()
    for name in [name for name in sys.modules if name.startswith("imported_")]:
        del sys.modules[name]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_module_that_is_not_loaded_yet(program):
    """The first call breaks the graph, the others are one graph unless an import fails each time."""

    def calls(called):
        unload()
        return [(called(torch.ones(2)).tolist(), list(LOG)) for _ in range(3)]

    expected = calls(program)
    with compiler_core.record() as record:
        compiled = compiler_core.compile(program, backend="eager")
        assert calls(compiled) == expected
    compiles = [compile_ for compile_ in record.frames[0].compiles if program is not one_that_is_caught]
    assert [len(compile_.breaks) for compile_ in compiles] == [1, 0][: len(compiles)]
    if compiles:
        assert re.search("is not loaded yet|lacks it so far", compiles[0].breaks[0].explanation)
        assert compiles[1].cause.guard.endswith(".is_loaded() == False")
