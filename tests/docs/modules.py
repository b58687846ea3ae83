"""Writes docs/modules.md, a line for each file of the packages:  python -m tests.docs.modules"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.docs.imports import PACKAGES, ROOT

PAGE = ROOT / "docs" / "modules.md"


def summary(file: Path) -> str:
    """The first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse(file.read_text())) or ""
    return re.split(r"(?<=\.)\s", " ".join(text.split("\n\n")[0].split()))[0].rstrip(".:")


def page() -> str:
    """The whole text of docs/modules.md."""
    lines = ["# Modules", "", "`python -m tests.docs.modules` writes this page from the docstrings of the files."]
    folders = sorted({file.parent for package in PACKAGES for file in (ROOT / package).rglob("*.py")})
    for folder in folders:
        name = folder.relative_to(ROOT)
        lines += ["", f"## {name}", "", f"{summary(folder / '__init__.py')}."]
        files = sorted(file for file in folder.glob("*.py") if file.name != "__init__.py")
        if files:
            lines += ["", "| file | what it does |", "|---|---|"]
        for file in files:
            text = summary(file).replace("|", "&#124;")
            lines.append(f"| [{file.name}](../{file.relative_to(ROOT)}) | {text} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
