"""Records the kernels that Inductor generates for one compile, linked to the graph nodes they compute."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from compiler_core.codegen.build import disk_cache
from compiler_core.errors import MissingTool
from compiler_core.records import Artifact, Compile, Fusion, FusionRefusal, Kernel, Span
from compiler_core.tools.stock.read.graph_text import ParsedGraph
from compiler_core.tools.stock.read.origins import OriginIndex, first_nodes
from compiler_core.tools.stock.read.output_code import OutputCode, ParsedKernel, read_output_code

Direction = Literal["forward", "backward"]
RecordedGraphs = dict[str, tuple[Artifact, ParsedGraph]]
"""The graphs of a compile, or of one of its subgraphs, by name."""

_AOT_ID = re.compile(r"AOT ID: \['(\d+)_(\w+)'\]")
_WORD = re.compile(r"[A-Za-z_]\w*")
_OPERATOR = re.compile(r"\btmp\w* ([-+*/<>=!?]+) ")
_OPERATIONS_OF_OPERATOR = {
    "+": ("add", "sum", "mean", "addmm"), "-": ("sub", "rsub", "neg"), "*": ("mul", "pow", "square"),
    "/": ("div", "truediv", "mean", "reciprocal"), ">": ("gt",), "<": ("lt",), ">=": ("ge",), "<=": ("le",),
    "==": ("eq",), "!=": ("ne",), "?": ("where",),
}  # fmt: skip
_OPERATIONS_OF_CALL = {
    "maximum": ("maximum", "relu", "clamp_min", "clamp"), "minimum": ("minimum", "clamp_max", "clamp"),
    "clamp_min": ("relu", "clamp_min"), "where": ("where",), "blendv": ("where",),
    "convert": ("_to_copy", "convert_element_type"),
    "sum": ("sum", "mean"), "vec_reduce_all": ("sum", "mean", "amax", "amin"), "max2": ("amax", "max"),
    "welford_combine": ("var_mean", "var", "native_layer_norm"), "sigmoid": ("sigmoid", "silu"),
    "sum_masked_reduce": ("sum", "mean"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _GeneratedCode:
    """An output code that was recorded; its kernels are recorded when all graphs are known."""

    direction: Direction
    wrapper: Artifact
    code: OutputCode
    nodes: dict[str, list[str]]
    """The graph nodes of each kernel, as far as Inductor reported them."""
    graphs: RecordedGraphs

    def origin_graph(self) -> tuple[Artifact, ParsedGraph] | None:
        """The latest recorded graph that the kernels were generated from."""
        names = (f"{self.direction}.post_grad", self.direction, "captured")
        return next((self.graphs[name] for name in names if name in self.graphs), None)


@dataclass(slots=True)
class KernelBuilder:
    """Collects what Inductor generates for one compile and records it."""

    compile: Compile
    left_out: Counter[str]
    """Counts of what is beyond a limit."""
    _kernel_nodes: dict[str, dict[str, None]] = field(default_factory=dict)
    """The graph nodes of each kernel generated since the last output code."""
    _operation_nodes: dict[str, list[str]] = field(default_factory=dict)
    """The graph nodes of each scheduler operation since then."""
    _refusals: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """The fusions refused since then (two groups and the reason), with the kind of the reason."""
    _codes: list[_GeneratedCode] = field(default_factory=list)
    _counts: Counter[Direction] = field(default_factory=Counter)

    def add_kernel(self, kernel: str, operations: dict[str, list[str]]) -> None:
        """Notes a kernel's scheduler operations, and the graph nodes of each operation."""
        self._operation_nodes |= operations
        nodes = dict.fromkeys(node for nodes in operations.values() for node in nodes)
        self._kernel_nodes.setdefault(kernel, {}).update(nodes)

    def add_refusal(self, first: str, second: str, kind: str, reason: str) -> None:
        """Notes that two groups of scheduler operations were not fused."""
        self._refusals.setdefault((first, second, reason), kind)

    def add_output_code(self, text: str, direction: Direction, graphs: RecordedGraphs) -> None:
        """Records an output code.  `graphs`: those of its subgraph; the mapping may still grow afterwards."""
        number = self._counts[direction]
        self._counts[direction] += 1
        code = read_output_code(text)
        launch_lines = {line for lines in code.calls.values() for line in lines} | {line for _, line in code.externs}
        name = f"{direction}.wrapper{f'.{number + 1}' if number else ''}"
        spans = [Span(str(n), n, n) for n in sorted(launch_lines)]
        artifact = self.compile.artifact("wrapper", name, "python", text, spans)
        nodes = {kernel: list(nodes) for kernel, nodes in self._kernel_nodes.items()}
        self._kernel_nodes = {}
        self._record_refusals()
        self._codes.append(_GeneratedCode(direction, artifact, code, _load_or_store_nodes(text, nodes), graphs))
        self.compile.backend = "inductor"
        if code.plan:
            plan = name.replace("wrapper", "memory")
            self.compile.artifact("wrapper", plan, "text", "\n".join(code.plan) + "\n", code.plan_spans)

    def close(self) -> None:
        """Records the kernels, linked to the nodes of the graphs, all of which are recorded by now."""
        self._record_refusals()
        origins: OriginIndex | None = None
        for generated in self._codes:
            graph = generated.origin_graph()
            if graph is None:
                origins = None
            elif origins is None or origins.artifact is not graph[0]:
                origins = OriginIndex(*graph)
            for kernel in generated.code.kernels:
                self._record_kernel(generated, kernel, origins)
            for name, line in generated.code.externs:
                self._record_extern(generated, name, line, origins)

    def _record_refusals(self) -> None:
        """Records the refusals of one graph; the scheduler numbers its operations from 0 for each graph."""
        for (first, second, reason), kind in self._refusals.items():
            refusal = FusionRefusal(kind, self._group_text(first), self._group_text(second), reason)
            self.compile.refusals.append(refusal)
        self._refusals, self._operation_nodes = {}, {}

    def _group_text(self, group: str) -> str:
        """Returns a scheduler group with the graph nodes that it computes: ``op1_op2 (exp, sum_1)``."""
        nodes = dict.fromkeys(node for name in group.split("_") for node in self._operation_nodes.get(name, ()))
        return f"{group} ({', '.join(nodes)})" if nodes else group

    def _record_kernel(self, generated: _GeneratedCode, kernel: ParsedKernel, origins: OriginIndex | None) -> None:
        wrapper = generated.wrapper
        lines = kernel.text.split("\n")[:-1]
        spans = [Span(str(n), n, n) for n in range(1, len(lines) + 1)]
        language: Literal["cpp", "triton"] = "cpp" if kernel.language == "cpp" else "triton"
        name = f"{wrapper.name.replace('wrapper', kernel.name)}.{language}"
        artifact = self.compile.artifact("kernel", name, kernel.language, kernel.text, spans)
        item = artifact.item("1")
        self.compile.kernels.append(Kernel(name, kernel.name, language, generated.direction, item))
        for line in generated.code.calls[kernel.name]:
            self.compile.link(wrapper.item(str(line)), [item], "launch")
        if origins is None:
            return
        nodes = (
            generated.nodes.get(kernel.name)
            or kernel.nodes
            or origins.by_operation(kernel.name.split("_"), self.left_out)
        )
        group = origins.items(nodes)
        self.compile.fusions.append(Fusion(name, "kernel", group, name, None))
        self.compile.link(item, group, "kernel")
        self._link_lines(artifact, lines, nodes, origins)

    def _link_lines(self, artifact: Artifact, lines: Sequence[str], nodes: Sequence[str], origins: OriginIndex) -> None:
        """Links each line of a kernel to those of its nodes whose operation the line may compute."""
        by_operation: dict[str, list[str]] = {}
        for node in nodes:
            by_operation.setdefault(origins.operation_of(node), []).append(node)
        order = {node: i for i, node in enumerate(nodes)}
        for number, line in enumerate(lines, 1):
            groups = (by_operation.get(each, []) for each in operations(line))
            computed = first_nodes(groups, order, self.left_out)
            self.compile.link(artifact.item(str(number)), origins.items(computed), "kernel line")

    def _record_extern(self, generated: _GeneratedCode, name: str, line: int, origins: OriginIndex | None) -> None:
        item = generated.wrapper.item(str(line))
        key = f"{generated.wrapper.name}.{line}.{name}"
        self.compile.kernels.append(Kernel(key, name, "extern", generated.direction, item))
        if origins is not None:
            operation = name.removesuffix(".default").rpartition(".")[2]
            nodes = generated.nodes.get(name) or origins.by_operation([operation], self.left_out)
            self.compile.link(item, origins.items(nodes), "kernel")


