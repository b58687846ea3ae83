"""tests/smoke.txt names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("line", (ROOT / "tests" / "smoke.txt").read_text().splitlines())
def test_it_exists(line: str) -> None:
    file, _, name = line.partition("::")
    text = (ROOT / file).read_text()
    assert not name or re.search(rf"^def {name}\(", text, re.MULTILINE)
