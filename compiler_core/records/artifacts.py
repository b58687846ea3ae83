"""Texts that the compiler made or read, the items in them, and which came from which."""

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
"""A named part of the pipeline, in the order in which a compile visits them."""

Pane = Literal[
    "source",  # what the user wrote
    "bytecode",  # the frame's bytecode before
    "generated",  # the bytecode installed in its place
    "decompiled",  # the same as Python statements
    "guards",  # the guards as one Python function
    "captured",  # the FX graph
    "pregrad",  # stock: the graph before and after the passes that come before autograd
    "joint",  # forward and backward as one graph
    "forward",
    "backward",
    "postgrad",  # stock: the graphs before and after the passes that come after autograd
    "passes",  # stock: a graph after each pass that changed it
    "fusion",  # loops grouped into kernels
    "kernel",  # C++ or Triton source
    "wrapper",  # Python that launches the kernels
    "machine",  # assembly, PTX, SASS and what lies between
    "other",  # stock: whatever else PyTorch wrote
]
Language = Literal["python", "bytecode", "cpp", "triton", "asm", "ptx", "sass", "mlir", "llvm", "text"]
Outcome = Literal["running", "ok", "failed"]


@dataclass(slots=True)
class Span:
    """Lines ``first..last`` (from 1, inclusive) of an artifact's text are the item `key`."""

    key: str
    first: int
    last: int


@dataclass(slots=True)
class Node:
    """A node of an FX graph.  `shape` and `dtype` are of its (first) tensor, `bytes` of all."""

    key: str
    op: str
    target: str
    shape: list[int | str] | None = None
    dtype: str | None = None
    device: str | None = None
    bytes: int | None = None
    module: str | None = None
    role: str | None = None
    """``primal``, ``tangent``, ``saved``, ``output``, ``gradient`` ... where it has one."""


@dataclass(slots=True)
class Graph:
    """The artifact's text as nodes and ``[from, to]`` pairs of node keys."""

    nodes: list[Node]
    edges: list[list[str]]


@dataclass(slots=True)
class Artifact:
    """One text that the compiler made or read."""

    id: ArtifactId
    pane: Pane
    name: str
    language: Language
    text: str
    spans: list[Span] = field(default_factory=list)
    graph: Graph | None = None

    def item(self, key: str) -> ItemId:
        return f"{self.id}#{key}"

    def lines(self, span: Span) -> str:
        """The text of one span."""
        return "\n".join(self.text.split("\n")[span.first - 1 : span.last])


@dataclass(slots=True)
class Edge:
    """Item `made` came from `sources` by `rule` (``capture``, ``autograd``, a lowering ...)."""

    made: ItemId
    sources: list[ItemId]
    rule: str


@dataclass(slots=True)
class Event:
    """One step of a stage; times are nanoseconds since the record was opened."""

    stage: Stage
    name: str
    start: int
    end: int | None = None
    outcome: Outcome = "running"
    detail: str = ""


@dataclass(slots=True)
class Failure:
    """Something in the compiler failed and the program went on without it."""

    stage: Stage
    message: str
    detail: str = ""
    """The traceback, for whoever mends it."""
    kind: Literal["bug", "tool", "refusal"] = "bug"
    """An exception in the compiler, a tool that is missing, or a reason not to compile."""
    meaning: str = ""
    """What it means for the program, as a sentence."""
    filename: str = ""
    lineno: int = 0
    """The user's line that was compiled; 0 where none is known."""
    line: ItemId | None = None
    """The same, where it is among the sources."""