def aot_id(code: str) -> tuple[str | None, Direction]:
    """Returns the number of the graph that an output code is for (None if it has none), and its direction."""
    head = _AOT_ID.search(code)
    if head is None:
        return None, "forward"
    return head[1], "backward" if head[2] == "backward" else "forward"


def operations(line: str) -> set[str]:
    """Returns the operations that a line of C++ or Triton may compute."""
    found = {name for sign in _OPERATOR.findall(line) for name in _OPERATIONS_OF_OPERATOR.get(sign, ())}
    for word in _WORD.findall(line):
        found.add(word)
        found.update(_OPERATIONS_OF_CALL.get(word, ()))
    return found


def _load_or_store_nodes(text: str, nodes: dict[str, list[str]]) -> dict[str, list[str]]:
    """Returns the nodes of each kernel of an output code, and keeps them on disk by the code's digest.

    Inductor does not report nodes for a code from its own cache: then they are read from disk.
    """
    key = hashlib.sha256(text.encode()).hexdigest()
    if nodes:
        with suppress(MissingTool):  # without a cache folder, codes from Inductor's cache have fewer links
            disk_cache.write("stock", key, json.dumps(nodes).encode())
        return nodes
    try:
        found = json.loads(disk_cache.read("stock", key) or b"{}")
    except ValueError:
        return nodes
    return {str(k): _names(v) for k, v in found.items()} if isinstance(found, dict) else {}


def _names(value: object) -> list[str]:
    return [str(name) for name in value] if isinstance(value, Iterable) and not isinstance(value, str) else []
