"""What one rank did, as facts in order: frames, recompiles, guards, graph breaks, operations, collectives, and then
the collectives that ran.

Two ranks that do the same have equal facts.  A rank's own number is replaced by ``<rank>``, since a guard on it differs
on each rank of a healthy job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from compiler_core.records import Compile, Graph, Record
from compiler_core.records.capture import package_of
from compiler_core.records.recompiles import readable
from compiler_core.records.user_lines import LineRef
from compiler_core.tools.questions.line_facts import ComparedRun, from_cache, operation

Kind = Literal["frame", "recompile", "guard", "graph break", "graph", "collective", "collective call"]
_FOLLOWING_GUARDS = frozenset({"LIBRARY", "NO_TENSOR_ALIASING"})
"""Kinds of guards that say which functions are called, or which tensors there are: other facts say that better."""
KINDS: tuple[Kind, ...] = ("frame", "recompile", "guard", "graph break", "graph", "collective", "collective call")
"""``collective``: one in compiled code; ``collective call``: one that ran, in compiled code or not."""

_ADDRESS = re.compile(r"(?<![\w.])(0x[0-9a-f]{6,}|\d{12,})\b")
"""The address of an object, which has a meaning in its own process only."""
_NUMBERED = re.compile(r"\b(__\w+__)_\d+\b")
"""A global of stock's, such as ``__builtins_dict___3``, which it numbers in its process."""
_KERNEL_FILE = re.compile(r"ipykernel_\d+")
"""In the path of a cell: the number of its kernel's process."""
_FLOAT = re.compile(r"(?<![\w.])\d+(?:\.\d*(?:e[+-]?\d+)?|e[+-]?\d+)")
_COLLECTIVE = re.compile(r"c10d|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast_tensor")


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact about a rank at one of the user's lines."""

    kind: Kind
    compile: str
    file: str
    line: int
    """0 if it belongs to no line."""
    text: str
    source: str = ""
    """The text of the line."""


@dataclass(slots=True)
class RankFacts:
    """The facts of one rank, and its numbers."""

    name: str
    rank: int | None
    facts: list[Fact] = field(default_factory=list)
    compile_seconds: float = 0.0
    cache_hits: int = 0
    cache_misses: int = 0
    files: list[str] = field(default_factory=list)
    """The names of its files, without endings."""

    def count(self, kind: Kind) -> int:
        """Returns how many facts of a kind there are; of operations, how many compiles have some."""
        found = [fact for fact in self.facts if fact.kind == kind]
        return len({fact.compile for fact in found}) if kind == "graph" else len(found)

    def of(self, kind: Kind) -> list[Fact]:
        """Returns the facts of one kind."""
        return [fact for fact in self.facts if fact.kind == kind]


def rank_facts(record: Record, name: str, rank: int | None) -> RankFacts:
    """Returns the facts of a rank's record, in the order of its compiles."""
    side = ComparedRun(record)
    cached = [from_cache(compile_) for compile_ in record.compiles]
    facts = [fact for compile_ in _in_order(record) for fact in _compile_facts(side, record, compile_, rank)]
    facts += _calls(record)
    return RankFacts(name, rank, facts, record.compile_ns / 1e9, cached.count(True), cached.count(False), [name])


def _calls(record: Record) -> Iterator[Fact]:
    for call in record.collectives:
        some = f" of {call.ranks} ranks" if call.ranks else ""
        file = record.labels.get(call.filename) or _KERNEL_FILE.sub("ipykernel", call.filename)
        yield Fact("collective call", "", file, call.line, f"{call.name}({', '.join(call.tensors)}){some}", call.text)


def _in_order(record: Record) -> list[Compile]:
    """Returns the compiles in the order in which they began."""
    return sorted(record.compiles, key=lambda each: min((e.start for e in each.events), default=0))


def _compile_facts(side: ComparedRun, record: Record, compile_: Compile, rank: int | None) -> Iterator[Fact]:
    frame = next(each for each in record.frames if each.id == compile_.frame)
    first = side.first_line(compile_)

    def fact(kind: Kind, at: LineRef, text: str) -> Fact:
        text = _NUMBERED.sub(r"\1", _ADDRESS.sub("...", _without_rank(text, rank)))
        # In place of a line of PyTorch's, or a line that the trace lacks, that of the user's function is shown.
        is_library = package_of(at[0]) == "torch" != package_of(first[0])
        shown = first if is_library or not at[1] else at
        file = record.labels.get(shown[0], shown[0])  # a cell's file has another name in each process
        return Fact(kind, compile_.id, file, shown[1], text, side.text(at).strip())

    if compile_.cause:  # before the frame, of which it says why it is compiled
        cause = compile_.cause
        at = side.line_of(cause.line) if cause.line else first
        yield fact("recompile", at, f"{cause.source}: expected {cause.expected}, got {cause.got}")
    yield fact("frame", first, f"{frame.name} {compile_.outcome}")
    for guard in compile_.guards:
        if guard.kind not in _FOLLOWING_GUARDS:
            text = guard.expected if guard.kind == "GLOBAL_STATE" else readable(guard.code)
            yield fact("guard", side.line_of(guard.line), text)
    for artifact in (each for each in compile_.artifacts if each.pane == "captured" and each.graph):
        graph = artifact.graph or Graph([], [])
        for node in graph.nodes:
            if node.op.startswith("call_"):
                sizes = "" if node.shape is None else f" {node.dtype}[{', '.join(map(str, node.shape))}]"
                at = side.line_of(artifact.item(node.key))
                if _COLLECTIVE.search(node.target):
                    inputs = ", ".join(source for source, user in graph.edges if user == node.key)
                    yield fact("collective", at, f"{operation(node.target)}({inputs}){sizes}")
                else:
                    _, _, text = record.line_text(artifact.item(node.key)).partition(" = ")
                    floats = ", ".join(_FLOAT.findall(text))  # whole numbers are sizes and places, as shards have them
                    numbers = f"({floats})" if floats else ""
                    yield fact("graph", at, f"{operation(node.target)}{numbers}{sizes}")
    for break_ in compile_.breaks:
        place = break_.place
        at = (place.filename, place.lineno) if place else ("", 0)
        if place and (called := _COLLECTIVE.search(place.text)):
            yield fact("collective", at, called[0])
        yield fact("graph break", at, break_.kind if break_.reason == "other" else break_.reason)


def _without_rank(text: str, rank: int | None) -> str:
    """Replaces the rank's own number where the text compares with it, and in the name of its device."""
    if rank is None:
        return text
    text = re.sub(rf"cuda:{rank}\b", "cuda:<rank>", text)
    return re.sub(rf"([=!]= ){rank}\b", r"\1<rank>", text) if "rank" in text.lower() else text
