"""A body cut into runs over its inner indices, as a kernel does it."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from compiler_core.loops.ir.loops import Loops
from compiler_core.loops.ir.statements import Reduce, Statement, Store


@dataclass(frozen=True)
class Sweep:
    """`outer` statements, then one run over all inner indices that does the `inner` ones.

    `again` are the inner statements of earlier sweeps whose values this one needs; a printer
    does them anew before `inner`, or has kept their values.  Reduce statements are among
    `inner`: the sweep accumulates them and its successors see the result.
    """

    outer: tuple[Statement, ...]
    inner: tuple[Statement, ...]
    again: tuple[Statement, ...]


def sweeps(loops: Loops, kept: Set[str] = frozenset()) -> list[Sweep]:
    """The body cut at its reductions: sweep k may use what was reduced in sweeps before k.

    The last sweep holds what is left; its `inner` is empty when only outer statements are.  An inner
    statement is in the first sweep that needs it.  What only led to a value of `kept` is not
    done again.
    """
    placed = _placed(loops)
    made: list[Sweep] = []
    for k in range(max((at for at, _, _ in placed), default=0) + 1):
        outer = tuple(s for at, swept, s in placed if at == k and not swept)
        inner = tuple(s for at, swept, s in placed if at == k and swept)
        earlier = [s for at, swept, s in placed if at < k and swept and not isinstance(s, Reduce)]
        made.append(Sweep(outer, inner, _needed(inner, earlier, kept)))
    return made


def _placed(loops: Loops) -> list[tuple[int, bool, Statement]]:
    """Each statement, the sweep that it is in and whether it is swept, in order."""
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


def _needed(users: Sequence[Statement], candidates: Sequence[Statement], kept: Set[str]) -> tuple[Statement, ...]:
    """Those of `candidates` that `users` depend on, directly or not, in order."""
    wanted = {a for s in users for a in s.arguments}
    needed: list[Statement] = []
    for statement in reversed(candidates):
        if not isinstance(statement, Store) and statement.name in wanted:
            wanted.update(() if statement.name in kept else statement.arguments)
            needed.append(statement)
    return tuple(reversed(needed))
