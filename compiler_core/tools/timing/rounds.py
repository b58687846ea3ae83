"""Times all forms of a call in turn (`in_turn`).

`faster` decides whether a form is faster or slower than the first one, the reference.  Where the times
vary too much to say, they are measured once more.
"""

from __future__ import annotations

import functools
import gc
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from compiler_core.errors import CutawayError
from compiler_core.records import needing_action
from compiler_core.records.timings import Timing, Timings
from compiler_core.tools.in_turn import MIN_ROUNDS, in_turn
from compiler_core.tools.questions.verdict import find_pays_off
from compiler_core.tools.timing.faster import compare, fastest, slowest
from compiler_core.tools.timing.forms import Form, Run, common_repeats
from compiler_core.tools.timing.machine_load import machine_load
from compiler_core.tools.timing.saved_state import SavedState

MAX_ROUNDS = 2000
FEW_ROUNDS = 5
"""The least number of rounds for calls that are too slow for `MIN_ROUNDS`."""
MAX_SECONDS = 60.0
"""`MIN_ROUNDS` are run if they take no longer than this."""
Progress = Callable[[str, float], None]
"""Called with what is done, and the share of all rounds that is."""


def time_forms(
    forms: Sequence[Form],
    state: SavedState,
    seconds: float,
    progress: Progress = lambda text, share: None,
    gradients: Sequence[torch.Tensor] = (),
) -> Timings:
    """Times forms of one call, the first of which is the reference.

    Args:
        forms: the forms.
        state: the state that the calls change; it is restored after each sample and at the end.
        seconds: for how long all forms together are timed, besides compiling.
        progress: see `Progress`.
        gradients: the leaves whose gradients are dropped before each sample.

    Returns:
        The times; `Timings.failed` has the forms whose first calls raised an exception.

    Raises:
        Exception: what the reference raises.
    """
    result = Timings(load=machine_load())
    runs: list[Run] = []
    with state.preserved():
        for form in forms:
            progress(f"{form.name}: first calls", 0.0)
            run = Run(form, gradients)
            try:
                run.warm_up(state.restore)
            except Exception as error:
                state.restore()
                if not runs:
                    raise
                result.failed[form.name] = str(error) if isinstance(error, CutawayError) else _error_text(error)
            else:
                runs.append(run)
        samples = _sample(runs, state, seconds, progress)
        if any(compare(times, samples[0]).outcome == "unclear" for times in samples):
            samples = _sample(runs, state, seconds, progress)
        peaks = []
        for run in runs:
            peaks.append(run.peak_bytes())
            state.restore_quickly()
    for run, times, peak in zip(runs, samples, peaks, strict=True):
        result.rows.append(timing(run, times, samples[0], peak))
    find_pays_off(result)
    return result


def _error_text(error: Exception) -> str:
    first_line = str(error).strip().partition("\n")[0]
    return f"it raises {type(error).__name__}: {first_line}"


def timing(run: Run, times: list[float], reference: list[float], peak: int) -> Timing:
    """Returns the timing of a form: a summary of its times beside those of the reference."""
    compared = compare(times, reference)
    return Timing(
        name=run.form.name,
        median=statistics.median(times),
        low=fastest(times),
        high=slowest(times),
        rounds=len(times),
        compile_seconds=_compile_seconds(run.first_seconds, times),
        peak_bytes=peak,
        speed=compared.speed,
        differs=compared.outcome in ("faster", "slower"),
        unclear=compared.outcome == "unclear",
        compiled_again=run.compiled_again,
        problems=len(needing_action(run.compiles.problems)) if run.compiles.compiles else None,
    )


def _compile_seconds(first: float, times: list[float]) -> float:
    """Returns how much longer the first call took; 0 if it took no longer than one of the others may."""
    return first - statistics.median(times) if first > 2 * max(times) else 0.0


def _sample(runs: Sequence[Run], state: SavedState, seconds: float, progress: Progress) -> list[list[float]]:
    """Returns the seconds of one call of each form in each round."""
    repeats = common_repeats(runs)
    shown = 0.0

    def sample(run: Run) -> float:
        took = run.sample(repeats)
        state.restore_quickly()
        return took

    def say(round_: int, took: float) -> None:
        nonlocal shown
        if took - shown > 0.1 or not round_:
            shown = took
            progress("timing", min(round_ / MIN_ROUNDS, 1.0) if took > seconds else took / seconds)

    with _without_collection():
        return in_turn(
            [functools.partial(sample, run) for run in runs],
            seconds, least=MIN_ROUNDS, most=MAX_ROUNDS, few=FEW_ROUNDS, longest=MAX_SECONDS, progress=say,
        )  # fmt: skip


@contextmanager
def _without_collection() -> Iterator[None]:
    """Context manager that turns off garbage collection, which would be in the times of one form by chance."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
