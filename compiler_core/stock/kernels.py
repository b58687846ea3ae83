"""The kernels of one stock compile: texts, groups, and which nodes each line came from."""

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
from compiler_core.records import Artifact, Compile, Fusion, FusionRefusal, Kernel, Span, limits
from compiler_core.stock.read.graph_text import Readable
from compiler_core.stock.read.origins import Origins
from compiler_core.stock.read.output_code import FoundKernel, OutputCode, read_output_code

Direction = Literal["forward", "backward"]
Graphs = dict[str, tuple[Artifact, Readable]]

_AOT_ID = re.compile(r"AOT ID: \['(\d+)_(\w+)'\]")
_WORD = re.compile(r"[A-Za-z_]\w*")
_SIGN = re.compile(r"\btmp\w* ([-+*/<>=!?]+) ")
_SIGNS = {
    "+": ("add", "sum", "mean", "addmm"), "-": ("sub", "rsub", "neg"), "*": ("mul", "pow", "square"),
    "/": ("div", "truediv", "mean", "reciprocal"), ">": ("gt",), "<": ("lt",), ">=": ("ge",), "<=": ("le",),
    "==": ("eq",), "!=": ("ne",), "?": ("where",),
}  # fmt: skip
_CALLS = {
    "maximum": ("maximum", "relu", "clamp_min", "clamp"), "minimum": ("minimum", "clamp_max", "clamp"),
    "clamp_min": ("relu", "clamp_min"), "where": ("where",), "blendv": ("where",),
    "convert": ("_to_copy", "convert_element_type"),
    "sum": ("sum", "mean"), "vec_reduce_all": ("sum", "mean", "amax", "amin"), "max2": ("amax", "max"),
    "welford_combine": ("var_mean", "var", "native_layer_norm"), "sigmoid": ("sigmoid", "silu"),
    "sum_masked_reduce": ("sum", "mean"),
}  # fmt: skip


