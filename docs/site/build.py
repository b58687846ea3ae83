"""Builds the documentation site into ``build/site`` without the network: ``python docs/site/build.py``.

The notebooks are run, so that their pages have outputs.  With ``--as-they-are`` no code of pages is run, which the
tests do elsewhere.

The pages are those of this folder, of `docs`, and the notebooks.  The reference is generated from docstrings and from
the options of the magics, the explorers of the gallery from programs that run here.  Afterwards every link inside of
the site is checked, and that no page is larger than 2 MB with its explorers and their common script.

Sphinx builds it, with myst-nb: `mystmd` and Jupyter Book 2 ask api.mystmd.org for their theme, which is in no package.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import time
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGES, SITE = ROOT / "build" / "site-pages", ROOT / "build" / "site"
EXPLORERS = PAGES / "extra" / "explorers"
MAX_PAGE_BYTES = 2_000_000
LINKED_FOLDERS = ("compiler_core", "kernel_magics")
"""Folders whose files the pages link to."""
OTHER_PAGES = (
    *("CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md"),
    *("extension/README.md", "tests/benchmarks/RESULTS.md", "tests/sweeps/mutations.md"),
)

GOLDEN_BOOK = {
    "python": "Python",
    "break": "Graph breaks",
    "sizes": "Sizes",
    "recompile": "Recompiles",
    "module": "Modules",
    "autograd": "Gradients",
    "kernel": "Kernels",
}
"""The kinds of programs of the golden book, which their files' names begin with."""


def main(*, runs_code: bool = True) -> int:
    start = time.monotonic()
    sys.path.insert(0, str(HERE))
    collect()
    if runs_code:
        run_notebooks()
    else:
        page = PAGES / "how_to.md"
        page.write_text(page.read_text(encoding="utf-8").replace("execution_mode: force", "execution_mode: 'off'"))
    write_gallery()
    write_golden_book()
    write_reference()
    from sphinx.cmd.build import build_main

    doctrees = str(ROOT / "build" / "doctrees")
    status = build_main(["-q", "-W", "--keep-going", "-E", "-d", doctrees, str(PAGES), str(SITE)])
    problems = check_site()
    print(*problems, sep="\n")
    pages = sum(1 for _ in SITE.rglob("*.html"))
    print(f"{pages} pages in {SITE}, in {time.monotonic() - start:.0f} s; {len(problems)} problems")
    return status or bool(problems)


def collect() -> None:
    """Copies the pages of the site into one folder, with the paths that they have to each other."""
    for folder in (PAGES, SITE):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(HERE, PAGES, ignore=shutil.ignore_patterns("__pycache__", "build.py", "gallery.py", "outputs.py"))
    ignored = shutil.ignore_patterns("site", ".ipynb_checkpoints", ".OTTER_LOG")
    for name in ("docs", "notebooks"):
        shutil.copytree(ROOT / name, PAGES / name, ignore=ignored)
    EXPLORERS.mkdir(parents=True)
    for name in LINKED_FOLDERS:
        (PAGES / name).symlink_to(ROOT / name)
    for name in OTHER_PAGES:
        (PAGES / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, PAGES / name)
    for notebook in PAGES.glob("notebooks/**/*.ipynb"):  # links in HTML, which Sphinx leaves as they are
        text = notebook.read_text(encoding="utf-8")
        notebook.write_text(re.sub(r'(href=\\"[\w./]+)\.ipynb\\"', r'\1.html\\"', text), encoding="utf-8")
    for page in PAGES.glob("docs/*.md"):
        text = page.read_text(encoding="utf-8")
        page.write_text(with_pictures(with_linked_files(text, page)), encoding="utf-8")


def with_linked_files(text: str, page: Path) -> str:
    """Returns a page whose links to folders of code are links to a file in them, since a site has no listings."""

    def file(link: re.Match[str]) -> str:
        is_folder = (page.parent / link[1]).is_dir() and (page.parent / link[1] / "__init__.py").exists()
        return f"]({link[1].rstrip('/')}/__init__.py)" if is_folder else link[0]

    return re.sub(r"\]\((\.\./[^)#]+)\)", file, text)


def with_pictures(page: str) -> str:
    """Returns a page whose Mermaid flow charts are Graphviz pictures, which need no script; without dot, as it was."""
    if shutil.which("dot") is None:
        return page

    def picture(chart: re.Match[str]) -> str:
        edges = re.findall(r"(\w+) --> (\w+)", chart[1])
        lines = [f'  "{a}" -> "{b}"' for a, b in edges]
        return "\n".join(["```{graphviz}", "digraph {", "  node [shape=box fontname=sans]", *lines, "}", "```"])

    return re.sub(r"```mermaid\n(.*?)```", picture, page, flags=re.DOTALL)


def write_gallery() -> None:
    """Writes the explorers of the gallery, and a page for each."""
    from gallery import EXAMPLES, record_of
    from outputs import frame, write_explorer

    pages = PAGES / "gallery"
    pages.mkdir()
    rows = []
    for name, example in EXAMPLES.items():
        write_explorer(record_of(example), EXPLORERS / f"{name}.html")
        address = f"../explorers/{name}.html" + ("#1" if example.panes else "")
        opened = f'{example.text} <a href="{address}">Open it alone.</a>'
        text = f"# {example.title}\n\n{opened}\n\n{frame(address, example.title)}\n"
        (pages / f"{name}.md").write_text(text, encoding="utf-8")
        rows.append(f"- [{example.title}]({name}.md): {example.text}")
    write_panes(pages / "panes.md")
    rows.append("- [Every pane](panes.md): what each pane of the explorer shows, on these programs.")
    text = "Explorers of small programs, without a kernel: press a line, a node, or a stage in the bar."
    write_index(pages, "Gallery", text, rows, (*EXAMPLES, "panes"))


