"""Runs cells in an IPython of a test."""

from __future__ import annotations

from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output


def run(shell: InteractiveShell, cell: str) -> tuple[Any, str, str]:
    """Runs a cell and returns its result, stdout and stderr."""
    with capture_output() as output:
        result = shell.run_cell(cell, store_history=True)
    return result, output.stdout, output.stderr


def printed_by(shell: InteractiveShell, cell: str) -> str:
    """Runs a cell and returns what it prints, its error included."""
    _, out, err = run(shell, cell)
    return out + err
