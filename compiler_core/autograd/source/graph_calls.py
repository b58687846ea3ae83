"""Source that runs a compiled graph: its statements if there are only a few, else a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch.fx as fx

from compiler_core.autograd.joint import output_nodes
from compiler_core.autograd.partition import Partitioned
from compiler_core.autograd.source.lines import SourceLines, assignment
from compiler_core.codegen.wrapper.executable import Executable, InlineBody
from compiler_core.support.fx_symbols import Origin


class GraphCalls:
    """Writes the statements that run the forward or the backward graph of `parts`.

    `executables` has the code of each graph that our own backends compiled.
    """

    def __init__(self, lines: SourceLines, parts: Partitioned, executables: Mapping[str, Executable]) -> None:
        self._lines, self._parts, self._joint, self._executables = lines, parts, parts.joint, executables

    @property
    def forward_may_raise(self) -> bool:
        """Whether the forward may raise IndexOutOfRange or CannotDraw."""
        return "forward" in self._executables and self._executables["forward"].may_raise

    @property
    def inputs_written_by_kernels(self) -> list[str]:
        return self._executables["forward"].in_place if "forward" in self._executables else []

    def inlined(self, graph: str, inputs: Sequence[str]) -> InlineBody | None:
        """Returns the statements of a graph if they can stand in the source: they are few, and name the inputs as the
        source does."""
        body = self._executables[graph].inline_body if graph in self._executables else None
        return body if body and body.inputs == list(inputs) else None

    def run_forward(self, depth: int, results: Sequence[str]) -> None:
        """Assigns the outputs of the forward graph to `results`."""
        inputs, nodes = self._joint.primals, output_nodes(self._parts.forward.graph)
        if body := self.inlined("forward", inputs):
            self.write_inlined(depth, "forward", body, results, nodes)
        else:
            call = f"{assignment(results)}forward_graph([{', '.join(inputs)}])"
            self.write_call(depth, "forward", call, nodes)

    def write_inlined(
        self, depth: int, graph: str, body: InlineBody, results: Sequence[str], nodes: Sequence[fx.Node | None]
    ) -> None:
        """Writes the statements of a graph, and assigns its results to the names `results` (``_``: unused)."""
        renamed = {new: old for new, old in zip(results, body.results, strict=True) if new not in (old, "_")}
        statements = [*body.statements]
        if renamed:
            statements.append(f"{', '.join(renamed)} = {', '.join(renamed.values())}")
        for statement in statements or ["pass"]:
            self._lines.add(depth, statement)
        self._lines.span(graph, nodes, max(1, len(statements)))

    def write_call(self, depth: int, graph: str, call: str, nodes: Sequence[fx.Node | None]) -> None:
        """Writes the call of a graph below autograd, so that PyTorch records neither views nor gradients."""
        if graph in self._executables and self._executables[graph].only_kernels:  # PyTorch does not see these anyway
            self._lines.add(depth, call, graph, nodes)
            return
        without_autocast = ", without_autocast()" if self._joint.autocast else ""
        self._lines.add(depth, f"with below_autograd(){without_autocast}:")
        self._lines.add(depth + 1, call, graph, nodes)

    def read_symbols(self, depth: int, symbols: Mapping[str, Origin]) -> None:
        """Reads the values of symbols from the primals."""
        for name, origin in symbols.items():
            self._lines.add(depth, f"{name} = {origin}")
