"""The fixture ``assert_compiles`` of pytest.  Importing this imports no PyTorch; using the fixture does.

A project names this module in ``pytest_plugins``.  It has no entry point, with which pytest would find it by itself:
pytest rewrites the assertions of every module of a distribution that has one, and keeps a second file of its bytecode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def assert_compiles() -> Callable[..., Any]:
    """`compiler_core.assert_compiles`: asserts how many graphs and recompiles a call takes."""
    from compiler_core.tools.assertions.compiles import assert_compiles as function

    return function
