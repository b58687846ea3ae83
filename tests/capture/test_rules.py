"""The table of rules for calls."""

from __future__ import annotations

import pytest

from compiler_core.capture.rules.table import HANDLERS, handles
from compiler_core.errors import CompilerBug


def test_a_callable_has_one_rule() -> None:
    assert len in HANDLERS
    with pytest.raises(CompilerBug, match="len has two rules"):
        handles(len)(lambda tx: tx)
