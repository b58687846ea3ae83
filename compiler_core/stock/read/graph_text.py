"""A graph as `GraphModule.print_readable` writes it, read back into nodes, edges and the user's lines.

The text is kept as it is, so it is the one that ``TORCH_LOGS`` and ``TORCH_TRACE`` have.  Reading it takes one
pass over its lines.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from compiler_core.records import Graph, Node, Span, limits

_HEAD = re.compile(r"    def forward\(")
_STATEMENT = re.compile(r'        (\w+)(?:: "([^"]*)")? = (.*)$')
_INPUT = re.compile(r'        (\w+): "([^"]*)"(?:  # (.*))?$')
_PARAMETER = re.compile(r'(\w+)(?:: "([^"]*)")?')
_PLACE = re.compile(r"        # (?:[\w ]+: )?File: (.+?):(\d+) in (\S+?)(?:, code: (.*))?$")
_NO_PLACE = "        # No stacktrace found"
_TENSOR = re.compile(r"(\w+)\[([^\]]*)\](?:\[[^\]]*\])?(\w*(?::\d+)?)")
_NAME = re.compile(r"[A-Za-z_]\w*")
_CALL = re.compile(r"([A-Za-z_][\w.]*)\(")
_OPERATOR = re.compile(r"[\w.]+ (\S+) [\w.]+$")
_OPERATORS = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul",
    ">": "gt", "<": "lt", ">=": "ge", "<=": "le", "==": "eq", "!=": "ne", "&": "and_", "|": "or_", "^": "xor",
}  # fmt: skip
_DTYPES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "c64": "complex64", "c128": "complex128",
    "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "u8": "uint8", "b8": "bool",
    "f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
}  # fmt: skip
_SIZES = {"complex128": 16, "float64": 8, "complex64": 8, "int64": 8, "float32": 4, "int32": 4}
_SIZES |= {"float16": 2, "bfloat16": 2, "int16": 2}


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the user's."""

    filename: str
    lineno: int
    function: str
    text: str


@dataclass(slots=True)
class Readable:
    """A graph's text, read."""

    spans: list[Span] = field(default_factory=list)
    graph: Graph = field(default_factory=lambda: Graph([], []))
    places: dict[str, Place] = field(default_factory=dict)
    """The user's line of each node that has one."""
    roles: dict[str, str] = field(default_factory=dict)
    """What PyTorch notes beside an input or output: ``SavedForBackwardsAOTOutput(idx=0)``."""
    outputs: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    """Nodes and edges beyond the limits."""


def read_graph(text: str, hints: Mapping[str, int] = MappingProxyType({})) -> Readable:
    """The first ``forward`` of a printed graph; nested graphs are lines of its text only.  `hints`: what symbols
    stood for when the graph was made, by which bytes are counted."""
    made = _Reader(hints)
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        made.read(number, line)
    return made.found


