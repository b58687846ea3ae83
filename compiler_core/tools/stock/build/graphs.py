"""Records the graphs of one stock compile and links their nodes to those of the graphs they came from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from compiler_core.records import Artifact, Compile, ItemId, Node, Pane
from compiler_core.records.capture import library_of
from compiler_core.tools.stock.build.kernels import Direction, RecordedGraphs
from compiler_core.tools.stock.build.memory_budget import EDGE_BYTES, MemoryBudget
from compiler_core.tools.stock.read.graph_text import ParsedGraph, read_graph
from compiler_core.tools.stock.read.origins import OriginIndex
from compiler_core.tools.stock.read.trace_event import TraceEvent
from compiler_core.tools.stock.source_files import SourceFiles, SourceLocation

GRAPHS: dict[str, tuple[Pane, str, tuple[str, ...]]] = {
    "dynamo_output_graph": ("captured", "captured", ()),
    "before_pre_grad_graph": ("pregrad", "before_pre_grad", ("captured",)),
    "after_pre_grad_graph": ("pregrad", "pre_grad", ("before_pre_grad", "captured")),
    "aot_joint_graph": ("joint", "joint", ("pre_grad", "captured")),
    "aot_forward_graph": ("forward", "forward", ("joint", "pre_grad", "captured")),
    "aot_inference_graph": ("forward", "forward", ("pre_grad", "captured")),
    "aot_backward_graph": ("backward", "backward", ("joint", "forward", "captured")),
    "before_post_grad_graph": ("postgrad", "before_post_grad", ("{direction}", "captured")),
    "inductor_post_grad_graph": ("postgrad", "post_grad", ("{direction}.before_post_grad", "{direction}", "captured")),
}
"""By the name of PyTorch's event: the pane, our name, and the graphs it may come from, the nearest first."""

_OF_THE_USER = re.compile(r"backend\..*|.*_custom_(?:pre|post)_pass")
"""The names of passes, and of backends, that the user gave."""
_FIRST_OF_SUBGRAPH = ("before_pre_grad", "pre_grad", "joint", "forward")
"""A second graph of one of these names starts another subgraph."""


@dataclass(slots=True)
class Subgraph:
    """The captured graph, or one of the subgraphs it was split into (for DistributedDataParallel)."""

    graphs: RecordedGraphs = field(default_factory=dict)
    number: str | None = None
    """The number that the output codes of its forward and backward share."""


@dataclass(frozen=True, slots=True)
class _RecordedGraph:
    """A graph that was recorded but not yet linked."""

    name: str
    """The name under which later graphs refer to it."""
    sources: tuple[str, ...]
    """Names of the graphs it may come from, the nearest first."""
    rule: str
    artifact: Artifact
    parsed: ParsedGraph


class _CapturedLines:
    """The user's lines of the captured graph, also by their code."""

    def __init__(self, parsed: ParsedGraph) -> None:
        self.parsed = parsed
        self.lines = frozenset(parsed.locations.values())
        self.by_code: dict[str, SourceLocation] = {loc.text: loc for loc in parsed.locations.values()}


