"""Two records, or two compiles, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import compiler_core
import kernel_magics
from compiler_core.compare import compare
from compiler_core.record import Record

pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

BEFORE = """
def f(x, y):
    x = x.cos()
    return x * y
"""
AFTER = """
def f(x, y):
    # a line more
    x = x.cos()
    x = x.sin()
    return x * y.exp()
"""


def recorded(tmp_path: Path, text: str, engine: Any = "core", sizes: tuple[int, ...] = (4,)) -> Record:
    torch._dynamo.reset()
    file = tmp_path / "program.py"
    file.write_text(text)
    import linecache

    linecache.checkcache(str(file))
    namespace: dict[str, Any] = {}
    exec(compile(text, str(file), "exec"), namespace)
    with compiler_core.record(engine, engine=engine) as record:
        through: Any = torch.compile if engine == "torch" else compiler_core.compile
        made = through(namespace["f"], backend="aot_eager")
        for size in sizes:
            x, y = (torch.randn(size, requires_grad=True) for _ in "xy")
            made(x, y).sum().backward()
    return record


def test_engines_agree_line_by_line(tmp_path: Path) -> None:
    found = compare(recorded(tmp_path, BEFORE), recorded(tmp_path, BEFORE, "torch"))
    assert found.before == "core"
    assert found.after == "torch"
    for aspect in ("captured", "forward", "backward", "saved"):
        same = found.of("same", aspect)
        assert {(d.line, d.text.strip()) for d in same} >= {(4, "return x * y")}, aspect
        assert [d for d in found.lines if d.aspect == aspect and d.state != "same"] == [], str(found)
    totals = {t.name: (t.before, t.after) for t in found.totals}
    assert totals["graphs"] == (1, 1)
    assert totals["saved bytes"][0] == totals["saved bytes"][1]
    assert "guard changed, line 3: x = x.cos()" in str(found)


def test_an_edit_moves_lines_and_changes_one(tmp_path: Path) -> None:
    found = compare(recorded(tmp_path, BEFORE), recorded(tmp_path, AFTER))
    captured = {(d.line, d.state): (d.before, d.after) for d in found.lines if d.aspect == "captured"}
    assert captured[4, "same"] == (["cos"], ["cos"])
    assert captured[5, "added"] == ([], ["sin"])
    assert captured[6, "changed"] == (["mul"], ["exp", "mul"])
    back = compare(recorded(tmp_path, AFTER), recorded(tmp_path, BEFORE))
    gone = back.of("removed", "captured")
    assert [(d.line, d.text.strip(), d.before) for d in gone] == [(5, "x = x.sin()", ["sin"])]


def test_a_compile_and_its_recompile(tmp_path: Path) -> None:
    record = recorded(tmp_path, BEFORE, sizes=(4, 6))
    first, second = record.compiles
    found = compare(first, second)
    assert (found.before, found.after) == ("0/0", "0/1")
    assert not found.of("changed", "captured")
    assert found.of("changed", "guard")


def test_the_same_record_has_no_difference(tmp_path: Path) -> None:
    record = recorded(tmp_path, BEFORE, "torch")
    again = Record.from_json(record.to_json())
    assert {d.state for d in compare(record, again).lines} == {"same"}


# ---- one cell through both engines ---------------------------------------------------------


@pytest.fixture
def magics(shell: InteractiveShell) -> InteractiveShell:
    torch._dynamo.reset()
    shell.run_line_magic("load_ext", "kernel_magics")
    shell.user_ns["torch"] = torch
    return shell


def test_the_first_engines_effects_stay(magics: InteractiveShell) -> None:
    setup = """
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
seen = []
start = model.weight.detach().clone()
def step(x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    seen.append(float(loss.detach()))
    return loss
"""
    cell = "x = torch.randn(3, 4)\nloss = step(x)\nprint('once')\nloss.detach()"
    with capture_output() as output:
        magics.run_cell(setup).raise_error()
        result = magics.run_cell(f"%%compile --engine core,torch --backend aot_eager\n{cell}")
    result.raise_error()
    assert output.stdout.splitlines().count("once") == 1
    both = kernel_magics.last_comparison()
    assert both.comparison.values == {}, str(both.comparison)
    assert [r.engine for r in both.records] == ["core", "torch"]
    assert "values: the same" in output.stdout
    ns = magics.user_ns
    assert len(ns["seen"]) == 1
    with torch.no_grad():
        grad = ns["model"].weight.grad
        torch.testing.assert_close(ns["model"].weight, ns["start"] - 0.1 * grad)
    assert ns["optimizer"].param_groups[0]["params"][0] is ns["model"].weight


def test_what_differs_is_said(magics: InteractiveShell) -> None:
    magics.user_ns["calls"] = iter(range(10))
    generator = (n for n in range(10))
    magics.user_ns["generator"] = generator
    with capture_output() as output:
        result = magics.run_cell(
            "%%compile --engine core,torch --backend eager\nn = next(generator)\ny = torch.ones(2) * n\ny + 1"
        )
    torch.testing.assert_close(result.result, torch.ones(2))
    both = kernel_magics.last_comparison()
    assert "generator (generator" in both.comparison.shared[0]
    assert set(both.comparison.values or ()) == {"n", "result", "y"}
    assert "result differs" in output.stdout
    assert magics.user_ns["n"] == 0


def test_the_first_engines_exception_is_raised(magics: InteractiveShell) -> None:
    with capture_output():
        result = magics.run_cell(
            "%%compile --engine torch,core --backend eager\nz = torch.ones(2) + 1\nraise KeyError(1)"
        )
    assert isinstance(result.error_in_exec, KeyError)
    assert kernel_magics.last_comparison().comparison.values == {}
    torch.testing.assert_close(magics.user_ns["z"], torch.ones(2) + 1)
