"""The documentation site and the README: code runs, pages and pictures exist, and the site builds without problems."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import nbformat
import pytest

from kernel_magics.display.messages import PANES
from tests import warm_python

ROOT = Path(__file__).parents[2]
SITE = ROOT / "docs" / "site"
MAX_PICTURE_BYTES = 1_000_000


def test_the_code_of_the_how_to_page_runs(fresh_stock: None, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```\{code-cell\}\n(?::[^\n]*\n)*(.*?)```", (SITE / "how_to.md").read_text(), re.DOTALL)
    names: dict[str, object] = {"__name__": "how_to"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"how_to block {number}", "exec"), names)
    printed = capsys.readouterr().out
    assert "0/1: the size of x was 4, not 3" in printed
    assert "graph breaks: 1" in printed
    assert "shows a fault" in printed


def test_the_pages_of_the_contents_exist() -> None:
    pages = re.findall(r"^(docs|notebooks|extension|tests)/(\S+)$", (SITE / "index.md").read_text(), re.MULTILINE)
    assert len(pages) > 15
    missing = [
        page for page in map("/".join, pages) if not any((ROOT / f"{page}{end}").exists() for end in (".md", ".ipynb"))
    ]
    assert missing == []


def test_every_page_of_docs_is_in_the_contents() -> None:
    contents = (SITE / "index.md").read_text()
    assert [page.name for page in (ROOT / "docs").glob("*.md") if f"docs/{page.stem}" not in contents] == []


def test_links_and_pictures_of_the_readme_exist_and_are_small() -> None:
    text = (ROOT / "README.md").read_text()
    links = re.findall(r"\]\(([^)#:]+)\)|src(?:set)?=\"([^\"]+)\"", text)
    paths = {ROOT / (link or picture) for link, picture in links}
    assert [path for path in paths if not path.exists()] == []
    pictures = [path for path in paths if path.suffix == ".webp"]
    assert len(pictures) == 14
    assert max(path.stat().st_size for path in pictures) < MAX_PICTURE_BYTES


def test_the_page_of_panes_has_every_pane(fresh_stock: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SITE))
    gallery = importlib.import_module("gallery")
    shown = [pane for panes in gallery.PANES.values() for pane in panes]
    assert sorted([*shown, "source"]) == sorted(PANES)
    (joined,) = gallery.record_of_panes("joined").compiles
    before, after = (each.text for each in joined.artifacts if each.pane == "pregrad")
    assert ["_.relu()" in text for text in (before, after)] == [False, True]
    (blocks,) = gallery.record_of_panes("blocks").compiles
    assert [trial.how for tuning in blocks.tunings for trial in tuning.tried if trial.chosen]


def test_a_page_of_a_notebook_has_its_outputs_and_needs_no_kernel(
    warm_kernels: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(SITE))
    outputs = importlib.import_module("outputs")
    pages, explorers = tmp_path / "notebooks" / "workshop", tmp_path / "extra" / "explorers"
    pages.mkdir(parents=True)
    explorers.mkdir(parents=True)
    setup = "%load_ext kernel_magics\nimport sys, torch, kernel_magics\nfrom kernel_magics import workshop"
    ask = (
        "workshop.ask('breaks/bar', kernel_magics.last_record())\nprint('printed')\nprint('a warning', file=sys.stderr)"
    )
    cells = [nbformat.v4.new_markdown_cell("# A page")]
    cells += map(nbformat.v4.new_code_cell, (setup, "%%compile --backend eager\ntorch.ones(3) + 1", ask))
    nbformat.write(nbformat.v4.new_notebook(cells=cells), pages / "page.ipynb")
    outputs.run_all([pages / "page.ipynb"], explorers)
    found = nbformat.read(pages / "page.ipynb", as_version=4).cells
    assert 'src="../../explorers/page_1.html"' in found[2].outputs[0]["data"]["text/html"]
    question, printed = found[3].outputs
    assert question["data"].keys() == {"text/html", "text/plain"}
    assert "<details><summary>Answer</summary><span" in question["data"]["text/html"]
    assert printed["text"] == "printed\n"
    explorer = (explorers / "page_1.html").read_text()
    assert '<script src="explorer.js"></script>' in explorer
    assert len(explorer) < 200_000 < len((explorers / "explorer.js").read_text())


@pytest.mark.sweep
def test_the_site_builds_without_warnings_broken_links_and_heavy_pages() -> None:
    """The code of its pages runs in the test above, and that of the notebooks in tests/notebooks."""
    built = warm_python.run([str(SITE / "build.py"), "--as-they-are"])
    assert built.returncode == 0, built.stdout + built.stderr
    assert "0 problems" in built.stdout