class ArtifactNames:
    """Makes the names of a compile's artifacts unique, and detects texts that a restarted attempt repeats."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._attempts: dict[tuple[str, str], int] = {}

    def unique(self, name: str) -> str:
        """Returns `name`, or from the second time on ``name.2``, ``name.3`` ..."""
        self._counts[name] += 1
        return name if self._counts[name] == 1 else f"{name}.{self._counts[name]}"

    def is_repeated(self, name: str, text: str, attempt: int) -> bool:
        """Whether an earlier attempt had the same text."""
        return self._attempts.setdefault((name, text), attempt) < attempt


class GraphBuilder:
    """Records the graphs of one compile, in the order in which PyTorch logs them."""

    def __init__(self, compile_: Compile, lines: SourceFiles, budget: MemoryBudget, names: ArtifactNames) -> None:
        self.subgraphs = [Subgraph()]
        self.size_hints: dict[str, int] = {}
        """The values of symbolic sizes while tracing."""
        self._compile = compile_
        self._lines = lines
        self._budget = budget
        self._names = names
        self._pending_backward: list[_RecordedGraph] = []
        """Graphs of a backward; its output code will tell which subgraph they belong to."""
        self._origins: OriginIndex | None = None
        """The index of the graph that was searched last."""
        self._captured: _CapturedLines | None = None

    def add_graph(self, event: TraceEvent) -> None:
        """Records the graph of an event in `GRAPHS`."""
        if not event.payload or self._names.is_repeated(event.name, event.payload, event.attempt):
            return
        pane, name, sources = GRAPHS[event.name]
        parsed = self._parse(event.payload)
        if pane == "captured":
            _locate_inputs(parsed)
        else:
            self._replace_cached_locations(parsed)
        direction = direction_of(parsed)
        if pane == "postgrad":
            name = f"{direction}.{name}"
            sources = tuple(each.format(direction=direction) for each in sources)
        artifact = self._artifact(pane, name, event.payload, parsed)
        graph = _RecordedGraph(name, sources, name, artifact, parsed)
        self._assign(graph, pane == "postgrad" and direction == "backward")

    def add_pass_graph(self, pass_name: str, is_before: bool, text: str) -> None:
        """Records the graph after a pass that changed it, or (`is_before`) the graph before the first pass."""
        parsed = self._parse(text)
        artifact = self._artifact("passes", f"before.{pass_name}" if is_before else pass_name, text, parsed)
        if not is_before and _OF_THE_USER.fullmatch(pass_name):
            self._compile.changes.append(pass_name)
        subsystem, direction = pass_name.partition(".")[0], direction_of(parsed)
        is_post_grad = subsystem == "post_grad_passes"
        name = f"passes.{subsystem}.{direction}" if is_post_grad else f"passes.{subsystem}"
        first = {
            "backend": "captured",
            "pre_grad_passes": "before_pre_grad",
            "post_grad_passes": f"{direction}.before_post_grad",
        }
        sources = () if is_before else (name, first.get(subsystem, ""))
        graph = _RecordedGraph(name, sources, pass_name, artifact, parsed)
        self._assign(graph, is_post_grad and direction == "backward")

    def subgraph_of_code(self, number: str | None, direction: Direction) -> Subgraph:
        """Returns the subgraph of an output code; its number connects a forward with its backward."""
        if direction == "forward":
            subgraph = self.subgraphs[-1]
            subgraph.number = number
            return subgraph
        subgraph = next((each for each in self.subgraphs if each.number == number), self._without_backward())
        pending, self._pending_backward = self._pending_backward, []
        for graph in pending:
            self._link(graph, subgraph)
        return subgraph

    def close(self) -> None:
        """Links the backward graphs for which there was no output code."""
        for graph in self._pending_backward:
            self._link(graph, self._without_backward())

    def _parse(self, text: str) -> ParsedGraph:
        parsed = read_graph(text, self.size_hints)
        if (caller := self._compile.caller) is not None:  # the frame is a library's, as that of an `nn.Sequential`
            line = SourceLocation(caller.filename, caller.lineno, caller.function, caller.text)
            own = {name: at for name, at in parsed.locations.items() if not library_of(at.filename)}
            computed = (node.key for node in parsed.graph.nodes if node.op.startswith("call_"))
            parsed.locations = dict.fromkeys(computed, line) | own
        self._budget.charge(EDGE_BYTES * len(parsed.graph.edges))
        self._budget.left_out += parsed.left_out
        return parsed

    def _artifact(self, pane: Pane, name: str, text: str, parsed: ParsedGraph) -> Artifact:
        return self._compile.artifact(pane, self._names.unique(name), "python", text, parsed.spans, parsed.graph)

    def _assign(self, graph: _RecordedGraph, is_backward: bool) -> None:
        """Links `graph` within its subgraph; one of a backward only when the subgraph is known."""
        if is_backward:
            self._pending_backward.append(graph)
            return
        if graph.name == "captured":
            self.subgraphs = [Subgraph()]
        elif graph.name in _FIRST_OF_SUBGRAPH and graph.name in self.subgraphs[-1].graphs:
            captured = {name: known for name, known in self.subgraphs[-1].graphs.items() if name == "captured"}
            self.subgraphs.append(Subgraph(captured))
        self._link(graph, self.subgraphs[-1])

    def _link(self, graph: _RecordedGraph, subgraph: Subgraph) -> None:
        """Adds `graph` to `subgraph` and links its nodes to the nearest graph there, or to the user's lines."""
        source = next((subgraph.graphs[each] for each in graph.sources if each in subgraph.graphs), None)
        for node, items in self._origins_in(source, graph.parsed):
            location = graph.parsed.locations.get(node.key)
            line = self._lines.item_at(location) if location and not items else None
            self._compile.link(graph.artifact.item(node.key), [*items, line] if line else items, graph.rule)
        subgraph.graphs[graph.name] = graph.artifact, graph.parsed

    def _origins_in(
        self, source: tuple[Artifact, ParsedGraph] | None, parsed: ParsedGraph
    ) -> Iterable[tuple[Node, list[ItemId]]]:
        if source is None:
            return [(node, []) for node in parsed.graph.nodes]
        if self._origins is None or self._origins.artifact is not source[0]:
            self._origins = OriginIndex(*source)
        return self._origins.origins(parsed)

    def _without_backward(self) -> Subgraph:
        """Returns the last subgraph whose backward was not compiled; backwards are compiled from the last on."""
        missing = [each for each in self.subgraphs if "backward.post_grad" not in each.graphs]
        return (missing or self.subgraphs)[-1]

    def _replace_cached_locations(self, parsed: ParsedGraph) -> None:
        """Replaces lines of the program that filled PyTorch's cache by this program's lines with the same code.

        It may be this program, too, before lines were added above.
        """
        graphs = self.subgraphs[-1].graphs
        if "captured" not in graphs:
            return
        captured = graphs["captured"][1]
        if self._captured is None or self._captured.parsed is not captured:
            self._captured = _CapturedLines(captured)
        lines, by_code = self._captured.lines, self._captured.by_code
        for name, location in parsed.locations.items():
            if location not in lines:
                parsed.locations[name] = by_code.get(location.text, location)


def _locate_inputs(parsed: ParsedGraph) -> None:
    """Gives each input the line that uses it first."""
    inputs = {node.key for node in parsed.graph.nodes if node.op == "placeholder"}
    for source, to in parsed.graph.edges:
        if source in inputs and source not in parsed.locations and to in parsed.locations:
            parsed.locations[source] = parsed.locations[to]


def direction_of(parsed: ParsedGraph) -> Direction:
    """Returns ``backward`` for a graph that takes tangents."""
    inputs = (node.key for node in parsed.graph.nodes if node.op == "placeholder")
    return "backward" if any(name.startswith("tangents_") for name in inputs) else "forward"
