"""`assert_compiles`, as a function and as the fixture of the pytest plugin."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Literal

import pytest
import torch

from compiler_core import assert_compiles

ROOT = Path(__file__).parents[2]
PLUGIN = "compiler_core.tools.assertions.pytest_plugin"
ENGINES: list[Literal["torch", "core"]] = ["torch", "core"]


def straight(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


def broken(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    print("here")
    return y + 1


@pytest.mark.usefixtures("fresh_stock")
@pytest.mark.parametrize("engine", ENGINES)
def test_what_compiles_as_expected_passes(engine: Literal["torch", "core"]) -> None:
    counts = assert_compiles(straight, torch.ones(3), engine=engine)
    assert (counts.graphs, counts.breaks) == (1, [])
    assert assert_compiles(broken, torch.ones(3), graphs=2, engine=engine).graph_breaks == 1
    further = [[torch.ones(4)], [torch.ones(5)]]
    assert_compiles(straight, torch.ones(3), then=further, graphs=None, recompiles=1, engine=engine)
    assert_compiles(torch.nn.Linear(2, 2), torch.ones(3, 2), engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_failure_names_breaks_and_recompiles(
    engine: Literal["torch", "core"], caplog: pytest.LogCaptureFixture
) -> None:
    line = broken.__code__.co_firstlineno + 2
    with pytest.raises(AssertionError) as raised:
        assert_compiles(broken, torch.ones(3), engine=engine)
    text = str(raised.value)
    assert text.startswith("broken: 2 graphs, expected 1\n")
    assert f"graph break at {__file__}:{line}: " in text
    assert 'print("here")\n' in text
    assert "hint: " in text
    with pytest.raises(AssertionError, match=r"straight: 2 graphs, expected 1; 1 recompile, expected 0") as raised:
        assert_compiles(straight, torch.ones(3), then=[[torch.ones(4)]], engine=engine)
    assert "The size of x in dimension 0 is 4; compile " in str(raised.value)
    assert f"recompile at {__file__}:" in str(raised.value)
    assert [each for each in caplog.records if each.name == "torch.__trace"] == []  # pytest would print them


def test_the_plugin_imports_no_torch() -> None:
    text = f"import sys, {PLUGIN}; print([n for n in sys.modules if 'torch' in n])"
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_pytest_rewrites_no_assertions_of_ours() -> None:
    """It would in all modules of a distribution that has an entry point of this group."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert "torch_dynamo_backends" in groups
    assert "pytest11" not in groups


@pytest.mark.sweep
def test_the_fixture_imports_torch_when_it_is_used(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(f"pytest_plugins = [{PLUGIN!r}]\n")
    (tmp_path / "test_it.py").write_text(
        "import sys\n\n"
        "def test_before():\n"
        "    assert not [name for name in sys.modules if name.startswith(('torch', 'numpy'))]\n"
        "    ours = [name for name in sys.modules if name.startswith('compiler_core')]\n"
        "    rewritten = [name for name in ours if hasattr(sys.modules[name].__loader__, 'mark_rewrite')]\n"
        f"    assert rewritten == [{PLUGIN!r}]\n\n"
        "def test_model(assert_compiles):\n"
        "    import torch\n"
        "    assert_compiles(lambda x: x.sin(), torch.ones(3))\n"
        "    assert_compiles(lambda x: x.sin(), torch.ones(3), graphs=2)\n"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    run = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed" in run.stdout, run.stdout
    assert "AssertionError: <lambda>: 1 graph, expected 2" in run.stdout
    assert "torch.__trace" not in run.stdout
    assert "compiles.py" not in run.stdout  # the traceback ends at the test
