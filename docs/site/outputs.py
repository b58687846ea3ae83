"""Runs the notebooks of the site: their pages have outputs, and explorers that need no kernel."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from compiler_core.records import Record
from kernel_magics.display.explorer import MIME
from kernel_magics.display.packing import unpack
from kernel_magics.display.report import report_html

AT_ONCE = 2
"""Kernels that run at the same time."""
WIDGET = "application/vnd.jupyter.widget-view+json"
EXPLORER = re.compile(r'<script type="application/gzip" id="explorer">(.*?)</script>')
SHARED = "explorer.js"

SHARED_SCRIPT = """
const explorer = document.createElement("script");
explorer.id = "explorer";
explorer.type = "application/gzip";
explorer.textContent = "{packed}";
document.head.append(explorer);
"""


def write_explorer(record: Record, file: Path) -> None:
    """Writes a record as a page whose explorer is the file `SHARED` beside it, which all pages of a folder load."""
    page = report_html(record)
    found = EXPLORER.search(page)
    assert found is not None
    (file.parent / SHARED).write_text(SHARED_SCRIPT.replace("{packed}", found[1]), encoding="utf-8")
    page = page.replace(found[0], f'<script src="{SHARED}"></script>')
    page = page.replace("blob: 'wasm", "blob: 'self' file: 'wasm")  # of the page's Content-Security-Policy
    file.write_text(page, encoding="utf-8", errors="backslashreplace")


def frame(address: str, title: str) -> str:
    """Returns the element that shows an explorer at the full width of a page."""
    return f'<iframe class="explorer" src="{address}" title="{title}" loading="lazy"></iframe>'


def run_all(notebooks: Sequence[Path], explorers: Path) -> None:
    """Runs notebooks and writes their outputs into them, with the explorers of their records in a folder.

    The folder is ``extra/explorers`` of the site's pages, and lies beside the pages in the site.
    """
    asyncio.run(_run_all(notebooks))
    for path in notebooks:
        notebook = nbformat.read(path, as_version=4)
        up = "../" * len(path.parent.relative_to(explorers.parents[1]).parts)
        for number, output in enumerate(_outputs_with_explorers(notebook), 1):
            name = f"{path.stem}_{number}.html"
            write_explorer(unpack(output["data"][MIME]), explorers / name)
            output["data"] = {"text/html": frame(f"{up}{explorers.name}/{name}", f"Explorer {number} of {path.stem}")}
        nbformat.write(notebook, path)


async def _run_all(notebooks: Sequence[Path]) -> None:
    limit = asyncio.Semaphore(AT_ONCE)

    async def run(path: Path) -> None:
        async with limit:
            notebook = nbformat.read(path, as_version=4)
            resources = {"metadata": {"path": str(path.parent)}}
            client = NotebookClient(
                notebook, kernel_name="python3", extra_arguments=["--log-level=ERROR"], timeout=600, resources=resources
            )
            await client.async_execute()
            for cell in notebook.cells:
                cell["outputs"] = [each for each in map(_readable, cell.get("outputs", ())) if each]
                if cell.cell_type != "code":
                    del cell["outputs"]
            notebook.metadata.pop("widgets", None)
            nbformat.write(notebook, path)

    await asyncio.gather(*map(run, notebooks))


def _readable(output: Any) -> Any:
    """Returns an output as a page can show it; None for warnings of the machine, and for what needs a kernel."""
    if output.output_type == "stream":
        return output if output.name == "stdout" else None
    kinds = output.get("data", {})
    if WIDGET in kinds and MIME not in kinds and "text/html" not in kinds:
        return None
    if WIDGET in kinds:
        del kinds[WIDGET]
    return output


def _outputs_with_explorers(notebook: Any) -> Iterator[Any]:
    return (output for cell in notebook.cells for output in cell.get("outputs", ()) if MIME in output.get("data", {}))
