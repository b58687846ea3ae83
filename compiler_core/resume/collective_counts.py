"""Counts the collectives that ran, of the process groups that a graph uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import distributed


def count_collectives(names: Sequence[str]) -> Any:
    """Returns how many collectives each group has run.  The result equals an earlier one if none ran since."""
    c10d: Any = distributed.distributed_c10d
    try:
        groups = [c10d._resolve_process_group(name) for name in names]
        return [group._get_sequence_number_for_group() for group in groups]
    except Exception:  # such a group does not exist, or its backend does not count
        return object()
