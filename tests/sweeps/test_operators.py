"""Compares one sample of every 20th operator of PyTorch's database with eager; `make operators` runs all samples."""

from __future__ import annotations

import collections
import warnings

import pytest

pytest.importorskip("expecttest", reason="PyTorch's operator database needs the package expecttest")

from compiler_core.capture import break_kinds
from compiler_core.tools.testing import KNOWN_DIFFERENCES
from tests.sampling import sample
from tests.sweeps.operator_sweep import VERDICTS, cases_of, names, run, sample_of

pytestmark = pytest.mark.slow

PARTS = 20
FALLBACKS = (
    "cannot functionalize polygamma_",
    "cannot differentiate the graph: ",
    "Could not find a token for effect",
    "changes the shape of",
)
"""The reasons for which a graph of the database may run eagerly; a new reason is an unnoticed new fallback."""


@pytest.mark.parametrize("part", sample(range(PARTS), PARTS))
def test_equal_to_eager(part: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = [run(case, "aot_eager") for name in names()[part::PARTS] for case in sample_of(name)]
    bad = [r for r in results if r.verdict in ("wrong", "crashed")]
    assert not bad, "\n".join(f"{r.verdict} {r.case}: {r.reason}" for r in bad)
    new = [r for r in results if r.verdict == "refused" and not _is_known_reason(r.reason)]
    assert not new, "\n".join(f"{r.case}: {r.reason}" for r in new)
    counts = collections.Counter(r.verdict for r in results)
    assert set(counts) <= set(VERDICTS)
    assert counts["equal"] + counts["known"] > 0.6 * len(results), counts


def _is_known_reason(reason: str) -> bool:
    """Whether a reason is a graph break, which the user sees, or one of the known fallbacks."""
    is_break = any(reason.startswith(f"{kind}: ") for kind in break_kinds.KINDS)
    return is_break or any(text in reason for text in FALLBACKS)


@pytest.mark.parametrize("field", KNOWN_DIFFERENCES)
def test_a_known_difference_is_still_there(field: str) -> None:
    """If this fails, remove the entry from the table."""
    name = KNOWN_DIFFERENCES[field][0]
    case = next(case for case in cases_of(name.partition("[")[0]) if case.name == name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = run(case, "aot_eager")
    assert (result.verdict, result.reason) == ("known", field)
