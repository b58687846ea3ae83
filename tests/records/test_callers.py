"""A problem in the code of a library is shown at the user's line that calls it, with the library's line behind it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

import compiler_core
from compiler_core.records import Problem, Record
from kernel_magics.display.explanation import explanation

PACKAGE = """
import torch

def reads(x):
    return [int(v) for v in x]

def branches(x):
    y = x.sin()
    if y.sum() > 0:
        y = y + 1
    return y.cos()

def logs(x):
    y = x.sin()
    print("library", end="")
    return y.cos()

def steps(x):
    return inner(x) * 2

def inner(x):
    if x.sum() > 0:
        x = x.exp()
    return x + 1

class Net(torch.nn.Module):
    def forward(self, x):
        return branches(x)

def scaled(x, n):
    return x * n

def without_grad(x):
    with torch.no_grad():
        return scaled(x, 2)
"""
Engine = Literal["core", "torch"]
ENGINES: tuple[Engine, ...] = ("core", "torch")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A package that is installed: its folder is in one called site-packages."""
    file = tmp_path_factory.mktemp("lib") / "site-packages" / "their" / "code.py"
    file.parent.mkdir(parents=True)
    file.write_text(PACKAGE)
    spec = importlib.util.spec_from_file_location("their.code", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["their.code"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["their.code"]


def recorded(engine: Engine, fn: Any, *calls: tuple[Any, ...], **options: Any) -> Record:
    torch._dynamo.reset()
    with compiler_core.record(engine=engine) as record:
        make: Any = compiler_core.compile if engine == "core" else torch.compile
        compiled = make(fn, backend="eager", **options)
        for args in calls:
            compiled(*args)
    return record


def at_line(problem: Problem, fn: Callable[..., Any], offset: int) -> bool:
    """Whether a problem is at a line of a function of this file, and links to it."""
    is_here = (problem.filename, problem.lineno) == (__file__, fn.__code__.co_firstlineno + offset)
    return is_here and problem.line is not None


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["reads", "branches", "logs", "steps", "Net"])
def test_a_break_in_a_package_is_at_the_users_line(name: str, engine: Engine, package: Any) -> None:
    called = package.Net() if name == "Net" else getattr(package, name)

    def program(x: torch.Tensor) -> Any:
        y = x * 2
        z = called(y)
        return (z, y)

    record = recorded(engine, program, (torch.ones(3),))
    breaks = [each for each in record.problems if each.kind == "graph break"]
    assert breaks
    for each in breaks:
        assert at_line(each, program, 2), each
        assert each.behind.startswith("It is in code of their (code.py:")
        assert each.behind in each.cause
        assert each.grade == "expected" or each.advice.startswith("This is code of their, not yours.")
    assert len({each.behind for each in breaks}) == len(breaks) == 1
    assert "z = called(y)" in explanation(record)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_compiled_function_may_be_a_packages(engine: Engine, package: Any) -> None:
    record = recorded(engine, package.branches, (torch.ones(3),))
    (found,) = (each for each in record.problems if each.kind == "graph break")
    assert (found.filename, record.line_text(found.line)) == (__file__, "compiled(*args)")
    assert found.behind == "It is in code of their (code.py:9: `if y.sum() > 0:`), which this line calls."


@pytest.mark.parametrize("engine", ENGINES)
def test_a_recompile_in_a_package_is_at_the_users_line(engine: Engine, package: Any) -> None:
    def program(x: torch.Tensor, n: Any) -> Any:
        return package.scaled(x, n)

    record = recorded(engine, program, (torch.ones(3), 2), (torch.ones(1), 2), (torch.ones(1).double(), 2))
    assert len(record.problems) == 2
    for each in record.problems:
        assert at_line(each, program, 1), each
        assert each.behind.startswith("It is in code of their (code.py:")
        assert "not yours" not in each.advice


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mode", [torch.no_grad, lambda: torch.autocast("cpu")])
def test_a_setting_is_at_the_users_line(mode: Callable[[], Any], engine: Engine, package: Any) -> None:
    torch._dynamo.reset()
    with compiler_core.record(engine=engine) as record:
        make: Any = compiler_core.compile if engine == "core" else torch.compile
        compiled = make(package.scaled, backend="eager")
        compiled(torch.ones(3), 2)
        with mode():
            compiled(torch.ones(3), 2)
    (found,) = (each for each in record.problems if each.kind == "recompile")
    assert (found.filename, record.line_text(found.line)) == (__file__, "compiled(torch.ones(3), 2)")
    assert "It is in code of their (code.py:" in found.cause


@pytest.mark.parametrize("engine", ENGINES)
def test_lines_of_the_user_stay_where_they_are(engine: Engine) -> None:
    def helper(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            x = x + 1
        return x.cos()

    def program(x: torch.Tensor) -> torch.Tensor:
        return helper(x.sin()) * 2

    record = recorded(engine, program, (torch.ones(3),))
    (found,) = (each for each in record.problems if each.kind == "graph break")
    assert at_line(found, helper, 1)
    assert found.behind == ""
    assert Path(found.filename).name in explanation(record)
