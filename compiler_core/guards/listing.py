"""A list of guards as text, and which of them does not hold."""

from __future__ import annotations

from collections.abc import Sequence

from compiler_core.guards.kinds import GuardSpec, Mismatch
from compiler_core.record import Guard, Span
from compiler_core.sources import Scope


def first_failure(guards: Sequence[GuardSpec], scope: Scope) -> tuple[GuardSpec, Mismatch] | None:
    """The first guard that does not hold, and why."""
    for guard in guards:
        mismatch = guard.check(scope)
        if mismatch is not None:
            return guard, mismatch
    return None


def guards_text(guards: Sequence[GuardSpec]) -> tuple[str, list[Span], list[Guard]]:
    """The guards as one Python function, the line of each, and what the record keeps of them."""
    lines = ["def guards(L, G):", "    return ("]
    spans, kept = [], []
    for i, guard in enumerate(guards):
        code, _, comment = guard.text.partition("  # ")
        lines.append(f"        {'and ' if i else ''}{code}" + (f"  # {comment}" if comment else ""))
        key = f"g{i}"
        spans.append(Span(key, len(lines), len(lines)))
        kept.append(Guard(key, guard.kind, guard.source.text, code, guard.expected, guard.line))
    if not guards:
        lines.append("        True")
    lines.append("    )")
    return "\n".join(lines) + "\n", spans, kept
