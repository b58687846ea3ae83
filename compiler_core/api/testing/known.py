"""Differences from eager that are known and not mended yet: the comparison of kernels passes over them.

Each names a case of the operator database that shows it: `tests/sweeps/test_operators.py` fails once the case is as
eager's, so that the entry goes.
"""

from __future__ import annotations

from compiler_core.api.testing.world import World

KNOWN: dict[str, tuple[str, str]] = {}
"""A field of `World`: the case that shows it, and what is wrong."""


def forgiven(want: World, got: World) -> list[str]:
    """Give `got` what `want` has in the fields in which it is known to differ; their names.

    One difference has no case that always shows it: a third backward, for which nothing was kept, raises where
    eager's does not.  It was seen for ``linear_cross_entropy_chunked``, only after other cases in one process.
    """
    ours, eagers = list(got.raised_backward), list(want.raised_backward)
    if len(ours) == 3 and ours[2] is not None and [*ours[:2], None] == eagers:
        got.raised_backward = want.raised_backward
        return ["raised_backward"]
    return []
