"""docs/planted_faults.md lists all planted faults, of which there are at least 120."""

from __future__ import annotations

from tests.docs import planted_faults


def test_the_page_lists_all_faults() -> None:
    assert planted_faults.PAGE.read_text() == planted_faults.page(), "run `python -m tests.docs.planted_faults`"
    assert sum(map(len, planted_faults.FAULTS.values())) >= 120
