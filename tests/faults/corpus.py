"""All planted faults, by kind."""

from __future__ import annotations

from tests.faults import breaks, caches_and_meters, costs, divergences, real_scripts, recompiles, reported, user_code

RECOMPILES = [
    *recompiles.RECOMPILES, *real_scripts.RECOMPILES, *reported.RECOMPILES, *user_code.RECOMPILES,
    *caches_and_meters.RECOMPILES,
]  # fmt: skip
BREAKS = [
    *breaks.BREAKS, *real_scripts.BREAKS, *reported.BREAKS, *user_code.BREAKS, *caches_and_meters.BREAKS,
]  # fmt: skip
DIVERGENCES = [*divergences.DIVERGENCES, *reported.DIVERGENCES]
REPEATED = [*costs.REPEATED, *reported.REPEATED, *user_code.REPEATED, *caches_and_meters.REPEATED]
SAVED = [*costs.SAVED, *reported.SAVED, *user_code.SAVED]
INEXACT = [*costs.INEXACT, *reported.INEXACT, *user_code.INEXACT, *caches_and_meters.INEXACT]
MISSED = [*costs.MISSED, *reported.MISSED, *user_code.MISSED, *caches_and_meters.MISSED]
