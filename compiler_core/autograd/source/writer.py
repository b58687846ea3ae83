"""Puts the source around a compiled forward and backward together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch.fx as fx

from compiler_core.autograd.partition import Partitioned
from compiler_core.autograd.source.call_function import CallFunction
from compiler_core.autograd.source.function_class import FunctionClass
from compiler_core.autograd.source.graph_calls import GraphCalls
from compiler_core.autograd.source.lines import SourceLines
from compiler_core.codegen.wrapper.executable import Executable
from compiler_core.records import Span


@dataclass(frozen=True)
class SourceText:
    """The source, what it names, and where its lines come from."""

    text: str
    spans: list[Span]
    nodes: dict[str, list[fx.Node]]
    """From the key of a span to the nodes that its lines were made from."""
    operator_nodes: dict[str, str]
    """From the name of each eager operator in the source to a captured node that calls it."""
    constants: dict[str, Any]
    """Objects that have no literal, by name."""


def write_text(parts: Partitioned, refusal: str, executables: Mapping[str, Executable], warns: bool) -> SourceText:
    """Returns the source for a partitioned joint graph.

    Args:
        parts: the forward and the backward.
        refusal: why the captured graph cannot run again for gradients of gradients; empty if it can.
        executables: the executables of the graphs ("forward", "backward") that our own backends compiled.
        warns: the graph gives warnings when it is called.
    """
    lines = SourceLines()
    calls = GraphCalls(lines, parts, executables)
    if parts.backward is not None:
        FunctionClass(lines, parts, calls, refusal).write()
    call = CallFunction(lines, parts, calls, warns)
    call.write()
    return SourceText(lines.text, lines.spans, lines.nodes, call.operator_nodes, lines.constants)
