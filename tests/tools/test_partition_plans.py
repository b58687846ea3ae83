"""The ways to divide a joint graph: what each saves, and their pictures side by side."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import compiler_core
import kernel_magics
from compiler_core.errors import UsageError
from compiler_core.records import Record


def recorded(fn: Any, **options: Any) -> Record:
    x = torch.randn(5, 5, requires_grad=True)
    with compiler_core.record() as record:
        compiler_core.compile(fn, backend="aot_eager", **options)(x).sum().backward()
    return record


def test_naive_saving_and_the_minimum_cut() -> None:
    record = recorded(lambda x: x.cos().cos())
    everything, default, cut = compiler_core.partition_plans(record)
    (partition,) = [c.partition for c in record.compiles if c.partition]
    assert (everything.name, everything.bytes) == ("save everything", 300)
    assert (default.name, default.bytes) == ("default", partition.default_saved_bytes)
    assert (cut.name, cut.bytes) == ("minimum cut", partition.saved_bytes)
    assert (default.saved, cut.saved) == (("primals_1", "cos"), ("primals_1",))
    assert cut.recomputed == ("cos",)
    assert str(cut) == "minimum cut: 1 saved, 100 bytes, 1 recomputed"
    assert '"cos" [label="cos\\n100 B\\nrecomputed"' in cut.dot()


def test_budgets_that_save_something_else_are_plans_of_their_own() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = torch.tanh(x @ x)
        return x

    record = recorded(program, memory_curve=True)
    sizes = [plan.bytes for plan in compiler_core.partition_plans(record)]
    names = [plan.name for plan in compiler_core.partition_plans(record)]
    assert any(name.startswith("budget") for name in names)
    assert sizes == sorted(sizes, reverse=True)


def shown(shell: InteractiveShell) -> Any:
    """Returns what a notebook gets to show."""
    shell.user_ns |= {"record": recorded(lambda x: x.cos().cos()), "kernel_magics": kernel_magics}
    with capture_output() as output:
        shell.run_cell("kernel_magics.draw_partitions(record)").raise_error()
    return output.outputs[0].data


@pytest.mark.skipif(shutil.which("dot") is None, reason="needs Graphviz")
def test_the_pictures_stand_side_by_side(magics: InteractiveShell) -> None:
    data = shown(magics)
    assert data["text/html"].count("<svg") == 3
    assert "default: 2 saved, 200 bytes" in data["text/html"]
    assert data["text/plain"].splitlines()[-1] == "minimum cut: 1 saved, 100 bytes, 1 recomputed"


def test_without_graphviz_the_text_says_so(magics: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    data = shown(magics)
    assert "The pictures need Graphviz" in data["text/plain"]
    assert "text/html" not in data


def test_without_a_backward_there_is_nothing_to_draw() -> None:
    with compiler_core.record() as record:
        compiler_core.compile(lambda x: x.cos(), backend="aot_eager")(torch.ones(3))
    with pytest.raises(UsageError, match="nothing was divided"):
        kernel_magics.draw_partitions(record)
