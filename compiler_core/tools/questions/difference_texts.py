"""Comparisons of two runs, and of a trial of an advice, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from compiler_core.records.differences import GRAPHS, SECONDS, AdviceTrial, Comparison, Difference, Total
from compiler_core.records.timings import time_text

MAX_TEXT = 160
"""Characters printed of one side of a difference."""

_MAIN_TOTALS = ("graphs", "graph breaks", "recompiles", "kernels", "kernel microseconds", "compile seconds")
_TIMES = ("compile seconds", "of these in ")


def comparison_text(found: Comparison, which: Literal["all", "changes", "brief"]) -> str:
    """Returns a comparison as text: the whole, as `Comparison.changes` describes, or as `Comparison.brief` does."""
    if which == "all":
        return _table(found, found.totals, found.lines)
    if which == "brief":
        main = [t for t in found.totals if t.name in _MAIN_TOTALS and (t.before or t.after)]
        numbers = ", ".join(" ".join([name, before, "/", after]) for name, before, after in map(_shown, main))
        return "\n".join([f"{found.before} / {found.after}: {numbers}", *_remarks(found)])
    totals = [t for t in found.totals if t.before != t.after and not t.name.startswith(_TIMES)]
    text = _table(found, totals, [each for each in found.lines if each.aspect != "compile time"])
    return text if totals or len(text.splitlines()) > 2 else f"{text}\nnothing else changed"


def _remarks(found: Comparison) -> list[str]:
    rows = [f"{name} differs: {how}" for name, how in (found.values or {}).items()]
    rows += ["values: the same"] if found.values == {} else []
    rows += [f"this may be right: {found.random}"] if found.values and found.random else []
    rows += [f"not copied, both runs used it: {name}" for name in found.shared]
    return rows + [f"note: {note}" for note in found.notes]


def _table(found: Comparison, totals: Sequence[Total], lines: Sequence[Difference]) -> str:
    shown = list(map(_shown, totals))
    width = max((len(name) for name, _, _ in shown), default=0)
    rows = [f"{'':{width}}  {found.before:>14}  {found.after:>14}"]
    rows += [f"{name:{width}}  {before:>14}  {after:>14}" for name, before, after in shown]
    for each in lines:
        if each.state != "same":
            at = f"line {each.line}: {each.text.strip()}" if each.line else "no line"
            rows += [f"{each.aspect} {each.state}, {at}"]
            sides = ((found.before, each.before, each.after), (found.after, each.after, each.before))
            rows += [f"    {title}: {_short(_only_in(texts, others))}" for title, texts, others in sides]
    return "\n".join(rows + _remarks(found))


def _shown(total: Total) -> tuple[str, str, str]:
    """Returns the name of a total, and both sides as text; a time has the unit that fits it."""
    name = total.name
    if name.endswith(" microseconds"):
        return f"{name.removesuffix('microseconds')}time", _time(total.before, 1e-6), _time(total.after, 1e-6)
    if name.startswith(_TIMES):
        return name.replace("seconds", "time"), _time(total.before, 1.0), _time(total.after, 1.0)
    return name, _count(total.before), _count(total.after)


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _time(value: float | None, unit: float) -> str:
    return "" if value is None else time_text(value * unit)


def _only_in(texts: list[str], others: list[str]) -> list[str]:
    """Returns the texts that the other side does not have as often; all if there is none, so that order differs."""
    return list((Counter(texts) - Counter(others)).elements())


def _short(texts: list[str]) -> str:
    text = " ".join(", ".join(texts).split()) or "nothing"
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} ... ({len(texts)})"


def trial_numbers(trial: AdviceTrial) -> str:
    """`AdviceTrial.numbers`."""
    counts = [total for total in trial.totals if total.name != SECONDS and (total.before or total.after)]
    changed = [each for each in counts if each.before != each.after]
    main = [each for each in changed if each.name != GRAPHS]
    shown = [_became(each) for each in main or changed or counts[:1]]
    if trial.is_timed:
        times = [total for total in trial.totals if total.name == SECONDS]
        shown = [
            f"compiling took {time_text(t.before or 0)} in one run, {time_text(t.after or 0)} in another" for t in times
        ] + shown
    return ", ".join(shown)


def _became(total: Total) -> str:
    before, after = f"{total.before or 0:.0f}", f"{total.after or 0:.0f}"
    name = total.name.removesuffix("s") if before == "1" else total.name
    return f"{before} {name} {'stayed' if before == after else 'became'} {after}"
