"""Names in generated code."""

from __future__ import annotations

from collections.abc import Container


def unused_name(name: str, taken: Container[str]) -> str:
    """Returns `name`, with as many underscores appended as it takes to differ from all names in `taken`."""
    while name in taken:
        name += "_"
    return name
