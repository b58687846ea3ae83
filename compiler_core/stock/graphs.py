"""The graphs of one stock compile, and what each came from."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from compiler_core.records import Artifact, Compile, Event, Guard, Pane, limits
from compiler_core.stock.kernels import Graphs, Kernels, aot_id
from compiler_core.stock.memory_budget import EDGE, Room
from compiler_core.stock.read.graph_text import Place, Readable, read_graph
from compiler_core.stock.read.lines import Lines
from compiler_core.stock.read.origins import Origins
from compiler_core.stock.read.stages import stage_of
from compiler_core.stock.read.trace_event import Happened
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


_LOCAL = re.compile(r"^L\['(\w+)'\]")
_TENSOR = re.compile(r"tensor '(.+?)'(?: |$)")
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


class _Places:
    """The user's lines of the captured graph."""

    def __init__(self, read: Readable) -> None:
        self.read = read
        self.files = {place.filename for place in read.places.values()}
        self.by_code: dict[str, Place] = {place.text: place for place in read.places.values()}


class _Guards:
    """The guards of a compile, by what reasons for recompiles call them: their code, or their tensor."""

    def __init__(self, guards: list[Guard]) -> None:
        self.all = guards
        self._order = {id(guard): i for i, guard in enumerate(guards)}
        self._by_code: dict[str, Guard] = {}
        self._by_tensor: dict[str, Guard] = {}
        for guard in guards:
            self._by_code.setdefault(guard.code, guard)
            self._by_tensor.setdefault(_LOCAL.sub(r"\1", guard.source), guard)

    def of(self, why: str) -> Guard | None:
        names = _TENSOR.findall(why)
        found = [self._by_code.get(why), *(self._by_tensor.get(name) for name in names)]
        return min((guard for guard in found if guard), key=lambda guard: self._order[id(guard)], default=None)


@dataclass(slots=True)
class Opened:
    """A compile that is being told of."""

    compile: Compile
    kernels: Kernels
    lines: Lines
    room: Room
    parts: list[_Part] = field(default_factory=lambda: [_Part()])
    symbols: list[Any] = field(default_factory=list)
    messages: dict[str, list[str]] = field(default_factory=dict)
    """Texts that come in pieces, by name."""
    running: dict[str, list[Event]] = field(default_factory=dict)
    """Phases that have begun, by name."""
    break_places: set[object] = field(default_factory=set)
    _backward: list[_Told] = field(default_factory=list)
    """Graphs of a backward that is being compiled, until its code says which part it is of."""
    _attempts: dict[tuple[str, str], int] = field(default_factory=dict)
    _names: Counter[str] = field(default_factory=Counter)
    _hints: dict[str, int] = field(default_factory=dict)
    """What symbols stood for."""
    _origins: Origins | None = None
    """Of the graph that was looked into last."""
    _captured: _Places | None = None
    _guards: _Guards | None = None

    def graph(self, told: Happened) -> None:
        if not told.payload or self._had(told.name, told.payload, told.attempt):
            return
        pane, name, above = GRAPHS[told.name]
        read = self._read(told.payload)
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
        read = self._read(text)
        which = f"before.{name}" if before else name
        artifact = self.compile.artifact("passes", self._unique(which), "python", text, read.spans, read.graph)
        subsystem, direction = name.partition(".")[0], direction_of(read)
        is_late = subsystem == "post_grad_passes"
        key = f"passes.{subsystem}.{direction}" if is_late else f"passes.{subsystem}"
        first = {"pre_grad_passes": "before_pre_grad", "post_grad_passes": f"{direction}.before_post_grad"}
        above = () if before else (key, first.get(subsystem, ""))
        self._place(_Told(key, above, name, artifact, read), is_late and direction == "backward")

    def _read(self, text: str) -> Readable:
        read = read_graph(text, self._hints)
        self.room.charge(EDGE * len(read.graph.edges))
        self.room.left_out += read.left_out
        return read

    def symbol(self, about: Any) -> None:
        self.symbols.append(about)
        value = str(about.get("val")) if isinstance(about, dict) else ""
        if value.isdecimal():
            self._hints[str(about.get("symbol"))] = int(value)

    def guard_of(self, why: str) -> Guard | None:
        """The first guard that a reason for a recompile speaks of."""
        if self._guards is None or self._guards.all is not self.compile.guards:
            self._guards = _Guards(self.compile.guards)
        return self._guards.of(why)

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

    def phase(self, moment: dict[str, Any], at: int) -> None:
        """A phase of the compile begins (B), ends (E), or a moment is noted (i)."""
        name = limits.cut(str(moment["name"]))
        if moment.get("ph") == "E":
            if running := self.running.get(name):
                event = running.pop()
                event.end, event.outcome = at, "ok"
                self.compile._tell(event)
            return
        event = Event(stage_of(name), name, at)
        if moment.get("ph") == "i":
            event.end, event.outcome = at, "ok"
            event.detail = limits.cut(str(moment.get("args", {}).get("key") or ""))
        else:
            self.running.setdefault(name, []).append(event)
        self.compile.events.append(event)
        self.compile._tell(event)

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
        if above and (self._origins is None or self._origins.artifact is not above[0]):
            self._origins = Origins(*above)
        found = self._origins.of(told.read) if above and self._origins else ((n, []) for n in told.read.graph.nodes)
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
        if "captured" not in graphs:
            return
        captured = graphs["captured"][1]
        if self._captured is None or self._captured.read is not captured:
            self._captured = _Places(captured)
        files, by_code = self._captured.files, self._captured.by_code
        for name, place in read.places.items():
            if files and place.filename not in files:
                read.places[name] = by_code.get(place.text, place)

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
