"""A list of guards as text, and which of them does not hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler_core.errors import UsageError
from compiler_core.guards.kinds import GuardSpec, Mismatch, TensorFacts
from compiler_core.guards.sources import Scope
from compiler_core.records import Guard, Span, Symbol


def first_failure(guards: Sequence[GuardSpec], scope: Scope) -> tuple[GuardSpec, Mismatch] | None:
    """The first guard that does not hold, and why."""
    for guard in guards:
        mismatch = guard.check(scope)
        if mismatch is not None:
            return guard, mismatch
    return None


def guards_text(
    guards: Sequence[GuardSpec], kept: Sequence[bool], symbols: Sequence[Symbol] = ()
) -> tuple[str, list[Span], list[Guard]]:
    """The guards as one Python function, the line of each, and what the record keeps of them.  Those
    that are not `kept` stand there as comments; what graphs call `symbols` is said first."""
    lines = ["def guards(L, G):", *(f"    # {symbol_text(symbol)}" for symbol in symbols), "    return ("]
    spans = [Span(symbol.key, i, i) for i, symbol in enumerate(symbols, start=2)]
    found = listed(guards)
    joined = ""
    for guard, spec, keep in zip(found, guards, kept, strict=True):
        _, _, comment = spec.text.partition("  # ")
        text = f"{joined}{guard.code}" + (f"  # {comment}" if comment else "") if keep else f"# dropped: {guard.code}"
        lines.append(f"        {text}")
        joined = "and " if keep else joined
        guard.dropped = not keep
        spans.append(Span(guard.key, len(lines), len(lines)))
    if not any(kept):
        lines.append("        True")
    lines.append("    )")
    return "\n".join(lines) + "\n", spans, found


def symbol_text(symbol: Symbol) -> str:
    """What a symbol stands for, and what is known of it."""
    if symbol.became is not None:
        return f"{symbol.key} is {symbol.source}, specialised to {symbol.became}: {symbol.condition}"
    low, high = (None if bound is None else f"{bound:g}" for bound in (symbol.low, symbol.high))
    span = "" if low is None and high is None else f", from {low}" if high is None else f", {low or 'any'} to {high}"
    return f"{symbol.key} is {symbol.source}{span}: {symbol.why}"


def listed(guards: Sequence[GuardSpec]) -> list[Guard]:
    """The guards as plain data."""
    return [_listed(f"g{i}", guard) for i, guard in enumerate(guards)]


def _listed(key: str, guard: GuardSpec) -> Guard:
    made = Guard(key, guard.kind, guard.source.text, guard.text.partition("  # ")[0], guard.expected, guard.line)
    if isinstance(guard.value, TensorFacts):
        made.sizes = list(guard.value.sizes)
    return made


def filtered(guards: Sequence[GuardSpec], keep: Callable[[list[Guard]], Sequence[bool]] | None) -> list[bool]:
    """What a guard_filter says of each guard; UsageError where it does not say."""
    if keep is None:
        return [True] * len(guards)
    said = list(keep(listed(guards)))
    if len(said) != len(guards) or not all(isinstance(each, bool) for each in said):
        raise UsageError(f"guard_filter is given {len(guards)} guards and returns True or False for each, not {said!r}")
    return said
