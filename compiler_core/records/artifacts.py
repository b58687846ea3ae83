"""Artifacts: the texts of a compile, the items in them, and the links between items."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

ArtifactId = str
"""``"<compile id>:<name>"``, or a source's, unique in its record."""
ItemId = str
"""``"<artifact id>#<key>"``, unique in its record."""

Stage = Literal[
    "capture", "guards", "bytecode", "joint", "partition", "lower", "fuse", "codegen", "build", "backend", "run"
]
"""A named part of the pipeline, in the order in which a compile runs them."""

Pane = Literal[
    "source",  # what the user wrote
    "bytecode",  # the frame's bytecode before
    "generated",  # the bytecode that replaces it
    "decompiled",  # the replacing bytecode as Python statements
    "guards",  # the guards as one Python function
    "captured",  # the FX graph
    "pregrad",  # stock: the graph before and after the passes that run before autograd
    "subgraphs",  # the functions of operators such as torch.cond: their captured graphs, and what became of them
    "joint",  # forward and backward as one graph
    "forward",
    "backward",
    "postgrad",  # stock: the graphs before and after the passes that run after autograd
    "passes",  # a graph after each pass that changed it: the user's passes, and those of stock
    "fusion",  # loops grouped into kernels
    "schedule",  # the loop nests of kernels, scheduled
    "kernel",  # C++ or Triton source
    "wrapper",  # Python that launches the kernels
    "machine",  # assembly, PTX, SASS and the intermediate representations before them
    "other",  # stock: other texts that PyTorch logged
]
Language = Literal["python", "bytecode", "cpp", "triton", "asm", "ptx", "sass", "mlir", "llvm", "text"]
Outcome = Literal["running", "ok", "failed"]


@dataclass(slots=True)
class Span:
    """The lines of an item: ``first`` to ``last`` of the artifact's text, counted from 1, both included."""

    key: str
    first: int
    last: int


@dataclass(slots=True)
class Node:
    """A node of an FX graph.  `shape`, `dtype` and `device` describe its first tensor, `bytes` counts all of them."""

    key: str
    op: str
    target: str
    shape: list[int | str] | None = None
    dtype: str | None = None
    device: str | None = None
    bytes: int | None = None
    module: str | None = None
    role: str | None = None
    """``primal``, ``tangent``, ``saved``, ``output``, ``gradient`` ..., or None; ``read``: a part or copy of a tensor
    of which Python reads a number."""
    place: str = ""
    """In the captured graph, where the program has the value, as the user would write it: where an input is read from,
    ``self.up.weight``, or where a result is kept after the call, ``self.kept``; empty if nowhere or unknown."""


@dataclass(slots=True)
class Graph:
    """The graph that an artifact's text prints: nodes, and edges as ``[from, to]`` pairs of node keys."""

    nodes: list[Node]
    edges: list[list[str]]

    @property
    def computes(self) -> bool:
        """Whether it has operations, and not only inputs, outputs and what Python reads."""
        return any(node.op.startswith("call_") and node.role != "read" for node in self.nodes)


@dataclass(slots=True)
class Artifact:
    """A text that the compiler made or read.  `spans` are its items, `graph` its nodes if it prints a graph."""

    id: ArtifactId
    pane: Pane
    name: str
    language: Language
    text: str
    spans: list[Span] = field(default_factory=list)
    graph: Graph | None = None

    def item(self, key: str) -> ItemId:
        """Returns the id of the item with this key."""
        return f"{self.id}#{key}"

    def statement(self, span: Span) -> str:
        """Returns the text of a node in a graph, without what is dropped after it."""
        return self.lines(span).strip().partition(";")[0]

    def lines(self, span: Span) -> str:
        """Returns the lines of one span."""
        return "\n".join(self.text.split("\n")[span.first - 1 : span.last])


@dataclass(slots=True)
class Edge:
    """A link: `made` was made from the items `sources` by `rule` (``capture``, ``autograd``, a lowering ...)."""

    made: ItemId
    sources: list[ItemId]
    rule: str


@dataclass(slots=True)
class Event:
    """One timed step of a stage.  Times are nanoseconds since the record was opened; `end` is None while it runs."""

    stage: Stage
    name: str
    start: int
    end: int | None = None
    outcome: Outcome = "running"
    detail: str = ""


@dataclass(slots=True)
class Failure:
    """A failure in the compiler, after which the program continued without the compiled code, or in a backend of the
    user, which ended the call."""

    stage: Stage
    message: str
    detail: str = ""
    """The traceback, for a bug report."""
    kind: Literal["bug", "tool", "refusal", "pass", "backend"] = "bug"
    """An exception in the compiler, a missing tool, a reason not to compile, a graph pass that was left out, or an
    exception of a backend of the user."""
    meaning: str = ""
    """The consequence for the program, as a sentence."""
    filename: str = ""
    lineno: int = 0
    """The user's line that was compiled; 0 if unknown."""
    line: ItemId | None = None
    """The item of that line, if it is among the sources."""
