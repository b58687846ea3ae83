"""The nodes that a pass or a backend of the user removed from a graph, added or changed, with the user's lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from compiler_core.records.artifacts import Artifact, ItemId

if TYPE_CHECKING:
    from compiler_core.records.record import Compile, Record

MAX_LISTED = 6
"""How many nodes of one kind are listed."""


class ChangedNode(NamedTuple):
    """A node in which a graph differs from the one before it."""

    text: str
    """How, in words, with the user's line."""
    line: ItemId | None
    """The nearest line of the user's that it was made from."""


def changed_nodes(record: Record, compile_: Compile, name: str) -> list[ChangedNode]:
    """Returns the nodes in which the graph called `name` differs from the one before it, of each kind a few."""
    after = next((a for a in compile_.artifacts if a.pane == "passes" and a.name == name), None)
    before = _graph_before(compile_, after) if after else None
    if after is None or before is None:
        return []
    old, new = _texts(before), _texts(after)
    sources = {edge.made: edge.sources for edge in compile_.edges}
    lines = {
        "removed": [(before.item(key), text) for key, text in old.items() if key not in new],
        "added": [(after.item(key), text) for key, text in new.items() if key not in old],
        "changed": [
            (after.item(key), f"{old[key]} became {text.partition(' = ')[2] or text}")
            for key, text in new.items()
            if key in old and old[key] != text and not key.startswith("output")
        ],
    }
    return [each for how, nodes in lines.items() for each in _listed(record, how, nodes, sources)]


def _graph_before(compile_: Compile, after: Artifact) -> Artifact | None:
    """Returns the graph that most nodes of `after` are linked to; the captured one if they are linked to none."""
    linked = Counter(
        source.rpartition("#")[0]
        for edge in compile_.edges
        if edge.made.startswith(f"{after.id}#")
        for source in edge.sources
    )
    graphs = {artifact.id: artifact for artifact in compile_.artifacts if artifact.graph}
    found = [graphs[id_] for id_, _ in linked.most_common() if id_ in graphs]
    return found[0] if found else next((a for a in graphs.values() if a.pane == "captured"), None)


def _texts(artifact: Artifact) -> dict[str, str]:
    """Returns the text of each node of a graph that computes something."""
    computing = {n.key for n in artifact.graph.nodes if n.op not in ("placeholder", "output")} if artifact.graph else ()
    return {span.key: artifact.statement(span) for span in artifact.spans if span.key in computing}


def _listed(
    record: Record, how: str, nodes: list[tuple[ItemId, str]], sources: dict[ItemId, list[ItemId]]
) -> Iterator[ChangedNode]:
    for item, text in nodes[:MAX_LISTED]:
        line = _line(record, item, sources)
        at = f"  (line {line.rpartition('#')[2]}: {record.line_text(line)})" if line else ""
        yield ChangedNode(f"{how}: {text}{at}", line)
    if len(nodes) > MAX_LISTED:
        yield ChangedNode(f"{how}: {len(nodes) - MAX_LISTED} more", None)


def _line(record: Record, item: ItemId, sources: dict[ItemId, list[ItemId]]) -> ItemId | None:
    """Returns the nearest line of the user's that an item was made from."""
    files = {source.id for source in record.sources}
    seen, work = {item}, [item]
    for each in work:
        if each.rpartition("#")[0] in files:
            return each
        new = [source for source in sources.get(each, ()) if source not in seen]
        seen.update(new)
        work += new
    return None
