"""The comparison that checks of exercises make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_SHOWN = 200
"""The number of characters of a value that are shown."""


def compare(yours: Mapping[str, Any], reference: Mapping[str, Any]) -> None:
    """Raises an AssertionError that shows the learner's values beside those of the reference, unless all are equal."""
    rows = [(name, yours.get(name), value) for name, value in reference.items()]
    wrong = [row for row in rows if not _are_equal(*row[1:])]
    if wrong:
        lines = [f"{name}: yours {_short(one)}, reference {_short(other)}" for name, one, other in wrong]
        raise AssertionError("\n".join([f"{len(rows) - len(wrong)} of {len(rows)} are right.", *lines]))


def _are_equal(one: Any, other: Any) -> bool:
    import torch

    if isinstance(other, torch.Tensor):
        return isinstance(one, torch.Tensor) and one.shape == other.shape and torch.allclose(one, other, equal_nan=True)
    return bool(one == other)


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."
