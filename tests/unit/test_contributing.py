"""CONTRIBUTING.md, where a newcomer looks for the file that does something."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("package", ["compiler_core", "kernel_magics"])
def test_every_module_has_its_place(package: str) -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text().partition(f"| `{package}/` |")[2].partition("\n\n")[0]
    named = [name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(.*?)`", row)]
    folder = ROOT / package
    modules = {file.name for file in folder.glob("*.py")} - {"__init__.py"}
    assert sorted(named) == sorted(modules | {f"{init.parent.name}/" for init in folder.glob("*/__init__.py")})
