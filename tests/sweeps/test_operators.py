"""A fixed tenth of PyTorch's operator database through the core engine; `make operators` runs all of it."""

from __future__ import annotations

import collections
import functools
import warnings

import pytest

pytest.importorskip("expecttest", reason="PyTorch's operator database needs the package expecttest")

from compiler_core.api.testing import KNOWN
from compiler_core.capture import break_kinds
from tests.sweeps.operator_sweep import VERDICTS, Case, cases, cases_of, run

PARTS = 20
FALLBACKS = (
    "cannot functionalise polygamma_",
    "cannot differentiate the graph: ",
    "Could not find a token for effect",
    "changes the shape of",
)
"""Why a graph of the database may run as eager runs it; a new reason is a new fallback, which nobody hears of."""


@functools.cache
def tenth() -> list[Case]:
    return list(cases(share=(3, 10)))


@pytest.mark.parametrize("part", range(PARTS))
def test_equal_to_eager(part: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = [run(case, "aot_eager") for case in tenth()[part::PARTS]]
    bad = [r for r in results if r.verdict in ("wrong", "crashed")]
    assert not bad, "\n".join(f"{r.verdict} {r.case}: {r.reason}" for r in bad)
    new = [r for r in results if r.verdict == "refused" and not _is_known_reason(r.reason)]
    assert not new, "\n".join(f"{r.case}: {r.reason}" for r in new)
    counts = collections.Counter(r.verdict for r in results)
    assert set(counts) <= set(VERDICTS)
    assert counts["equal"] + counts["known"] > 0.7 * len(results), counts


def _is_known_reason(reason: str) -> bool:
    """Graph breaks are shown to the user; a graph that is not compiled has one of a few reasons."""
    is_break = any(reason.startswith(f"{kind}: ") for kind in break_kinds.KINDS)
    return is_break or any(text in reason for text in FALLBACKS)


@pytest.mark.parametrize("field", KNOWN)
def test_a_known_difference_is_still_there(field: str) -> None:
    """Take the entry out of the table where this fails."""
    name = KNOWN[field][0]
    case = next(case for case in cases_of(name.partition("[")[0]) if case.name == name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = run(case, "aot_eager")
    assert (result.verdict, result.reason) == ("known", field)
