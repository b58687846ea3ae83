"""Queries on a record; the results are plain data.

    why_kept(record, item)            the values that are saved for the backward, why, and the cost of dropping them
    added_by_autograd(record, item)   the operations that autograd added for a line or an operation
    why_static(record, source)        the line that made a dimension or a number static
    first_inaccurate(compile_)        the first value with a large error, after `compiler_core.check_accuracy`
    users_first_line(record, frame)   the user's line that a frame of a library reaches first

An item is the id of a line of source (`Record.line` finds it), an instruction, or a node of a graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from compiler_core.records import Accuracy, Artifact, Compile, Expansion, Frame, Guard, ItemId, Record, ValueDecision
from compiler_core.records.capture import library_of
from compiler_core.records.user_lines import LineRef


@dataclass(frozen=True, slots=True)
class DropCost:
    """The cost of recomputing a value in the backward instead of saving it."""

    bytes: int
    """Bytes of memory that would be free between forward and backward."""
    ns: int
    """The estimated nanoseconds by which the backward would be slower."""
    again: tuple[ItemId, ...]
    """The operations of the joint graph that it would run again."""
    sources: tuple[ItemId, ...]
    """The saved values from which these operations start."""


@dataclass(frozen=True, slots=True)
class KeptValue:
    """A value that the forward saves for the backward."""

    value: ValueDecision
    lines: tuple[ItemId, ...]
    """The user's lines that it stems from."""
    readers: tuple[ItemId, ...]
    """The operations of the backward that read it."""
    drop: DropCost | None
    """None if it cannot be recomputed: an input, a random number."""


@dataclass(frozen=True, slots=True)
class StaticSize:
    """A dimension of a tensor, or a number, for which a compile accepts one value only."""

    compile: str
    source: str
    """A Python expression, such as ``L['x'].size()[0]``."""
    value: int
    line: ItemId | None
    """The user's line that made it static, or the first that used the tensor if no other size was seen."""
    guard: str
    """The guard's key."""


@dataclass(frozen=True, slots=True)
class InaccurateValue:
    """A value with a large error, compared with float64."""

    accuracy: Accuracy
    node: ItemId
    """Where the error arises: of eager's errors, the node may be inside of the kernel that computes the value."""
    lines: tuple[ItemId, ...]
    """The user's lines that it stems from, the nearest first."""
    is_eagers: bool
    """Whether eager PyTorch has an error of that size, too: the precision is too low, and the kernel is right."""


# ---- errors of values ----------------------------------------------------------------------

SMALL_ERRORS = {"bfloat16": 3e-2, "float16": 4e-3}
"""The greatest error of a value, by its type, that is small; of other types it is `SMALL_ERROR`."""
SMALL_ERROR = 1e-3
WRONG = 10
"""An error that is this many times eager PyTorch's is the kernel's."""
_ROUNDING = 1e-6


def first_inaccurate(compile_: Compile) -> InaccurateValue | None:
    """Returns the first value, in the order of the graphs, with an error of the kernel's, else one of its precision.

    Args:
        compile_: a compile whose values `compiler_core.check_accuracy` has compared.

    Example::

        compiler_core.check_accuracy(record)
        first = compiler_core.first_inaccurate(record.compiles[0])
        print(first and first.lines)
    """
    links, types = _Links(compile_), _types(compile_)
    found: InaccurateValue | None = None
    for each in compile_.accuracy:
        eager = float("inf") if each.eager is None else each.eager
        error = float("inf") if each.error is None else each.error
        is_eagers = error <= WRONG * max(eager, _ROUNDING)
        if is_eagers and (found is not None or error <= SMALL_ERRORS.get(types.get(each.node, ""), SMALL_ERROR)):
            continue
        node = each.first if is_eagers and each.first else each.node
        lines = tuple(item for item in links.origins(node) if item.startswith("src:"))
        found = InaccurateValue(each, node, lines, is_eagers)
        if not is_eagers:
            return found
    return found


def _types(compile_: Compile) -> dict[ItemId, str]:
    graphs = [(artifact, artifact.graph) for artifact in compile_.artifacts if artifact.graph]
    return {artifact.item(node.key): node.dtype or "" for artifact, graph in graphs for node in graph.nodes}


# ---- saved for the backward ----------------------------------------------------------------


def why_kept(record: Record, item: ItemId) -> list[KeptValue]:
    """Returns the values that are saved for the backward and stem from `item`, in the order of the forward.

    Args:
        record: the record of a compile with gradients.
        item: a line or node; for a node of the forward graph only that value is returned, for a node of the backward
            graph the values from which it was computed.

    Returns:
        Each value with its size in bytes, the reason why it is saved, its readers in the backward, and the cost of
        dropping it in nanoseconds.  An empty list if nothing saved stems from `item`.

    Example::

        line = record.line("model.py", 12)
        for kept in compiler_core.why_kept(record, line):
            print(kept.value.bytes, kept.value.reason)
    """
    return [kept for compile_ in record.compiles for kept in _kept_values(compile_, item)]


def _kept_values(compile_: Compile, item: ItemId) -> Iterator[KeptValue]:
    saved = [v for v in compile_.partition.values if v.decision == "saved"] if compile_.partition else []
    names = {artifact.id: artifact.name for artifact in compile_.artifacts}
    parts: dict[str, dict[str, ValueDecision]] = {}
    """The saved values of each part of the graph, by the beginning of its names: empty for a whole graph."""
    for value in saved:
        part, dot, _ = names[value.node.rpartition("#")[0]].rpartition(".")
        parts.setdefault(part + dot, {})[_key(value.node)] = value
    for part, values in parts.items():
        yield from _kept_in(compile_, part, values, item)


