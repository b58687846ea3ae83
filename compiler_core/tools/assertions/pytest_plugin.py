"""The fixture ``assert_compiles`` of pytest.  Importing this imports no PyTorch; using the fixture does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def assert_compiles() -> Callable[..., Any]:
    """`compiler_core.assert_compiles`: asserts how many graphs and recompiles a call takes."""
    from compiler_core.tools.assertions.compiles import assert_compiles as function

    return function
