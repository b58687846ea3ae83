"""Tests of ``%%kernel`` and ``%%graph``: a text in a cell takes the place of a kernel or graph."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell

import compiler_core
import kernel_magics
from tests.kernel_magics.cell_runs import printed_by, run

CELL = "%%compile\ny = torch.tanh(x * w) + 1"


def text(id: str) -> str:
    return compiler_core.editable_text(kernel_magics.last_record(), id)


@pytest.fixture
def shell(magics: InteractiveShell) -> InteractiveShell:
    run(magics, "x, w = torch.randn(64), torch.randn(64)")
    run(magics, CELL)
    return magics


def test_a_line_makes_a_cell_with_the_text(shell: InteractiveShell) -> None:
    run(shell, "%kernel 0/0:forward_0")
    assert shell.rl_next_input == "%%kernel 0/0:forward_0\n" + text("forward_0")
    run(shell, "%graph captured")
    assert shell.rl_next_input == "%%graph captured\n" + text("captured")


def test_an_edited_kernel_is_used_until_it_is_reverted(shell: InteractiveShell) -> None:
    y = shell.user_ns["y"]
    printed = printed_by(shell, "%%kernel forward_0\n" + text("forward_0").replace("+ 1.0f", "- -1.0f"))
    assert "forward_0: the same values" in printed
    assert "In the cell: the values of plain PyTorch" in printed
    assert shell.user_ns["y"] is y, "the cell ran again on saved state"
    run(shell, CELL)
    assert "forward_0 was edited by hand." in kernel_magics.last_record().notes
    assert kernel_magics.last_record().options["edits"] == "forward_0"
    assert "- -1.0f" in text("forward_0")
    run(shell, "%%compile\nz = x.cos()")
    assert "an edit that was not used" in kernel_magics.last_record().notes[-1]
    assert "forward_0: an edited kernel" in printed_by(shell, "%kernel")
    assert "Nothing is edited" in printed_by(shell, "%kernel forward_0 --revert")
    run(shell, CELL)
    assert "- -1.0f" not in text("forward_0")


def test_edited_loops_are_used_until_they_are_reverted(shell: InteractiveShell) -> None:
    run(shell, "%kernel forward_0.loops")
    assert shell.rl_next_input == "%%kernel forward_0.loops\n" + text("forward_0.loops")
    sums = text("forward_0.loops").replace("add(tanh, 1.0)", "sub(tanh, -1.0)")
    assert "In the cell: the values of plain PyTorch" in printed_by(shell, "%%kernel forward_0.loops\n" + sums)
    run(shell, CELL)
    assert "sub(tanh, -1.0)" in text("forward_0.loops")
    assert "forward_0.loops was edited by hand." in kernel_magics.last_record().notes
    assert "forward_0.loops: edited loops" in printed_by(shell, "%kernel")
    assert "Nothing is edited" in printed_by(shell, "%kernel forward_0.loops --revert")


def test_a_wrong_edit_is_not_used_unless_it_is_forced(shell: InteractiveShell) -> None:
    wrong = text("forward_0").replace("+ 1.0f", "+ 2.0f")
    assert "It is not used.  --force" in printed_by(shell, "%%kernel forward_0\n" + wrong)
    assert "In the cell: y differs: " in printed_by(shell, "%%kernel forward_0 --force\n" + wrong)
    outside = wrong.replace("out_add[i0]", "out_add[i0 + 9]")
    printed = printed_by(shell, "%%kernel forward_0 --force\n" + outside)
    assert "out of range: it stores 36 bytes outside of out_add" in printed
    assert "It is not used.\nIt was tried in place of forward_0 of Cell In[" in printed


def test_an_edited_graph_is_used(shell: InteractiveShell) -> None:
    edited = text("captured").replace("torch.tanh(mul)", "mul.tanh()")
    assert "In the cell: the values of plain PyTorch" in printed_by(shell, "%%graph 0/0:captured\n" + edited)
    run(shell, CELL)
    assert "mul.tanh()" in kernel_magics.last_record().compiles[0].find("pass.edit_0_0_captured").text
    assert "0/0:captured: an edited graph" in printed_by(shell, "%graph")
    assert "Nothing is edited" in printed_by(shell, "%graph --revert-all")


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%kernel nothing", "there is nothing 'nothing' to edit; there are 0/0:forward_0, 0/0:forward_0.loops, "),
        ("%kernel forward_0 --revert", "forward_0 is not edited; edited are: none"),
        ("%%kernel forward_0\nint x;", "the text must define the kernel with the parameters that it has"),
        ("%%graph captured\nx = 1", "defines one function"),
    ],
)
def test_a_wrong_request_says_what_is_right(shell: InteractiveShell, cell: str, message: str) -> None:
    assert message in printed_by(shell, cell)
