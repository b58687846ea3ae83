"""Tests of ``%%schedule``: the schedule of a kernel in a cell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

import compiler_core
import kernel_magics
from compiler_core.loops.schedule.script import WRITABLE
from kernel_magics.magics import CutawayMagics
from tests.kernel_magics.cell_runs import printed_by, run

CELL = "%%compile --backend cpp\ny = torch.softmax(x, -1)"


def rewrites() -> list[str]:
    """Returns the rewrites of the kernel in the last record."""
    (made,) = kernel_magics.last_record().compiles[0].schedules
    return [each.text for each in made.rewrites]


@pytest.fixture
def shell(magics: InteractiveShell) -> InteractiveShell:
    run(magics, "x = torch.randn(64, 128)")
    run(magics, CELL)
    return magics


def test_a_line_makes_a_cell_with_the_schedule_and_its_reasons(shell: InteractiveShell) -> None:
    text = compiler_core.editable_text(kernel_magics.last_record(), "forward_0.schedule")
    assert "vectorize(j0)  # the last index of a row is contiguous\n" in text
    for id in ("0/0:forward_0", "0/0:forward_0.schedule"):
        run(shell, f"%schedule {id}")
        assert shell.rl_next_input == "%%schedule 0/0:forward_0\n" + text


def test_a_schedule_is_used_until_it_is_reverted(shell: InteractiveShell) -> None:
    own = rewrites()
    printed = printed_by(shell, "%%schedule 0/0:forward_0\nkeep(exp)  # read again\nvectorize(j0, 8)\n")
    assert "forward_0.schedule: the same values" in printed
    assert " us -> " in printed
    assert "In the cell: the values of plain PyTorch" in printed
    assert "%schedule --revert forward_0 ends that" in printed
    run(shell, CELL)
    assert rewrites() == ["", "keep(exp)", "vectorize(j0, 8)"]
    assert kernel_magics.last_record().notes == ["forward_0.schedule was edited by hand."]
    assert "forward_0.schedule: an edited schedule" in printed_by(shell, "%schedule")
    assert "Nothing is edited" in printed_by(shell, "%schedule --revert forward_0")
    run(shell, CELL)
    assert rewrites() == own


def test_a_schedule_is_not_used_for_other_loops(shell: InteractiveShell) -> None:
    run(shell, "%%schedule forward_0\nvectorize(j0)\n")
    run(shell, "%%compile --backend cpp\ny = torch.softmax(x[:, :64], -1)")
    assert "an edit that was not used" in kernel_magics.last_record().notes[-1]


def test_the_schedule_of_a_kernel_like_another_has_the_names_of_its_values(shell: InteractiveShell) -> None:
    run(shell, "w = torch.randn(128, 128)")
    run(shell, "%%compile --backend cpp\ny = torch.softmax(torch.softmax(x @ w, -1) @ w, -1)")
    first, second = kernel_magics.last_record().compiles[0].schedules
    assert second.like == first.kernel
    run(shell, "%schedule forward_1")
    assert "keep(exp_1)" in shell.rl_next_input
    assert "forward_1.schedule: the same values" in printed_by(shell, shell.rl_next_input)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("vectorize(k0)", "line 1, vectorize(k0): there is no loop over k0; there are loops over i0, j0"),
        ("vectorize(j0)\n\nsplit(j0, 32)", "line 3, split(j0, 32): split j0 before it is vectorised"),
        ("keep(exp)\nvectorise(j0)", "there is no rewrite vectorise; did you mean vectorize?"),
        ("split(j0)", "line 1, split(j0): split takes index, size"),
        ("split(j0, 0)", "split needs a positive number of elements, not 0"),
        ("vectorize(j0, 3)", "the number of lanes is a power of two, not 3"),
        ("keep(exp)\nkeep(nothing)", "line 2, keep(nothing): no later sweep computes nothing again"),
        ("for i in x: pass", "a line is one rewrite, such as split(i0, 128)"),
    ],
)
def test_a_wrong_line_is_named_with_the_reason(shell: InteractiveShell, lines: str, message: str) -> None:
    before = rewrites()
    printed = printed_by(shell, "%%schedule forward_0\n" + lines)
    assert message in printed
    assert "hange this one, or remove it." in printed
    assert ("The lines above it are legal" in printed) == ("line 1" not in printed)
    run(shell, CELL)
    assert rewrites() == before


def test_what_has_no_schedule_says_why(shell: InteractiveShell) -> None:
    run(shell, "x = torch.randn(64, 64)")
    run(shell, "%%compile --backend cpp\ny = (x @ x).relu()")
    assert "aten.mm.default is a kernel of PyTorch, which is called as it is" in printed_by(
        shell, "%schedule aten.mm.default"
    )
    wrong = {
        "%schedule forward_9": "there is no kernel 'forward_9'; kernels with schedules: 0/0:forward_0",
        "%%schedule 1/0:forward_0\nvectorize(i0)": "there is no compile 1/0; there are 0/0",
        "%%schedule\nvectorize(i0)": "the first line names what is edited: %%schedule ID",
    }
    for cell, message in wrong.items():
        assert message in printed_by(shell, cell)


def test_the_help_and_the_manual_list_the_rewrites() -> None:
    manual = (Path(__file__).parents[2] / "docs/manual.md").read_text()
    found = [re.findall(r"^ {4,}(\w+)\(", CutawayMagics.schedule.__doc__ or "", re.MULTILINE)]
    found.append(re.findall(r"^\| `(\w+)\(.*?\)` \|", manual.partition("### Schedules in a cell")[2], re.MULTILINE))
    assert found == [[*WRITABLE["cpp"], *WRITABLE["triton"]]] * 2
