"""Differences from eager that are known and not mended yet: the comparison of kernels passes over them.

Each names a case of the operator database that shows it: `tests/unit/test_operators.py` fails once the case is as
eager's, so that the entry goes.
"""

from __future__ import annotations

from compiler_core.testing.world import World

KNOWN: dict[str, tuple[str, str]] = {
    "raised_backward": (
        "nn_functional_pad_circular[1]",
        "a compiled function that keeps nothing can be differentiated again where eager's formula has kept something",
    ),
}
"""A field of `World`: the case that shows it, and what is wrong."""


def forgiven(want: World, got: World) -> list[str]:
    """Give `got` what `want` has in the fields in which it is known to differ; their names."""
    found = []
    mine, theirs = list(want.raised_backward), list(got.raised_backward)
    if mine != theirs and len(mine) == len(theirs) == 3 and mine[:2] == theirs[:2]:
        got.raised_backward = want.raised_backward
        found.append("raised_backward")
    return [name for name in found if name in KNOWN]
