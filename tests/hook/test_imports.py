"""Tests of imports inside compiled functions: the bodies of modules are not compiled, however they are imported."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import os
import runpy
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import compiler_core
from tests import warm_python
from tests.warm_python import ROOT

BODY = """
import torch

def helper(x, n):
    return x * n + 1

TOTAL = torch.ones(2)
for number in range(5):
    TOTAL = helper(TOTAL, number)

class Config:
    def __init__(self):
        self.value = helper(torch.ones(2), 3)

CONFIG = Config()
"""
_numbers = itertools.count()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that is not imported yet."""
    name = f"imported_in_a_frame_{next(_numbers)}"
    (tmp_path / f"{name}.py").write_text(BODY)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def by_file(name: str) -> Any:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def lazily(name: str) -> Any:
    lazy = types.ModuleType("lazy")
    lazy.__getattr__ = lambda _: importlib.import_module(name)  # type: ignore[method-assign]
    return lazy.found


WAYS: dict[str, Callable[[str], Any]] = {
    "import_module": importlib.import_module,
    "__import__": __import__,
    "exec of an import": lambda name: (exec(f"import {name}"), sys.modules[name])[1],  # type: ignore[func-returns-value]
    "exec_module": by_file,
    "runpy": lambda name: types.SimpleNamespace(**runpy.run_module(name)),
    "__getattr__ of a module": lazily,
}


@pytest.mark.parametrize("way", WAYS)
def test_the_body_of_a_module_is_not_compiled(way: str, module: str) -> None:
    load = WAYS[way]

    def program(x: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = x.sin() + load(module).TOTAL
        return total.cos()

    x = torch.randn(2)
    with compiler_core.record() as record:
        got = compiler_core.compile(program, backend="eager")(x)
    sys.modules.pop(module, None)
    torch.testing.assert_close(got, program(x))
    inside = [frame.name for frame in record.frames if module in frame.filename]
    assert not inside


def test_an_import_statement_in_a_compiled_function(module: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def program(x):\n    import {module} as found\n    return x * found.TOTAL\n", scope)
    with compiler_core.record() as record:
        got = compiler_core.compile(scope["program"], backend="eager")(torch.ones(2))
    assert torch.equal(got, sys.modules[module].TOTAL)
    assert {frame.name for frame in record.frames} == {"program"}


FIRST_USE = """
import torch, compiler_core
with compiler_core.record() as record:
    program = lambda x: torch.cond(x.sum() > 0, torch.rand_like, torch.cos, (x,))  # random: it breaks the graph
    print(compiler_core.compile(program)(torch.zeros(1, requires_grad=True)).item())
print(*(frame.name for frame in record.frames))
"""


def test_what_stock_changes_at_its_first_use_is_not_compiled() -> None:
    """``torch.cond`` uses stock `torch.compile`, which then changes defaults of PyTorch."""
    done = warm_python.run(["-c", FIRST_USE], env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.stdout == "1.0\n<lambda> <lambda>\n", done.stderr
