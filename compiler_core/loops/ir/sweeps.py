"""A body divided into sweeps: runs over the inner indices, between which reductions are complete."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from compiler_core.loops.ir.loops import Loops
from compiler_core.loops.ir.statements import Reduce, Statement, Store, dependencies


@dataclass(frozen=True)
class Sweep:
    """The `outer` statements, then one run over all inner indices that executes the `inner` statements.

    `recomputed` are inner statements of earlier sweeps whose values this sweep needs: a printer repeats them before
    `inner`, or has kept their values.  Reduce statements are among `inner`: the sweep accumulates them, and later
    sweeps use the result.
    """

    outer: tuple[Statement, ...]
    inner: tuple[Statement, ...]
    recomputed: tuple[Statement, ...]


def sweeps(loops: Loops, kept: Set[str] = frozenset()) -> list[Sweep]:
    """Divides the body at its reductions: sweep k may use the results of reductions in sweeps before k.

    The last sweep has the remaining statements; its `inner` is empty if all of them are outer ones.  An inner
    statement is in the first sweep that needs it.  The values `kept` stay in registers or memory between sweeps, so
    statements that only they depend on are not recomputed.
    """
    placed = _assign_sweeps(loops)
    found: list[Sweep] = []
    for k in range(max((at for at, _, _ in placed), default=0) + 1):
        outer = tuple(s for at, swept, s in placed if at == k and not swept)
        inner = tuple(s for at, swept, s in placed if at == k and swept)
        earlier = [s for at, swept, s in placed if at < k and swept and not isinstance(s, Reduce)]
        used = {argument for s in inner for argument in s.arguments}
        found.append(Sweep(outer, inner, dependencies(earlier, used, kept)))
    return found


def _assign_sweeps(loops: Loops) -> list[tuple[int, bool, Statement]]:
    """Returns for each statement, in order: the number of its sweep, whether it is an inner one, and itself."""
    depth: dict[str, int] = {}
    needed: dict[str, int] = {}
    placed: list[tuple[int, bool, Statement]] = []
    for s in loops.body:
        at = max((depth[a] for a in s.arguments if isinstance(a, str)), default=0)
        if not isinstance(s, Store):
            depth[s.name] = at + 1 if isinstance(s, Reduce) else at
        placed.append((at, isinstance(s, Reduce) or loops.is_inner(s), s))
    for k, (at, swept, s) in reversed(list(enumerate(placed))):
        if swept and not isinstance(s, Reduce | Store):
            at = needed.get(s.name, at)
            placed[k] = at, swept, s
        needed |= {a: min(at, needed.get(a, at)) for a in s.arguments if isinstance(a, str)}
    return placed
