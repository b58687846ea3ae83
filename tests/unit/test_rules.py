"""The table of rules for calls."""

from __future__ import annotations

import pytest

from compiler_core.errors import CompilerBug
from compiler_core.values.rules import HANDLERS, handles


def test_a_callable_has_one_rule() -> None:
    assert len in HANDLERS
    with pytest.raises(CompilerBug, match="len has two rules"):
        handles(len)(lambda tx: tx)
