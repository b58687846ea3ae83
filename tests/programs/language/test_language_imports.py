# mypy: ignore-errors
# ruff: noqa: F401
"""Imports inside compiled functions: a module that is not loaded yet is imported where the program does it.

Those of installed packages are imported at capture, if the frame has changed nothing before."""

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
        assert re.search("is not loaded yet", compiles[0].breaks[0].explanation)
        assert compiles[1].cause.guard.endswith(".is_loaded() == False")


def one_of_python(x):
    y = x + 1
    import wave

    return y * len(wave.__name__)


def part_of_a_package(x):
    from xml.sax import saxutils as utils

    return x * len(utils.__name__)


@pytest.mark.parametrize(("program", "module"), [(one_of_python, "wave"), (part_of_a_package, "xml.sax.saxutils")])
def test_an_installed_module_does_not_break_the_graph(program, module, monkeypatch):
    expected = program(torch.ones(2)).tolist()
    for name in module, module.rpartition(".")[0]:
        monkeypatch.delitem(sys.modules, name, raising=False)
    with compiler_core.record() as record:
        compiled = compiler_core.compile(program, fullgraph=True)
        assert [compiled(torch.ones(2)).tolist() for _ in range(2)] == [expected] * 2
    assert module in sys.modules
    assert len(record.frames[0].compiles) == 1


def test_an_installed_module_is_imported_after_what_it_might_read(monkeypatch):
    def program(x):
        LOG.append("wave" in sys.modules)
        import wave

        return x * len(wave.__name__)

    monkeypatch.delitem(sys.modules, "wave", raising=False)
    compiled = compiler_core.compile(program)
    assert [compiled(torch.ones(1)).item() for _ in range(2)] == [4.0] * 2
    assert LOG == [False, True]