def _kept_in(compile_: Compile, part: str, saved: dict[str, ValueDecision], item: ItemId) -> Iterator[KeptValue]:
    """Yields the values saved by one part of a graph, or by a whole one, that stem from an item."""
    forward, joint, backward = (compile_.find(part + name) for name in ("forward", "joint", "backward"))
    links = _Links(compile_)
    wanted = {item, *(links.sources(item) if _is_in(backward, item) else ())}
    recomputation = _Recomputation(
        joint, set(saved), {n.key for n in backward.graph.nodes} if backward.graph else set()
    )
    readers = _readers(backward)
    for name, value in saved.items():
        origins = links.origins(value.node)
        if value.node != item and (_is_in(forward, item) or wanted.isdisjoint(origins)):
            continue
        lines = tuple(i for i in origins if i.startswith("src:"))
        drop = None if value.drop_ns is None else DropCost(value.bytes, value.drop_ns, *recomputation.of(name))
        # the partition may copy a saved value, see `autograd.partition`
        reading = readers.get(name) or readers.get(f"{name}_copy") or []
        yield KeptValue(value, lines, tuple(backward.item(r) for r in reading), drop)


def users_name(compile_: Compile, item: ItemId) -> tuple[str, ItemId | None]:
    """Returns the name of a value of a graph, and the user's line that computes it: for an input its place, such as
    ``self.fc.weight``, and no line."""
    places = {a.item(n.key): n.place for a in compile_.captured_graphs if a.graph for n in a.graph.nodes if n.place}
    origins = _Links(compile_).origins(item)
    if place := next((places[each] for each in origins if each in places), ""):
        return place, None
    return _key(item), next((each for each in origins if each.startswith("src:")), None)


class _Links:
    """Follows the links of one compile from items to their sources."""

    def __init__(self, compile_: Compile) -> None:
        self._sources: dict[ItemId, list[ItemId]] = {}
        for edge in compile_.edges:
            self._sources.setdefault(edge.made, []).extend(edge.sources)

    def sources(self, item: ItemId) -> list[ItemId]:
        return self._sources.get(item, [])

    def origins(self, item: ItemId) -> list[ItemId]:
        """Returns the item and all items it was made from, directly or not, the nearest first."""
        found = dict.fromkeys([item])
        work = list(found)
        for reached in work:
            new = [s for s in self.sources(reached) if s not in found]
            found.update(dict.fromkeys(new))
            work.extend(new)
        return list(found)


class _Recomputation:
    """Finds the operations that would recompute a value of the joint graph."""

    def __init__(self, joint: Artifact, saved: set[str], backward: set[str]) -> None:
        assert joint.graph is not None
        self._joint, self._saved, self._backward = joint, saved, backward
        self._inputs: dict[str, list[str]] = {}
        for source, node in joint.graph.edges:
            self._inputs.setdefault(node, []).append(source)

    def of(self, name: str) -> tuple[tuple[ItemId, ...], tuple[ItemId, ...]]:
        """Returns the operations that the backward does not run yet, and the saved values from which they start."""
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
    """Returns the expansion of each captured operation of `item`, which is a line of `record` or the operation itself.

    `Expansion.backward` has the operations that autograd added, `Expansion.functions` the autograd functions that did.
    Operations without a backward are left out.

    Args:
        record: the record of a compile with gradients.
        item: the line, or the node of the captured graph.

    Example::

        line = record.line("model.py", 12)
        for expansion in compiler_core.added_by_autograd(record, line):
            print(expansion.node, expansion.backward)
    """
    return [e for c in record.compiles for e in _expansions(c, item) if e.backward]


def _expansions(compile_: Compile, item: ItemId) -> Iterator[Expansion]:
    links = _Links(compile_)
    yield from (e for e in compile_.expansions if item in links.origins(e.node))


# ---- static --------------------------------------------------------------------------------


def why_static(record: Record, source: str = "") -> list[StaticSize]:
    """Returns the dimensions and numbers for which a compile accepts one value only.

    Args:
        record: the record of one or more compiles.
        source: the beginning of their sources, such as ``L['x']``; all if empty.

    Returns:
        Each dimension or number with its value, and the line that made it static, if one did.

    Example::

        for size in compiler_core.why_static(record, "L['x']"):
            print(size.source, size.value, size.line)
    """
    found = [s for c in record.compiles for guard in c.guards if not guard.dropped for s in _static_sizes(c.id, guard)]
    return [s for s in found if s.source.startswith(source)]


def _static_sizes(compile_id: str, guard: Guard) -> Iterator[StaticSize]:
    for i, size in enumerate(guard.sizes or ()):
        if size is not None:
            yield StaticSize(compile_id, f"{guard.source}.size()[{i}]", size, guard.line, guard.key)
    number = guard.code.removeprefix(f"{guard.source} == ")
    if number != guard.code and number.removeprefix("-").isdigit():
        yield StaticSize(compile_id, guard.source, int(number), guard.line, guard.key)


# ---- the user's code in a library's ---------------------------------------------------------


def users_first_line(record: Record, frame: Frame) -> LineRef | None:
    """Returns the user's line that a frame of a library's reaches first, such as one of `torch.no_grad`'s; None if none
    is known."""
    files = {artifact.id: artifact.name for artifact in record.sources}
    for compile_ in frame.compiles:
        for each in (line for break_ in compile_.breaks for line in break_.stack):
            if not library_of(each.filename):
                return each.filename, each.lineno
        for item in (source for edge in compile_.edges for source in edge.sources):
            id_, _, key = item.rpartition("#")
            if id_ in files and key.isdecimal() and not library_of(files[id_]):
                return files[id_], int(key)
    return None


def _is_in(artifact: Artifact, item: ItemId) -> bool:
    return item.startswith(f"{artifact.id}#")


def _key(item: ItemId) -> str:
    return item.rpartition("#")[2]
