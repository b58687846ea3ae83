"""The graphs of one stock compile, and what each came from."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from compiler_core.record import Artifact, Compile, Pane
from compiler_core.stock.kernels import Kernels
from compiler_core.stock.lines import Lines
from compiler_core.stock.origins import Origins
from compiler_core.stock.readable import Readable, read_graph

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


@dataclass(slots=True)
class Opened:
    """A compile that is being told of."""

    compile: Compile
    kernels: Kernels
    lines: Lines
    graphs: dict[str, tuple[Artifact, Readable]] = field(default_factory=dict)
    symbols: list[Any] = field(default_factory=list)
    messages: dict[str, list[str]] = field(default_factory=dict)
    """Texts that come in pieces, by name."""
    _told: set[tuple[str, str]] = field(default_factory=set)
    _names: Counter[str] = field(default_factory=Counter)

    def graph(self, told: str, text: str) -> None:
        if not text or self._had(told, text):
            return
        pane, name, above = GRAPHS[told]
        read = read_graph(text, self._hints())
        if pane == "captured":
            _place_inputs(read)
        else:
            self._own_lines(read)
        if pane == "postgrad":
            direction = direction_of(read)
            self.graphs.pop("passes.post_grad_passes", None)
            name, above = f"{direction}.{name}", tuple(each.format(direction=direction) for each in above)
        artifact = self.compile.artifact(pane, self._unique(name), "python", text, read.spans, read.graph)
        self._link(artifact, read, next((self.graphs[each] for each in above if each in self.graphs), None), name)
        self.graphs[name] = artifact, read
        if told == "before_post_grad_graph":
            self.graphs["before_post_grad"] = artifact, read

    def after_pass(self, about: tuple[str, bool], text: str) -> None:
        """The graph after a pass that changed it; where none was seen before, as it was."""
        name, before = about
        read = read_graph(text, self._hints())
        which = f"before.{name}" if before else name
        artifact = self.compile.artifact("passes", self._unique(which), "python", text, read.spans, read.graph)
        subsystem = f"passes.{name.partition('.')[0]}"
        told = {"passes.pre_grad_passes": "before_pre_grad", "passes.post_grad_passes": "before_post_grad"}
        above = self.graphs.get(subsystem) or self.graphs.get(told.get(subsystem, ""))
        self._link(artifact, read, None if before else above, name)
        self.graphs[subsystem] = artifact, read

    def text(self, name: str, text: str) -> None:
        """Something that PyTorch wrote and that has no pane of its own."""
        if self._had(name, text):
            return
        code = text.lstrip().startswith(("def ", "import ", "class ", "from "))
        self.compile.artifact("other", self._unique(name), "python" if code else "text", text)

    def close(self, strings: dict[int, str]) -> None:
        if self.symbols:
            self.text("symbols", "\n".join(_symbol(each, strings) for each in self.symbols) + "\n")
        for name, pieces in self.messages.items():
            self.text(name, "\n".join(pieces) + "\n")
        self.kernels.close(self.graphs)

    def _link(self, artifact: Artifact, read: Readable, above: tuple[Artifact, Readable] | None, rule: str) -> None:
        found = Origins(*above).of(read) if above else ((node, []) for node in read.graph.nodes)
        for node, sources in found:
            place = read.places.get(node.key)
            line = self.lines.of(place) if place and not sources else None
            self.compile.link(artifact.item(node.key), [*sources, line] if line else sources, rule)

    def _own_lines(self, read: Readable) -> None:
        """A text from PyTorch's cache names the lines of the program that filled it: find this program's by their
        code."""
        captured = self.graphs["captured"][1].places.values() if "captured" in self.graphs else ()
        files, by_code = {place.filename for place in captured}, {place.text: place for place in captured}
        for name, place in read.places.items():
            if files and place.filename not in files:
                read.places[name] = by_code.get(place.text, place)

    def _hints(self) -> dict[str, int]:
        known = {str(each.get("symbol")): str(each.get("val")) for each in self.symbols if isinstance(each, dict)}
        return {symbol: int(value) for symbol, value in known.items() if value.isdigit()}

    def _had(self, name: str, text: str) -> bool:
        """Whether the same was told already, by an attempt that started again."""
        known = (name, text) in self._told
        self._told.add((name, text))
        return known

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
