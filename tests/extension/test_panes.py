"""The kernel and the page know the same panes."""

from __future__ import annotations

import re
from pathlib import Path

from kernel_magics.display.messages import PANES

REGISTRY = Path(__file__).parents[2] / "extension" / "src" / "view" / "panes" / "registry.ts"


def test_the_kernel_accepts_the_panes_that_the_page_has() -> None:
    text = REGISTRY.read_text(encoding="utf-8")
    listed = text[text.index("export const PANES") : text.index("\n];")]
    assert sorted(re.findall(r'\bname: "(\w+)"', listed)) == sorted(PANES)
