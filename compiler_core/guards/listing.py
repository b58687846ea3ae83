"""Guards as text and as plain data for the record; guard filters; which guards hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler_core.errors import UsageError
from compiler_core.guards.kinds import NOTHING, GuardSpec
from compiler_core.guards.sources import Scope, Source, path
from compiler_core.guards.tensor_guards import TensorFacts
from compiler_core.records import FailedGuard, Guard, Span, Symbol


def all_hold(guards: Sequence[GuardSpec], scope: Scope) -> bool:
    """Whether all guards hold."""
    return all(guard.holds(scope) for guard in guards)


def failures(guards: Sequence[GuardSpec], scope: Scope) -> list[FailedGuard]:
    """Returns each fact for which a guard does not hold.

    What differs as a consequence is left out: what is read from an object that is another one, or of another class,
    and the list of keys of a dict that has another key.
    """
    found: list[FailedGuard] = []
    replaced: set[Source] = set()
    for guard in guards:
        if any(source in replaced for source in path(guard.source)):
            continue
        failed = guard.failures(scope)
        found += failed
        if any(each.aspect in ("class", "identity") or each.got == NOTHING for each in failed):
            replaced.add(guard.source)
    with_keys = {each.source for each in found if each.aspect == "key"}
    return [each for each in found if each.aspect not in ("keys", "length") or each.source not in with_keys]


def guards_text(
    guards: Sequence[GuardSpec], kept: Sequence[bool], symbols: Sequence[Symbol] = ()
) -> tuple[str, list[Span], list[Guard]]:
    """Returns the guards as one Python function, the span of each in it, and the guards as plain data.

    Guards that are not `kept` become comments.  Comments at the top explain the `symbols` of the graphs.
    """
    lines = ["def guards(L, G):", *(f"    # {symbol_text(symbol)}" for symbol in symbols), "    return ("]
    spans = [Span(symbol.key, i, i) for i, symbol in enumerate(symbols, start=2)]
    found = guard_records(guards)
    joined = ""
    for guard, spec, keep in zip(found, guards, kept, strict=True):
        _, separator, comment = spec.text.partition("  # ")
        if keep:
            lines.append(f"        {joined}{guard.code}{separator}{comment}")
            joined = "and "
        else:
            lines.append(f"        # dropped: {guard.code}")
        guard.dropped = not keep
        spans.append(Span(guard.key, len(lines), len(lines)))
    if not any(kept):
        lines.append("        True")
    lines.append("    )")
    return "\n".join(lines) + "\n", spans, found


def symbol_text(symbol: Symbol) -> str:
    """Returns what a symbol stands for, its range or the number it became, and why, as one line."""
    if symbol.became is not None:
        return f"{symbol.key} is {symbol.source}, specialised to {symbol.became}: {symbol.condition}"
    if symbol.equals is not None:
        return f"{symbol.key} is {symbol.source}, which must equal {symbol.equals}: {symbol.condition}"
    low, high = (None if bound is None else f"{bound:g}" for bound in (symbol.low, symbol.high))
    span = ""
    if high is not None:
        span = f", {low or 'any'} to {high}"
    elif low is not None:
        span = f", from {low}"
    return f"{symbol.key} is {symbol.source}{span}: {symbol.why}"


def guard_records(guards: Sequence[GuardSpec]) -> list[Guard]:
    """Returns the guards as plain data for the record."""
    return [_guard_record(f"g{i}", guard) for i, guard in enumerate(guards)]


def _guard_record(key: str, guard: GuardSpec) -> Guard:
    code, _, _ = guard.text.partition("  # ")
    record = Guard(key, guard.kind, guard.source.text, code, guard.expected, guard.line)
    record.name, record.caller = guard.source.shown, guard.caller
    if isinstance(guard.value, TensorFacts):
        record.sizes = list(guard.value.sizes)
    return record


def apply_guard_filter(guards: Sequence[GuardSpec], keep: Callable[[list[Guard]], Sequence[bool]] | None) -> list[bool]:
    """Calls the user's `guard_filter`, if any; returns for each guard whether it is kept.

    Raises UsageError if the filter does not return one bool for each guard.
    """
    if keep is None:
        return [True] * len(guards)
    kept = list(keep(guard_records(guards)))
    if len(kept) != len(guards) or not all(isinstance(each, bool) for each in kept):
        raise UsageError(f"guard_filter is given {len(guards)} guards and returns True or False for each, not {kept!r}")
    return kept
