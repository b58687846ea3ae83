"""Parses the text of `GraphModule.print_readable` into nodes, edges and the user's lines.

The text itself is recorded unchanged, so it equals the one in ``TORCH_LOGS`` and ``TORCH_TRACE``.  Parsing takes one
pass over its lines.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from compiler_core.records import Graph, Node, Span, limits
from compiler_core.tools.stock.source_files import SourceLocation

_HEAD = re.compile(r"    def forward\(")
_STATEMENT = re.compile(r'        (\w+)(?:: "([^"]*)")? = (.*)$')
_INPUT = re.compile(r'        (\w+): "([^"]*)"(?:  # (.*))?$')
_PARAMETER = re.compile(r'(\w+)(?:: "([^"]*)")?')
_LOCATION = re.compile(r" {8,9}# (?:[\w ]+: )?File: (.+?):(\d+) in (\S+?)(?:, code: (.*))?$")
_NO_LOCATION = ("        # No stacktrace found", "         # No stacktrace found")
"""Early versions of PyTorch write one more space."""
_TENSOR = re.compile(r"(\w+)\[([^\]]*)\](?:\[[^\]]*\])?(\w*(?::\d+)?)")
_NAME = re.compile(r"[A-Za-z_]\w*")
_OPERAND = re.compile(r"(?<![\w.])[A-Za-z_]\w*+(?!\s*\(|\s*=(?!=))")
"""A name that is not the name of an operation, an attribute or a keyword."""
_STRING = re.compile(r"'[^']*'|\"[^\"]*\"")
_UNPACKED = re.compile(r"        .+, = fx_pytree\.tree_flatten_spec\(\[(.*)\], self\._in_spec\)")
_CALL = re.compile(r"([A-Za-z_][\w.]*)\(")
_OPERAND_TEXT = r"-?[\w.]+(?:[-+]\d+)?"  # a name or a number, such as -1 or 1e-05
_OPERATOR = re.compile(rf"{_OPERAND_TEXT} (\S+) {_OPERAND_TEXT}$")
_UNARY = re.compile(r"([-~])\w+$")
_OPERATORS = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul",
    ">": "gt", "<": "lt", ">=": "ge", "<=": "le", "==": "eq", "!=": "ne", "&": "and_", "|": "or_", "^": "xor",
}  # fmt: skip
_DTYPES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "c64": "complex64", "c128": "complex128",
    "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "u8": "uint8", "b8": "bool",
    "f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
}  # fmt: skip
_ITEM_SIZES = {"complex128": 16, "float64": 8, "complex64": 8, "int64": 8, "float32": 4, "int32": 4}
_ITEM_SIZES |= {"float16": 2, "bfloat16": 2, "int16": 2}


@dataclass(slots=True)
class ParsedGraph:
    """The contents of a printed graph."""

    spans: list[Span] = field(default_factory=list)
    graph: Graph = field(default_factory=lambda: Graph([], []))
    locations: dict[str, SourceLocation] = field(default_factory=dict)
    """The user's line of each node that has one, by node key."""
    comments: dict[str, str] = field(default_factory=dict)
    """PyTorch's comments on inputs, by node key, and on outputs, by ``output:key``; for example
    ``SavedForBackwardsAOTOutput(idx=0)``."""
    outputs: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    """Counts of the nodes and edges beyond the limits."""


def read_graph(text: str, hints: Mapping[str, int] = MappingProxyType({})) -> ParsedGraph:
    """Parses the first ``forward`` of a printed graph; nested graphs are not parsed.

    `hints`: the values of symbolic sizes when the graph was traced, from which bytes are computed.
    """
    parser = _GraphParser(hints)
    for number, line in enumerate(text.split("\n"), 1):
        parser.read_line(number, line)
    return parser.finish()


