"""The graphs of one stock compile, and what each came from."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from compiler_core.record import Artifact, Compile, Pane
from compiler_core.stock.happened import Happened
from compiler_core.stock.kernels import Graphs, Kernels, aot_id
from compiler_core.stock.lines import Lines
from compiler_core.stock.origins import Origins
from compiler_core.stock.readable import Readable, read_graph
from compiler_core.stock.saved import partition_of

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
"""PyTorch's name of each: the pane, our name, and the graphs that it may come from, the nearest first."""


_FIRST = ("before_pre_grad", "pre_grad", "joint", "forward")
"""What begins another part, where the last one has it already."""


@dataclass(slots=True)
class _Part:
    """The captured graph as a whole, or a part that it was split into (for DistributedDataParallel)."""

    graphs: Graphs = field(default_factory=dict)
    number: str | None = None
    """PyTorch's, which the codes of its forward and backward tell."""


@dataclass(frozen=True, slots=True)
class _Told:
    """A graph, by which name the next ones find it, and from which it may have come, the nearest first."""

    name: str
    above: tuple[str, ...]
    rule: str
    artifact: Artifact
    read: Readable


@dataclass(slots=True)
class Opened:
    """A compile that is being told of."""

    compile: Compile
    kernels: Kernels
    lines: Lines
    parts: list[_Part] = field(default_factory=lambda: [_Part()])
    symbols: list[Any] = field(default_factory=list)
    messages: dict[str, list[str]] = field(default_factory=dict)
    """Texts that come in pieces, by name."""
    _backward: list[_Told] = field(default_factory=list)
    """Graphs of a backward that is being compiled, until its code says which part it is of."""
    _attempts: dict[tuple[str, str], int] = field(default_factory=dict)
    _names: Counter[str] = field(default_factory=Counter)

    def graph(self, told: Happened) -> None:
        if not told.payload or self._had(told.name, told.payload, told.attempt):
            return
        pane, name, above = GRAPHS[told.name]
        read = read_graph(told.payload, self._hints())
        if pane == "captured":
            _place_inputs(read)
        else:
            self._own_lines(read)
        direction = direction_of(read)
        if pane == "postgrad":
            name, above = f"{direction}.{name}", tuple(each.format(direction=direction) for each in above)
        artifact = self.compile.artifact(pane, self._unique(name), "python", told.payload, read.spans, read.graph)
        self._place(_Told(name, above, name, artifact, read), pane == "postgrad" and direction == "backward")

    def after_pass(self, about: tuple[str, bool], text: str) -> None:
        """The graph after a pass that changed it; where none was seen before, as it was."""
        name, before = about
        read = read_graph(text, self._hints())
        which = f"before.{name}" if before else name
        artifact = self.compile.artifact("passes", self._unique(which), "python", text, read.spans, read.graph)
        subsystem, direction = name.partition(".")[0], direction_of(read)
        is_late = subsystem == "post_grad_passes"
        key = f"passes.{subsystem}.{direction}" if is_late else f"passes.{subsystem}"
        first = {"pre_grad_passes": "before_pre_grad", "post_grad_passes": f"{direction}.before_post_grad"}
        above = () if before else (key, first.get(subsystem, ""))
        self._place(_Told(key, above, name, artifact, read), is_late and direction == "backward")

    def output_code(self, text: str) -> None:
        """The code of one graph: its number, which forward and backward share, says to which part that belongs."""
        number, direction = aot_id(text)
        if direction == "backward":
            part = next((part for part in self.parts if part.number == number), self._without_backward())
            unplaced, self._backward = self._backward, []
            for each in unplaced:
                self._put(each, part)
        else:
            part = self.parts[-1]
            part.number = number
        self.kernels.output_code(text, direction, part.graphs)

    def text(self, name: str, text: str, attempt: int = 0) -> None:
        """Something that PyTorch wrote and that has no pane of its own."""
        if self._had(name, text, attempt):
            return
        code = text.lstrip().startswith(("def ", "import ", "class ", "from "))
        self.compile.artifact("other", self._unique(name), "python" if code else "text", text)

    def close(self, strings: dict[int, str]) -> None:
        for each in self._backward:
            self._put(each, self._without_backward())
        if self.symbols:
            self.text("symbols", "\n".join(_symbol(each, strings) for each in self.symbols) + "\n")
        for name, pieces in self.messages.items():
            self.text(name, "\n".join(pieces) + "\n")
        self.kernels.close()
        self.compile.partition = partition_of([part.graphs for part in self.parts])

    def _place(self, told: _Told, is_of_backward: bool) -> None:
        if is_of_backward:
            self._backward.append(told)
            return
        if told.name == "captured":
            self.parts = [_Part()]
        elif told.name in _FIRST and told.name in self.parts[-1].graphs:
            whole = {name: graph for name, graph in self.parts[-1].graphs.items() if name == "captured"}
            self.parts.append(_Part(whole))
        self._put(told, self.parts[-1])

    def _put(self, told: _Told, part: _Part) -> None:
        """It belongs to this part; so what it came from does."""
        above = next((part.graphs[each] for each in told.above if each in part.graphs), None)
        found = Origins(*above).of(told.read) if above else ((node, []) for node in told.read.graph.nodes)
        for node, sources in found:
            place = told.read.places.get(node.key)
            line = self.lines.of(place) if place and not sources else None
            self.compile.link(told.artifact.item(node.key), [*sources, line] if line else sources, told.rule)
        part.graphs[told.name] = told.artifact, told.read

    def _without_backward(self) -> _Part:
        """The last part whose backward was not compiled: a backward begins at the end."""
        missing = [part for part in self.parts if "backward.post_grad" not in part.graphs]
        return (missing or self.parts)[-1]

    def _own_lines(self, read: Readable) -> None:
        """A text from PyTorch's cache names the lines of the program that filled it: find this program's by their
        code."""
        graphs = self.parts[-1].graphs
        captured = graphs["captured"][1].places.values() if "captured" in graphs else ()
        files, by_code = {place.filename for place in captured}, {place.text: place for place in captured}
        for name, place in read.places.items():
            if files and place.filename not in files:
                read.places[name] = by_code.get(place.text, place)

    def _hints(self) -> dict[str, int]:
        known = {str(each.get("symbol")): str(each.get("val")) for each in self.symbols if isinstance(each, dict)}
        return {symbol: int(value) for symbol, value in known.items() if value.isdigit()}

    def _had(self, name: str, text: str, attempt: int) -> bool:
        """Whether the same was told already, by an attempt that started again."""
        return self._attempts.setdefault((name, text), attempt) < attempt

    def _unique(self, name: str) -> str:
        self._names[name] += 1
        return name if self._names[name] == 1 else f"{name}.{self._names[name]}"


def _place_inputs(read: Readable) -> None:
    """An input belongs to the line that uses it first."""
    inputs = {node.key for node in read.graph.nodes if node.op == "placeholder"}
    for source, to in read.graph.edges:
        if source in inputs and source not in read.places and to in read.places:
            read.places[source] = read.places[to]


def direction_of(read: Readable) -> str:
    """A backward is given tangents."""
    inputs = (node.key for node in read.graph.nodes if node.op == "placeholder")
    return "backward" if any(name.startswith("tangents_") for name in inputs) else "forward"


def _symbol(about: Any, strings: dict[int, str]) -> str:
    stack = about.get("user_stack") or []
    at = f"  # {strings.get(stack[-1].get('filename'), '?')}:{stack[-1].get('line')}" if stack else ""
    return f"{about.get('symbol')} = {about.get('source')}, was {about.get('val')}, range {about.get('vr')}{at}"