class _Reader:
    def __init__(self, hints: Mapping[str, int]) -> None:
        self.found = Readable()
        self._hints = hints
        self._known: set[str] = set()
        self._inputs: dict[str, int] = {}
        """The positions of placeholders."""
        self._state = "before"
        self._place: Place | None = None
        self._returned = 0

    def read(self, number: int, line: str) -> None:
        if self._state == "before":
            if _HEAD.match(line):
                self._state = "parameters"
                self._parameters(number, line[len("    def forward(") :])
        elif self._state == "parameters":
            self._parameters(number, line)
        elif self._state == "body":
            self._body(number, line)
        elif self._state == "return":
            self._output(number, line)

    def _parameters(self, number: int, line: str) -> None:
        code, _, comment = line.partition("  # ")
        for name, annotation in _PARAMETER.findall(code):
            if name != "self":
                self._node(Node(name, "placeholder", name), number, annotation)
                self._note(name, comment)
        if code.rstrip().endswith("):"):
            self._state = "body"

    def _body(self, number: int, line: str) -> None:
        if line.startswith("        return"):
            self._returned, self._state = number, "return"
            self.found.graph.nodes.append(Node("output", "output", "output"))
            self._output(number, line[len("        return") :])
        elif line.startswith("        #"):
            self._comment(line)
        elif found := _STATEMENT.match(line):
            self._statement(number, *found.groups())
        elif found := _INPUT.match(line):  # of a joint graph
            self._node(Node(found[1], "placeholder", found[1]), number, found[2])
            self._note(found[1], found[3] or "")

    def _comment(self, line: str) -> None:
        if found := _PLACE.match(line):
            filename, lineno, function, code = found.groups()
            self._place = Place(filename, int(lineno), function, code or "")
        elif line.startswith(_NO_PLACE):
            self._place = None

    def _statement(self, number: int, name: str, annotation: str | None, value: str) -> None:
        code = value.partition(";  ")[0]
        if code in self._known and self._rename(code, name, number):
            return
        op, target = _call_of(code, self._known)
        inputs = [word for word in dict.fromkeys(_NAME.findall(code)) if word in self._known and word != name]
        if not self._node(Node(name, op, target), number, annotation):
            return
        for source in inputs:
            self._edge(source, name)
        if self._place is not None:
            self.found.places[name] = self._place

    def _rename(self, parameter: str, name: str, number: int) -> bool:
        """``l_x_ = L_x_``: the input's own name, which the rest of the graph uses."""
        nodes, spans = self.found.graph.nodes, self.found.spans
        at = self._inputs.pop(parameter, None)
        if at is None:
            return False
        self._inputs[name] = at
        nodes[at].key, spans[at] = name, Span(name, number, number)
        self._known.add(name)
        return True

    def _node(self, node: Node, number: int, annotation: str | None) -> bool:
        """Add a node; False where there are too many."""
        if node.key in self._known:
            return True
        if len(self.found.graph.nodes) >= limits.NODES:
            self.found.left_out["graph nodes"] += 1
            return False
        if node.op == "placeholder":
            self._inputs[node.key] = len(self.found.graph.nodes)
        _describe(node, annotation or "", self._hints)
        self._known.add(node.key)
        self.found.graph.nodes.append(node)
        self.found.spans.append(Span(node.key, number, number))
        return True

    def _edge(self, source: str, to: str) -> None:
        if len(self.found.graph.edges) < limits.EDGES:
            self.found.graph.edges.append([source, to])
        else:
            self.found.left_out["graph edges"] += 1

    def _note(self, name: str, comment: str) -> None:
        if comment.strip():
            self.found.roles[name] = comment.strip()

    def _output(self, number: int, line: str) -> None:
        code, _, comment = line.partition("  # ")
        for word in _NAME.findall(code):
            if word in self._known:
                self.found.outputs.append(word)
                self._edge(word, "output")
                if comment.strip():
                    self.found.roles.setdefault(f"output:{word}", comment.strip())
        opened = number == self._returned and code.rstrip().endswith(("(", "["))
        if not opened and (number == self._returned or line.startswith(("        )", "        ]"))):
            self.found.spans.append(Span("output", self._returned, number))
            self._state = "done"


def _call_of(code: str, known: set[str]) -> tuple[str, str]:
    """The kind of node that a statement is, and what it calls."""
    if found := _CALL.match(code):
        name = found[1]
        head, _, rest = name.partition(".")
        if head == "self":
            return "call_module", rest
        if head in known and rest:
            return "call_method", rest
        return "call_function", name.removeprefix("torch.ops.")
    if code.startswith("self."):
        return "get_attr", code[len("self.") :]
    if found := _OPERATOR.match(code):
        return "call_function", f"operator.{_OPERATORS.get(found[1], found[1])}"
    if code.endswith("]"):
        return "call_function", "operator.getitem"
    return "call_function", code.split("(")[0]


def _describe(node: Node, annotation: str, hints: Mapping[str, int]) -> None:
    """Shape, dtype, device and bytes of ``f32[8, s17][s17, 1]cpu``."""
    found = _TENSOR.match(annotation)
    if found is None:
        return
    dtype, shape, device = found.groups()
    node.dtype = _DTYPES.get(dtype, dtype)
    node.shape = list(_sizes(shape))
    node.device = device or None
    sizes = [size if isinstance(size, int) else hints.get(size) for size in node.shape]
    known = [size for size in sizes if size is not None]
    if len(known) == len(sizes):
        node.bytes = tensor_bytes(known, node.dtype)


def tensor_bytes(shape: list[int], dtype: str) -> int:
    count = 1
    for size in shape:
        count *= size
    return count * _SIZES.get(dtype, 1)


def _sizes(shape: str) -> Iterator[int | str]:
    for size in filter(None, (s.strip() for s in shape.split(","))):
        yield int(size) if size.isdigit() else size
