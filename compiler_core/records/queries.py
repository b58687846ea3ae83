"""Questions that a record answers, as plain data.

    why_kept(record, item)      what is kept for the backward there, why, and what it would cost to drop it
    added_by_autograd(record, item)   what autograd added for a line or an operation
    why_static(record, source)  which line made a dimension or a number static

An item is whatever a reader can point at: a line of source (`Record.line` finds it), an instruction, a
node of a graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from compiler_core.records import Artifact, Compile, Expansion, Guard, ItemId, Record, Value


@dataclass(frozen=True, slots=True)
class Drop:
    """What it would take to drop a value that is kept."""

    bytes: int
    """Memory that this frees between forward and backward."""
    ns: int
    """The estimated time that the backward takes longer."""
    again: tuple[ItemId, ...]
    """The operations, in the joint graph, that it would run again."""
    sources: tuple[ItemId, ...]
    """What is kept, and what they begin with."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A value that the forward keeps for the backward."""

    value: Value
    lines: tuple[ItemId, ...]
    """The user's lines that made it."""
    readers: tuple[ItemId, ...]
    """The operations of the backward that read it."""
    drop: Drop | None
    """None where it could not be computed again: an input, a random number."""


@dataclass(frozen=True, slots=True)
class Static:
    """A dimension of a tensor, or a number, of which a compile takes one value alone."""

    compile: str
    source: str
    """A Python expression, such as ``L['x'].size()[0]``."""
    value: int
    line: ItemId | None
    """The user's line that made it so, which is the first to look at a tensor of which only this size was seen."""
    guard: str
    """The guard's key."""


# ---- kept for the backward -----------------------------------------------------------------


def why_kept(record: Record, item: ItemId) -> list[Kept]:
    """The values that are kept for the backward and came from `item`, in the order in which they are made; of a node
    of the forward graph, that one alone."""
    return [kept for compile_ in record.compiles for kept in _kept(compile_, item)]


def _kept(compile_: Compile, item: ItemId) -> Iterator[Kept]:
    if compile_.partition is None:
        return
    forward, joint, backward = (compile_.find(name) for name in ("forward", "joint", "backward"))
    origins = _Origins(compile_)
    wanted = {item, *(origins.sources(item) if _is_in(backward, item) else ())}
    saved = {_key(v.node): v for v in compile_.partition.values if v.decision == "saved"}
    again = _Again(joint, set(saved), {n.key for n in backward.graph.nodes} if backward.graph else set())
    readers = _readers(backward)
    for name, value in saved.items():
        above = origins.of(value.node)
        if value.node != item and (_is_in(forward, item) or wanted.isdisjoint(above)):
            continue
        lines = tuple(i for i in above if i.startswith("src:"))
        drop = None if value.drop_ns is None else Drop(value.bytes, value.drop_ns, *again.drop(name))
        reading = readers.get(name) or readers.get(f"{name}_copy") or []  # see `partition`
        yield Kept(value, lines, tuple(backward.item(r) for r in reading), drop)


class _Origins:
    """What the items of one compile came from."""

    def __init__(self, compile_: Compile) -> None:
        self._sources: dict[ItemId, list[ItemId]] = {}
        for edge in compile_.edges:
            self._sources.setdefault(edge.made, []).extend(edge.sources)

    def sources(self, item: ItemId) -> list[ItemId]:
        return self._sources.get(item, [])

    def of(self, item: ItemId) -> list[ItemId]:
        """Itself and all that it came from, nearest first."""
        found = dict.fromkeys([item])
        work = list(found)
        for reached in work:
            new = [s for s in self.sources(reached) if s not in found]
            found.update(dict.fromkeys(new))
            work.extend(new)
        return list(found)


class _Again:
    """What would have to run again for a value of the joint graph."""

    def __init__(self, joint: Artifact, saved: set[str], backward: set[str]) -> None:
        assert joint.graph is not None
        self._joint, self._saved, self._backward = joint, saved, backward
        self._inputs: dict[str, list[str]] = {}
        for source, node in joint.graph.edges:
            self._inputs.setdefault(node, []).append(source)

    def drop(self, name: str) -> tuple[tuple[ItemId, ...], tuple[ItemId, ...]]:
        """The operations that the backward does not run as it is, and the kept values that all begin with."""
        found, kept = dict.fromkeys([name]), dict[str, None]()
        work = list(found)
        for node in work:
            for source in self._inputs.get(node, ()):
                if source in self._saved:
                    kept[source] = None
                elif source not in found:
                    found[source] = None
                    work.append(source)
        added = [n for n in reversed(found) if n == name or n not in self._backward]
        return self._items(added), self._items(kept)

    def _items(self, names: Iterable[str]) -> tuple[ItemId, ...]:
        return tuple(map(self._joint.item, names))


def _readers(backward: Artifact) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for source, node in backward.graph.edges if backward.graph else ():
        found.setdefault(source, []).append(node)
    return found


# ---- added by autograd ---------------------------------------------------------------------


def added_by_autograd(record: Record, item: ItemId) -> list[Expansion]:
    """For each captured operation that came from `item`, a line or the operation itself, what it became: `backward`
    are the operations that autograd added, by its `functions`."""
    return [e for c in record.compiles for e in _expansions(c, item) if e.backward]


def _expansions(compile_: Compile, item: ItemId) -> Iterator[Expansion]:
    origins = _Origins(compile_)
    yield from (e for e in compile_.expansions if item in origins.of(e.node))


# ---- static --------------------------------------------------------------------------------


def why_static(record: Record, source: str = "") -> list[Static]:
    """The dimensions and numbers whose source begins with `source` (``L['x']``), and of which a compile takes one
    value alone."""
    found = [s for c in record.compiles for guard in c.guards if not guard.dropped for s in _static(c.id, guard)]
    return [s for s in found if s.source.startswith(source)]


def _static(compile_id: str, guard: Guard) -> Iterator[Static]:
    for i, size in enumerate(guard.sizes or ()):
        if size is not None:
            yield Static(compile_id, f"{guard.source}.size()[{i}]", size, guard.line, guard.key)
    number = guard.code.removeprefix(f"{guard.source} == ")
    if number != guard.code and number.removeprefix("-").isdigit():
        yield Static(compile_id, guard.source, int(number), guard.line, guard.key)


def _is_in(artifact: Artifact, item: ItemId) -> bool:
    return item.startswith(f"{artifact.id}#")


def _key(item: ItemId) -> str:
    return item.rpartition("#")[2]
