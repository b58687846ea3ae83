"""CONTRIBUTING.md and docs/modules.md, where a newcomer looks for the file that does something."""

from __future__ import annotations

import builtins
import re
import sys

import pytest

from tests.docs import architecture, modules
from tests.docs.imports import ROOT


@pytest.mark.parametrize("package", ["compiler_core", "kernel_magics"])
def test_every_folder_has_its_line(package: str) -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text().partition(f"| `{package}/` |")[2].partition("\n\n")[0]
    named = re.findall(r"^\| `(.*?)` \|", table, re.MULTILINE)
    folder = ROOT / package
    files = {file.name for file in folder.glob("*.py")} - {"__init__.py"}
    assert sorted(named) == sorted(files | {f"{init.parent.name}/" for init in folder.glob("*/__init__.py")})


def test_every_file_has_its_line() -> None:
    assert modules.PAGE.read_text() == modules.page(), "run `python -m tests.docs.modules`"


@pytest.mark.skipif(sys.version_info[:2] != architecture.PYTHON, reason="the page shows another Python's bytecode")
def test_the_architecture_is_that_of_the_code() -> None:
    assert architecture.PAGE.read_text() == architecture.page().rstrip("\n") + "\n", (
        "run `python -m tests.docs.architecture`"
    )


def test_what_is_added_has_no_other_places() -> None:
    """The recipes name all files of the stages that name their examples."""
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("## Adding to the compiler")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| .*\(`(\w+)`\) \| (.*) \|$", text, re.MULTILINE)
    assert len(rows) == 3
    core = ROOT / "compiler_core"
    stages = [file for file in core.rglob("*.py") if core / "tools" not in file.parents]
    for name, where in rows:
        listed = set(re.findall(r"`(compiler_core/\S+\.py)`", where))
        # the stages after capture use Python's builtins, but know nothing of those in programs
        part = core / "capture" if hasattr(builtins, name) else core
        is_named = re.compile(rf"\b{name}\b")
        seen = [file for file in stages if part in file.parents]
        found = {str(file.relative_to(ROOT)) for file in seen if is_named.search(file.read_text(encoding="utf-8"))}
        assert found == listed, name
