"""Runs a notebook without a browser: ``python -m kernel_magics.demo NOTEBOOK FOLDER``.

Executes the notebook in a new kernel, prints the text outputs of its cells, and writes a report of each compiled cell
to the folder.  The exit status is 1 if a cell raises.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from compiler_core.records import Record
from kernel_magics.display.explorer import MIME
from kernel_magics.display.packing import unpack
from kernel_magics.display.record_view import print_line
from kernel_magics.display.report import write_report

TIMEOUT_S = 600


def main(notebook: Path, folder: Path) -> int:
    """Runs `notebook`, writes its reports to `folder`, and returns the exit status."""
    try:
        cells = execute(notebook)
    except CellExecutionError as error:
        print_line(f"\n{error}\nThe notebook {notebook} stopped at this cell.")
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    print_line("\nReports (each opens in any browser, without a network connection):")
    for path, record in write_reports(cells, folder, notebook.stem.lstrip("0123456789_")):
        print_line(f"  {path.resolve()}  ({record.title})")
    return 0


def execute(notebook: Path) -> list[Any]:
    """Executes a notebook and returns its cells with their outputs; prints each output as soon as its cell has run."""
    content = nbformat.read(notebook, as_version=4)
    client = NotebookClient(
        content,
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],
        timeout=TIMEOUT_S,
        resources={"metadata": {"path": str(notebook.parent)}},
        on_cell_executed=lambda cell, **_: print_outputs(cell),
    )
    client.execute()
    return list(content.cells)


def print_outputs(cell: Any) -> None:
    """Prints the text outputs of a cell."""
    for output in cell.get("outputs", ()):
        text = output.get("text") or output.get("data", {}).get("text/plain", "")
        is_picture = any(kind.startswith("image/") for kind in output.get("data", {}))
        if text and not is_picture:
            print_line(text.rstrip())


def write_reports(cells: list[Any], folder: Path, name: str) -> Iterator[tuple[Path, Record]]:
    """Writes a report for each record among the outputs: ``name.html``, ``name_2.html`` ..."""
    outputs = (output for cell in cells for output in cell.get("outputs", ()))
    records = [unpack(o["data"][MIME]) for o in outputs if MIME in o.get("data", {})]
    for number, record in enumerate(records, 1):
        file = f"{name}.html" if number == 1 else f"{name}_{number}.html"
        yield write_report(record, folder / file), record


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