class _GraphParser:
    def __init__(self, hints: Mapping[str, int]) -> None:
        self.parsed = ParsedGraph()
        self._hints = hints
        self._keys: dict[str, str] = {}
        """The key of each name's node."""
        self._output = "output"
        """The key of the output node."""
        self._placeholder_positions: dict[str, int] = {}
        self._state = "before"
        self._location: SourceLocation | None = None
        self._return_line = 0

    def finish(self) -> ParsedGraph:
        """Returns the graph.  An input that was renamed late has its new name everywhere."""
        graph, outputs = self.parsed.graph, self.parsed.outputs
        known = {node.key for node in graph.nodes}
        edges = ([self._keys.get(key, key) for key in edge] for edge in graph.edges)
        graph.edges = [edge for edge in edges if known.issuperset(edge)]
        outputs[:] = [key for key in (self._keys.get(name, name) for name in outputs) if key in known]
        return self.parsed

    def read_line(self, number: int, line: str) -> None:
        if self._state == "before":
            if _HEAD.match(line):
                self._state = "parameters"
                self._read_parameters(number, line[len("    def forward(") :])
        elif self._state == "parameters":
            self._read_parameters(number, line)
        elif self._state == "body":
            self._read_body_line(number, line)
        elif self._state == "return":
            self._read_output(number, line)

    def _read_parameters(self, number: int, line: str) -> None:
        code, _, comment = line.partition("  # ")
        for name, annotation in _PARAMETER.findall(code):
            if name != "self":
                self._add_node(Node(name, "placeholder", name), number, annotation)
                self._add_comment(name, comment)
        if code.rstrip().endswith("):"):
            self._state = "body"

    def _read_body_line(self, number: int, line: str) -> None:
        if line.startswith("        return"):
            self._return_line, self._state = number, "return"
            self._output = next(key for key in _output_keys() if key not in self._keys)
            self.parsed.graph.nodes.append(Node(self._output, "output", "output"))
            self._read_output(number, line[len("        return") :])
        elif line.startswith(("        #", "         #")):
            self._read_location(line)
        elif statement := _STATEMENT.match(line):
            self._read_statement(number, *statement.groups())
        elif parameter := _INPUT.match(line):  # of a joint graph
            self._add_node(Node(parameter[1], "placeholder", parameter[1]), number, parameter[2])
            self._add_comment(parameter[1], parameter[3] or "")
        elif unpacked := _UNPACKED.match(line):
            self._remove_inputs(set(_NAME.findall(unpacked[1])))

    def _read_location(self, line: str) -> None:
        if found := _LOCATION.match(line):
            filename, lineno, function, code = found.groups()
            self._location = SourceLocation(filename, int(lineno), function, code or "")
        elif line.startswith(_NO_LOCATION):
            self._location = None

    def _read_statement(self, number: int, name: str, annotation: str | None, value: str) -> None:
        code = value.partition(";  ")[0]
        if code in self._keys and name not in self._keys and self._rename_placeholder(code, name, number):
            return
        op, target = _call_of(code, self._keys)
        words = _OPERAND.findall(_STRING.sub("", code))
        inputs = dict.fromkeys(self._keys[word] for word in words if word in self._keys)
        inputs.pop(name, None)
        if not self._add_node(Node(name, op, target), number, annotation):
            return
        for source in inputs:
            self._add_edge(source, name)
        if self._location is not None:
            self.parsed.locations[name] = self._location

    def _rename_placeholder(self, parameter: str, name: str, number: int) -> bool:
        """Handles ``l_x_ = L_x_``, which gives an input the name that the rest of the graph uses."""
        nodes, spans = self.parsed.graph.nodes, self.parsed.spans
        position = self._placeholder_positions.pop(parameter, None)
        if position is None:
            return False
        self._placeholder_positions[name] = position
        nodes[position].key, spans[position] = name, Span(name, number, number)
        self._keys[parameter] = self._keys[name] = name
        return True

    def _remove_inputs(self, names: set[str]) -> None:
        """Removes the parameters of a joint graph, lists whose items are its inputs."""
        graph, parsed = self.parsed.graph, self.parsed
        graph.nodes = [node for node in graph.nodes if node.key not in names]
        parsed.spans = [span for span in parsed.spans if span.key not in names]
        for name in names:
            self._keys.pop(name, None)
        self._placeholder_positions = {n.key: i for i, n in enumerate(graph.nodes) if n.op == "placeholder"}

    def _add_node(self, node: Node, number: int, annotation: str | None) -> bool:
        """Adds a node unless it exists; returns False if the graph has too many nodes."""
        if node.key in self._keys:
            return True
        if len(self.parsed.graph.nodes) >= limits.NODES:
            self.parsed.left_out["graph nodes"] += 1
            return False
        if node.op == "placeholder":
            self._placeholder_positions[node.key] = len(self.parsed.graph.nodes)
        _set_tensor_fields(node, annotation or "", self._hints)
        self._keys[node.key] = node.key
        self.parsed.graph.nodes.append(node)
        self.parsed.spans.append(Span(node.key, number, number))
        return True

    def _add_edge(self, source: str, to: str) -> None:
        if len(self.parsed.graph.edges) < limits.EDGES:
            self.parsed.graph.edges.append([source, to])
        else:
            self.parsed.left_out["graph edges"] += 1

    def _add_comment(self, name: str, comment: str) -> None:
        if comment.strip():
            self.parsed.comments[name] = comment.strip()

    def _read_output(self, number: int, line: str) -> None:
        code, _, comment = line.partition("  # ")
        for word in _NAME.findall(code):
            if key := self._keys.get(word):
                self.parsed.outputs.append(key)
                self._add_edge(key, self._output)
                if comment.strip():
                    self.parsed.comments.setdefault(f"output:{key}", comment.strip())
        is_first = number == self._return_line
        opens_list = is_first and code.rstrip().endswith(("(", "["))
        closes_list = line.startswith(("        )", "        ]"))
        if not opens_list and (is_first or closes_list):
            self.parsed.spans.append(Span(self._output, self._return_line, number))
            self._state = "done"