@dataclass(slots=True)
class Kernels:
    """Collects what Inductor makes for one compile."""

    compile: Compile
    _made_of: dict[str, dict[str, None]] = field(default_factory=dict)
    """The graph nodes of the kernels that were made since the last output code."""
    _operations: dict[str, list[str]] = field(default_factory=dict)
    """The graph nodes of the scheduler's operations since then."""
    _codes: list[tuple[Direction, Artifact, OutputCode, dict[str, list[str]], Graphs]] = field(default_factory=list)
    _counts: Counter[Direction] = field(default_factory=Counter)
    _refused: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """What stayed apart since then, and the kind of the reason."""

    def made_of(self, kernel: str, operations: dict[str, list[str]]) -> None:
        """`operations`: the scheduler's, and the nodes of each."""
        self._operations |= operations
        made = dict.fromkeys(node for nodes in operations.values() for node in nodes)
        self._made_of.setdefault(kernel, {}).update(made)

    def refused(self, first: str, second: str, kind: str, reason: str) -> None:
        self._refused.setdefault((first, second, reason), kind)

    def output_code(self, text: str, direction: Direction, graphs: Graphs) -> None:
        """`graphs`: those of its part, of which more may come."""
        number = self._counts[direction]
        self._counts[direction] += 1
        code = read_output_code(text)
        places = sorted({line for lines in code.calls.values() for line in lines} | {line for _, line in code.externs})
        name = f"{direction}.wrapper{f'.{number + 1}' if number else ''}"
        artifact = self.compile.artifact("wrapper", name, "python", text, [Span(str(n), n, n) for n in places])
        made = {kernel: list(nodes) for kernel, nodes in self._made_of.items()}
        self._made_of = {}
        self._stayed_apart()
        self._codes.append((direction, artifact, code, _remembered(text, made), graphs))
        self.compile.backend = "inductor"
        if code.plan:
            plan = name.replace("wrapper", "memory")
            self.compile.artifact("wrapper", plan, "text", "\n".join(code.plan) + "\n", code.plan_spans)

    def close(self) -> None:
        """Write the kernels; by now all graphs are known."""
        self._stayed_apart()
        origins: Origins | None = None
        for direction, wrapper, code, nodes, graphs in self._codes:
            above = next(
                (graphs[name] for name in (f"{direction}.post_grad", direction, "captured") if name in graphs), None
            )
            if above and (origins is None or origins.artifact is not above[0]):
                origins = Origins(*above)
            elif not above:
                origins = None
            for kernel in code.kernels:
                self._kernel(direction, wrapper, code, kernel, nodes.get(kernel.name) or kernel.nodes, origins)
            for name, line in code.externs:
                self._extern(direction, wrapper, name, line, nodes, origins)

    def _stayed_apart(self) -> None:
        """Write what was refused for one graph: the scheduler counts its operations anew for the next."""
        for (first, second, reason), kind in self._refused.items():
            self.compile.refusals.append(FusionRefusal(kind, self._said(first), self._said(second), reason))
        self._refused, self._operations = {}, {}

    def _said(self, group: str) -> str:
        """``op1_op2 (exp, sum_1)``: a group of the scheduler's, with the nodes of the graph that it computes."""
        nodes = dict.fromkeys(node for name in group.split("_") for node in self._operations.get(name, ()))
        return f"{group} ({', '.join(nodes)})" if nodes else group

    def _kernel(
        self,
        direction: Direction,
        wrapper: Artifact,
        code: OutputCode,
        kernel: FoundKernel,
        nodes: Sequence[str],
        origins: Origins | None,
    ) -> None:
        lines = kernel.text.split("\n")[:-1]
        spans = [Span(str(n), n, n) for n in range(1, len(lines) + 1)]
        name = f"{wrapper.name.replace('wrapper', kernel.name)}.{'cpp' if kernel.language == 'cpp' else 'triton'}"
        artifact = self.compile.artifact("kernel", name, kernel.language, kernel.text, spans)
        item = artifact.item("1")
        language: Literal["cpp", "triton"] = "triton" if kernel.language == "triton" else "cpp"
        self.compile.kernels.append(Kernel(name, kernel.name, language, direction, item))
        for line in code.calls[kernel.name]:
            self.compile.link(wrapper.item(str(line)), [item], "launch")
        if origins is None:
            return
        nodes = nodes or origins.by_operation(kernel.name.split("_"))
        group = origins.items(nodes)
        self.compile.fusions.append(Fusion(name, "kernel", group, name, None))
        self.compile.link(item, group, "kernel")
        by_operation: dict[str, list[str]] = {}
        for node in nodes:
            by_operation.setdefault(origins.operation_of(node), []).append(node)
        order = {node: i for i, node in enumerate(nodes)}
        for number, written in enumerate(lines, 1):
            found = (by_operation.get(each, [])[: limits.LINKS] for each in operations(written))
            meant = sorted((node for some in found for node in some), key=order.__getitem__)[: limits.LINKS]
            self.compile.link(artifact.item(str(number)), origins.items(meant), "kernel line")

    def _extern(
        self,
        direction: Direction,
        wrapper: Artifact,
        name: str,
        line: int,
        nodes: dict[str, list[str]],
        origins: Origins | None,
    ) -> None:
        item = wrapper.item(str(line))
        key = f"{wrapper.name}.{line}.{name}"
        self.compile.kernels.append(Kernel(key, name, "extern", direction, item))
        if origins is not None:
            known = nodes.get(name) or origins.by_operation([name.removesuffix(".default").rpartition(".")[2]])
            self.compile.link(item, origins.items(known), "kernel")


def aot_id(code: str) -> tuple[str | None, Direction]:
    """The number of the graph that a code is of, and which of its two directions."""
    head = _AOT_ID.search(code)
    return (head[1] if head else None), "backward" if head and head[2] == "backward" else "forward"


def operations(line: str) -> set[str]:
    """The operations that a line of C++ or Triton may compute."""
    found = {name for sign in _SIGN.findall(line) for name in _SIGNS.get(sign, ())}
    for word in _WORD.findall(line):
        found.add(word)
        found.update(_CALLS.get(word, ()))
    return found


def _remembered(text: str, made: dict[str, list[str]]) -> dict[str, list[str]]:
    """The nodes of each kernel: just told, or, for code from PyTorch's cache, as told when it was made."""
    key = hashlib.sha256(text.encode()).hexdigest()
    if made:
        with suppress(MissingTool):  # stock's own cache tells less then
            disk_cache.write("stock", key, json.dumps(made).encode())
        return made
    try:
        found = json.loads(disk_cache.read("stock", key) or b"{}")
    except ValueError:
        return made
    return {str(k): _names(v) for k, v in found.items()} if isinstance(found, dict) else {}


def _names(value: object) -> list[str]:
    return [str(name) for name in value] if isinstance(value, Iterable) and not isinstance(value, str) else []