def write_panes(page: Path) -> None:
    """Writes the page that shows each pane of the explorer beside the source of a program."""
    from gallery import EXAMPLES, PANES, record_of_panes
    from outputs import frame, write_explorer

    parts = [
        "# Every pane",
        "Each beside the source of a program of this gallery.",
    ]
    for name, panes in PANES.items():
        write_explorer(record_of_panes(name), EXPLORERS / f"panes_{name}.html")
        parts.append(f"## {EXAMPLES[name].title}")
        for number, (pane, text) in enumerate(panes.items(), 1):
            parts.append(f"### `{pane}`\n\n{text}")
            parts.append(frame(f"../explorers/panes_{name}.html#{number}", f"The pane {pane}"))
    page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def run_notebooks() -> None:
    """Runs the tour, the questions and the lessons, so that their pages have outputs."""
    from outputs import run_all

    run_all(sorted((PAGES / "notebooks").glob("**/[0-9]*.ipynb")), EXPLORERS)


def write_index(folder: Path, title: str, text: str, rows: list[str], names: Iterable[str]) -> None:
    """Writes the page that lists the pages of a folder, which have these names."""
    toctree = "\n".join(["```{toctree}", ":hidden:", "", *names, "```"])
    page = "\n\n".join([f"# {title}", text, "\n".join(rows), toctree])
    (folder / "index.md").write_text(f"{page}\n", encoding="utf-8")


def write_golden_book() -> None:
    """Writes the programs of the golden book with the text of every stage, a page for each kind of program."""
    sys.path.insert(0, str(ROOT))
    from tests.golden.book import programs, sections

    folder = PAGES / "golden"
    folder.mkdir()
    rows = []
    for kind, title in GOLDEN_BOOK.items():
        parts = [f"# {title}\n"]
        files = [file for file in programs() if file.stem.startswith(f"{kind}_")]
        for file in files:
            found = sections(file.read_text(encoding="utf-8"))
            parts.append(f"## {found.pop('title')}\n\n```python\n{found.pop('program').rstrip()}\n```\n")
            parts += (
                f"<details><summary>{name}</summary>\n\n```text\n{text.rstrip()}\n```\n\n</details>\n"
                for name, text in found.items()
                if text.strip()
            )
        (folder / f"{kind}.md").write_text("\n".join(parts), encoding="utf-8")
        rows.append(f"- [{title}]({kind}.md): {len(files)} programs")
    text = (
        "Each with the text of every stage: bytecode, guards, graphs, loops, fusions and why loops were not fused, "
        "C++ and Triton kernels, problems. The tests compare all of it."
    )
    write_index(folder, f"{len(programs())} programs through the compiler", text, rows, GOLDEN_BOOK)


def write_reference() -> None:
    """Writes the reference pages of the Python functions and of the magics."""
    import compiler_core
    import kernel_magics
    from kernel_magics.magics import CutawayMagics

    folder = PAGES / "reference"
    folder.mkdir()
    parts = ["# Python\n\nFrom the docstrings.\n"]
    for module in (compiler_core, kernel_magics):
        names = [name for name in module.__all__ if name[0] != "_"]
        parts.append(f"## `{module.__name__}`\n\n```{{eval-rst}}")
        for name in names:
            item = getattr(module, name)
            kind = "autoclass" if isinstance(item, type) else "autofunction"
            parts.append(f".. {kind}:: {module.__name__}.{name}\n" + ("   :members:\n" if kind == "autoclass" else ""))
        parts.append("```\n")
    (folder / "python.md").write_text("\n".join(parts), encoding="utf-8")
    magics = ["# Magics\n\nFrom the declarations of the options; `%%compile?` prints the same.\n"]
    for name in {**CutawayMagics.magics["line"], **CutawayMagics.magics["cell"]}:
        magic = getattr(CutawayMagics, name)
        parser = getattr(magic, "parser", None)
        text = parser.format_help() if parser else (magic.__doc__ or "")
        text = re.sub(r"^::\n\n", "", text.strip())
        magics.append(f"## `%{name}`\n\n```text\n{text.strip()}\n```\n")
    (folder / "magics.md").write_text("\n".join(magics), encoding="utf-8")


class Links(HTMLParser):
    """Collects the addresses that a page links to or embeds, and its anchors."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.frames: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.anchors |= {known[name] or "" for name in ("id", "name") if name in known}
        address = known.get("href") if tag in ("a", "link") else known.get("src")
        if address:
            (self.frames if tag == "iframe" else self.links).append(address)


def check_site() -> list[str]:
    """Returns the broken links inside of the site, and the pages that are too large."""
    # an explorer is checked by its own tests
    pages = {page: Links(page) for page in SITE.rglob("*.html") if "explorers" not in page.parts}
    problems = []
    for page, found in pages.items():
        weight = page.stat().st_size
        for address in found.links + found.frames:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            name = page.relative_to(SITE)
            if not target.exists():
                problems.append(f"{name}: no file {address}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                problems.append(f"{name}: no place {address}")
        shown = {(page.parent / unquote(urlsplit(address).path)).resolve() for address in found.frames}
        weight += sum(each.stat().st_size for each in shown if each.exists())
        weight += (SITE / "explorers" / "explorer.js").stat().st_size if found.frames else 0
        if weight > MAX_PAGE_BYTES:
            problems.append(f"{page.relative_to(SITE)}: {weight:,} bytes with its explorers")
    return problems


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--as-they-are", action="store_true", help="do not run the code of pages")
    sys.exit(main(runs_code=not parser.parse_args().as_they_are))
