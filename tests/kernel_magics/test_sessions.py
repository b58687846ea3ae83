"""Runs notebooks of several cells repeatedly: compiled, they have the same effects as without the magic."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import kernel_magics
from compiler_core.tools.testing import difference
from compiler_core.tools.testing.observed_run import random_states, seed_all

pytestmark = pytest.mark.slow

ROUNDS = 2
PLAIN = "#plain\n"
"""Starts a cell that is never compiled."""
OURS = re.compile(r"__builtins__|__warningregistry__|_+|_i*[0-9]*|_[dio]h|In|Out|exit|quit|get_ipython|open")
SUMMARY = re.compile(r"Cutaway of Cell In\[\d+\].*?\n(  .*\n)*")
VARIES = re.compile(r"0x[0-9a-f]+|<ipython-input-\d+-\w+>|(?:Wall time|CPU times).*|Cell In\[\d+\]")


def sessions() -> list[Any]:
    """Returns the notebooks in the file: under each line ``%% name`` its cells, separated by lines ``--``.

    Every run of the suite takes a third of them.
    """
    text = (Path(__file__).parent / "cells" / "sessions.txt").read_text()
    parts = (part.partition("\n") for part in re.split(r"(?m)^%% ", text)[1:])
    return [
        pytest.param(body.removesuffix("\n").split("\n--\n"), id=name, marks=[pytest.mark.sweep] if at % 3 else [])
        for at, (name, _, body) in enumerate(parts)
    ]


@dataclass
class SessionResult:
    """The output of a notebook, its effects, and the number of compiles of each round."""

    shown: list[tuple[str, ...]]
    names: dict[str, Any]
    compiles: list[int]
    random: dict[str, Any]


def without_addresses(text: object) -> str:
    return VARIES.sub("", str(text)).strip()


def run(shell: InteractiveShell, cells: list[str], first_line: str) -> SessionResult:
    shell.user_ns["torch"] = torch
    ran = SessionResult([], {}, [], {})
    seed_all(0)
    for _ in range(ROUNDS):
        count = 0
        for cell in cells:
            with capture_output() as output:
                result = shell.run_cell(cell if cell.startswith(PLAIN) else f"{first_line}\n{cell}", store_history=True)
            error = result.error_before_exec or result.error_in_exec
            seen = (SUMMARY.sub("", output.stdout), repr(result.result), repr(error), output.stderr)
            ran.shown.append((*map(without_addresses, seen), *(without_addresses(o.data) for o in output.outputs)))
            if first_line.startswith("%%") and not cell.startswith(PLAIN):
                count += checked_compiles()
        ran.compiles.append(count)
    ran.names = {k: comparable(v) for k, v in sorted(shell.user_ns.items()) if not OURS.fullmatch(k)}
    ran.random = random_states()
    return ran


def comparable(value: Any) -> Any:
    """Returns tensors, modules, optimisers and containers unchanged, and the text of anything else."""
    whole = isinstance(value, (torch.Tensor, torch.nn.Module, torch.optim.Optimizer, list, tuple, dict))
    return value if whole else without_addresses(repr(value))


def checked_compiles() -> int:
    """Returns the number of compiles of the last cell, none of which may have failed."""
    compiles = kernel_magics.last_record().compiles
    assert [f"{c.id}: {c.reason} {c.failures}" for c in compiles if c.failures or c.outcome == "failed"] == []
    return len(compiles)


@pytest.fixture
def fresh(shell: InteractiveShell) -> Callable[[], InteractiveShell]:
    def fresh() -> InteractiveShell:
        shell.reset()
        shell.compile.reset_compiler_flags()
        return shell

    shell.run_line_magic("load_ext", "kernel_magics")
    return fresh


@pytest.mark.parametrize("cells", sessions())
def test_leaves_what_plain_cells_leave(cells: list[str], fresh: Callable[[], InteractiveShell]) -> None:
    want = run(fresh(), cells, "# %%compile --backend eager")
    got = run(fresh(), cells, "%%compile --backend eager")
    for at, (one, other) in enumerate(zip(got.shown, want.shown, strict=True)):
        assert one == other, f"cell {at % len(cells) + 1}, round {at // len(cells) + 1}"
    assert difference([want.names, want.random], [got.names, got.random]) is None
    first, *later = got.compiles
    assert all(count <= first for count in later), got.compiles
