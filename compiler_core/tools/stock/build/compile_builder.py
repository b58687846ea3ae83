"""Builds the record of one stock compile: its phases, texts, symbols, guards, graphs and kernels."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from compiler_core.records import Compile, Event, MissedEntry, Symbol, limits
from compiler_core.records.plain import MAX_SAFE_INT
from compiler_core.tools.stock.build.graphs import ArtifactNames, GraphBuilder
from compiler_core.tools.stock.build.kernels import KernelBuilder, aot_id
from compiler_core.tools.stock.build.memory_budget import MemoryBudget
from compiler_core.tools.stock.build.missed_entries import GuardIndex
from compiler_core.tools.stock.build.partition import read_partition
from compiler_core.tools.stock.read.recompile_reasons import size_as_call
from compiler_core.tools.stock.read.source_names import EXTENT, shown_source
from compiler_core.tools.stock.read.stages import stage_of
from compiler_core.tools.stock.source_files import SourceFiles

_RANGE = re.compile(r"\w*\[(-?[\w.]+), (-?[\w.]+)\]$")


class CompileBuilder:
    """Collects what belongs to one compile; `close` records what is known only at the end."""

    def __init__(self, compile_: Compile, lines: SourceFiles, budget: MemoryBudget) -> None:
        self.compile = compile_
        self.kernels = KernelBuilder(compile_, budget.left_out)
        self.break_keys: set[object] = set()
        """Kinds and stacks of the recorded graph breaks."""
        self.break_places: set[object] = set()
        """The lines of the recorded graph breaks."""
        self.guard_lines: dict[str, tuple[str, int]] = {}
        """The user's line for which a source was guarded, if it was observed."""
        self.guard_costs: list[float] = []
        """The measured cost of each guard, in the order of PyTorch's text, if it was observed."""
        self._names = ArtifactNames()
        self._lines = lines
        self.graphs = GraphBuilder(compile_, lines, budget, self._names)
        self._symbols: list[Any] = []
        self._joined_texts: dict[str, list[str]] = {}
        """Texts that PyTorch logs in pieces, by name."""
        self._running_phases: dict[str, list[Event]] = {}
        self.reasons: list[MissedEntry] = []
        """Why older compiles did not fit."""
        self.empty_dicts: set[str] = set()
        """The sources of dicts of which the guards say that they are empty."""
        self._guard_index = GuardIndex(self.compile.guards)
        self.specialised: dict[str, str] = {}
        """What symbols became, by their names."""

    def add_symbol(self, data: Any) -> None:
        """Adds the data of a ``create_symbol`` event."""
        self._symbols.append(data)
        value = str(data.get("val")) if isinstance(data, dict) else ""
        if value.isdecimal():
            self.graphs.size_hints[str(data.get("symbol"))] = int(value)

    def add_output_code(self, text: str) -> None:
        """Adds Inductor's code of one graph."""
        number, direction = aot_id(text)
        subgraph = self.graphs.subgraph_of_code(number, direction)
        self.kernels.add_output_code(text, direction, subgraph.graphs)

    def add_phase(self, moment: dict[str, Any], time_ns: int) -> None:
        """Adds a chromium event: a phase begins (``ph`` is B) or ends (E), or something happened at once (i)."""
        name = limits.truncate(str(moment["name"]))
        if moment.get("ph") == "E":
            if running := self._running_phases.get(name):
                event = running.pop()
                event.end, event.outcome = time_ns, "ok"
                self.compile.notify(event)
            return
        event = Event(stage_of(name), name, time_ns)
        if moment.get("ph") == "i":
            event.end, event.outcome = time_ns, "ok"
            event.detail = limits.truncate(str(moment.get("args", {}).get("key") or ""))
        else:
            self._running_phases.setdefault(name, []).append(event)
        self.compile.events.append(event)
        self.compile.notify(event)

    def add_text(self, name: str, text: str, attempt: int = 0) -> None:
        """Adds a text that has no pane."""
        if self._names.is_repeated(name, text, attempt):
            return
        is_code = text.lstrip().startswith(("def ", "import ", "class ", "from "))
        self.compile.artifact("other", self._names.unique(name), "python" if is_code else "text", text)

    def append_text(self, name: str, piece: str) -> None:
        """Appends a line or paragraph to the text called `name`."""
        self._joined_texts.setdefault(name, []).append(piece)

    @property
    def guard_index(self) -> GuardIndex:
        """The guards, as reasons for recompiles name them."""
        if self._guard_index.guards is not self.compile.guards:
            self._guard_index = GuardIndex(self.compile.guards, self.empty_dicts)
        return self._guard_index

    def close(self, strings: dict[int, str], names: Callable[[str], str]) -> None:
        """Records what depends on the whole compile.

        Args:
            strings: file names by their numbers in the trace.
            names: puts the user's names into a text.
        """
        self.graphs.close()
        if self._symbols:
            self.compile.symbols = [
                self._symbol(each, strings, names) for each in self._symbols if isinstance(each, dict)
            ]
            self.add_text("symbols", "\n".join(_symbol_text(each, strings) for each in self._symbols) + "\n")
        for name, pieces in self._joined_texts.items():
            self.add_text(name, "\n".join(pieces) + "\n")
        self._name_inputs()
        self.kernels.close()
        self.compile.partition = read_partition([subgraph.graphs for subgraph in self.graphs.subgraphs])

    def _name_inputs(self) -> None:
        """Names the inputs of the captured graph as the user would: Dynamo makes their names from their sources."""
        by_name = {_identifier(guard.source): guard.name for guard in self.compile.guards}
        for artifact in self.compile.artifacts:
            for node in artifact.graph.nodes if artifact.pane == "captured" and artifact.graph else ():
                if node.op == "placeholder":
                    node.place = by_name.get(_identifier(node.key), "")

    def _symbol(self, data: dict[str, Any], strings: dict[int, str], names: Callable[[str], str]) -> Symbol:
        """Makes the symbol of a ``create_symbol`` event; bounds that are not numbers are left out."""
        bounds = _RANGE.match(str(data.get("vr")))
        low, high = (_number(bound) for bound in bounds.groups()) if bounds else (None, None)
        stack = data.get("user_stack") or [{}]
        filename, lineno = strings.get(stack[-1].get("filename")), stack[-1].get("line")
        line = self._lines.item(filename, int(lineno)) if filename and lineno else None
        key, source = limits.truncate(str(data.get("symbol"))), limits.truncate(str(data.get("source")))
        shown = size_as_call(source) if EXTENT.match(source) else shown_source(source)
        value = _number(str(data.get("val")))
        value = 0 if value is None else value
        symbol = Symbol(key, source, value, "PyTorch made it symbolic", low, high, line)
        symbol.name = names(shown)
        became = self.specialised.get(key)
        if became is not None and _number(became) is not None:
            symbol.became = became
        else:
            symbol.equals = became
        return symbol


def _identifier(text: str) -> str:
    """Returns the letters and digits of a source, as Dynamo names an input after it."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def _number(text: str) -> float | None:
    """Returns a finite number that JSON can hold, or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    if not math.isfinite(value) or abs(value) > MAX_SAFE_INT:
        return None
    return int(text) if text.removeprefix("-").isdecimal() else value


def _symbol_text(data: Any, strings: dict[int, str]) -> str:
    stack = data.get("user_stack") or []
    at = f"  # {strings.get(stack[-1].get('filename'), '?')}:{stack[-1].get('line')}" if stack else ""
    return f"{data.get('symbol')} = {data.get('source')}, was {data.get('val')}, range {data.get('vr')}{at}"