def _output_keys() -> Iterator[str]:
    """Yields the names that torch.fx gives the output node: the first that no other node has."""
    yield "output"
    yield from (f"output_{n}" for n in itertools.count(1))


def _call_of(code: str, known: Container[str]) -> tuple[str, str]:
    """Returns the `op` and the `target` of the node that a statement prints."""
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
    if found := _UNARY.match(code):
        return "call_function", "operator.neg" if found[1] == "-" else "operator.invert"
    if code.endswith("]"):
        return "call_function", "operator.getitem"
    head, _, rest = code.partition(".")
    if head in known and rest.isidentifier():  # an attribute, such as ``x.T``
        return "call_method", rest
    return "call_function", code.split("(")[0]


def _set_tensor_fields(node: Node, annotation: str, hints: Mapping[str, int]) -> None:
    """Sets shape, dtype, device and bytes from an annotation such as ``f32[8, s17][s17, 1]cpu``."""
    parsed = _parse_tensor(annotation)
    if parsed is None:
        return
    node.dtype, shape, node.device = parsed
    node.shape = list(shape)
    sizes = [size if isinstance(size, int) else hints.get(size) for size in node.shape]
    known = [size for size in sizes if size is not None]
    if len(known) == len(sizes):
        node.bytes = tensor_bytes(known, node.dtype)


def tensor_bytes(shape: list[int], dtype: str) -> int:
    """Returns the bytes of a contiguous tensor; `dtype` without ``torch.``, of unknown size counts as one byte."""
    count = 1
    for size in shape:
        count *= size
    return count * _ITEM_SIZES.get(dtype, 1)


@functools.lru_cache(maxsize=1000)
def _parse_tensor(annotation: str) -> tuple[str, tuple[int | str, ...], str | None] | None:
    """Returns the dtype, shape and device of an annotation; None if it is not that of a tensor."""
    found = _TENSOR.match(annotation)
    if found is None:
        return None
    dtype, shape, device = found.groups()
    sizes = filter(None, (size.strip() for size in shape.split(",")))
    return _DTYPES.get(dtype, dtype), tuple(int(size) if size.isdigit() else size for size in sizes), device or None
