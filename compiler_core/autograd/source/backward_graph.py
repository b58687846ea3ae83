"""Source that reads what the forward saved, frees it and runs the backward graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch.fx as fx

from compiler_core.autograd.partition import Partitioned
from compiler_core.autograd.source.graph_calls import GraphCalls
from compiler_core.autograd.source.lines import SourceLines, assignment
from compiler_core.codegen.wrapper.values import tuple_text
from compiler_core.support.fx_graphs import dependencies


class BackwardCall:
    """Writes the part of ``backward`` from reading the saved values to the call of the backward graph."""

    def __init__(self, lines: SourceLines, parts: Partitioned, calls: GraphCalls) -> None:
        self._lines, self._parts, self._joint, self._calls = lines, parts, parts.joint, calls
        self.absent = [f"no_{t}" for t in parts.joint.tangents]
        """The variables that tell whether a tangent is None."""

    @property
    def is_per_output(self) -> bool:
        """Whether a backward may go through one output and a later one through another."""
        frees_anything = self._saves or self._parts.tapes or any(self._joint.freed_together)
        return len(self._joint.tangents) > 1 and bool(frees_anything)

    @property
    def _saves(self) -> bool:
        return bool(self._parts.saved or self._parts.version_checked)

    def write(self, results: Sequence[str], nodes: Sequence[fx.Node | None]) -> None:
        """Assigns the gradients, the outputs `nodes` of the backward graph, to `results`."""
        saved, tapes = self._parts.saved, self._parts.tapes
        inputs = [*saved, *tapes, *self._parts.symbols, *self._joint.tangents, *self._parts.given]
        self._check_not_freed()
        self._read_tapes()
        body = self._calls.inlined("backward", inputs)
        if self._saves or not body:
            self._read_saved(self._reading_statement(inputs, as_list=not body))
        self._free_saved()
        if not body:
            kernels_can_run = self._kernels_can_run(f"inputs[:{len(saved)}]")
            self._lines.add(2, f"run = backward_graph if {kernels_can_run} else eager_backward")
            self._calls.write_call(2, "backward", f"{assignment(results)}run(inputs)", nodes)
            return
        kernels_can_run = self._kernels_can_run(tuple_text(saved))
        self._lines.add(2, f"if {kernels_can_run}:")
        self._calls.write_inlined(3, "backward", body, results, nodes)
        self._lines.add(2, "else:")
        self._lines.add(3, f"{assignment(results)}eager_backward([{', '.join(inputs)}])")

    def _reading_statement(self, inputs: Sequence[str], as_list: bool) -> str:
        """Returns a statement that reads the saved values, with ``{}`` in place of their tuple.

        They are read into a list, which the graph empties, or into variables, which its statements delete: nothing
        else may hold what was saved.
        """
        saved = self._parts.saved
        without_checked = f"[:{len(saved)}]" if self._parts.version_checked else ""
        if as_list:
            values = [f"*{{}}{without_checked}"] if self._saves else []
            return f"inputs = [{', '.join(values + list(inputs[len(saved) :]))}]"
        return f"{assignment(saved)}{{}}{without_checked if saved else ''}"

    def _read_saved(self, statement: str) -> None:
        if not self.is_per_output:
            self._lines.add(2, statement.format("ctx.saved_tensors"))
            return
        self._lines.add(2, "try:")
        self._lines.add(3, statement.format("ctx.saved_tensors"))
        self._lines.add(2, "except RuntimeError as error:  # an earlier backward went through other outputs")
        self._lines.add(3, statement.format(f"ctx.per_output.saved_after_free({tuple_text(self.absent)}, error)"))

    def _check_not_freed(self) -> None:
        """Raises eager's error for a second backward through freed tensors, if no saved tensor here would raise it."""
        if self._saves or self._parts.tapes or not any(self._joint.freed_together):
            return
        self._lines.add(2, "if ctx.primals is None:")
        check = f"ctx.per_output.check_not_freed({tuple_text(self.absent)})" if self.is_per_output else "raise_freed()"
        self._lines.add(3, check)

    def _read_tapes(self) -> None:
        if self._parts.tapes:
            if self.is_per_output:
                self._lines.add(2, f"ctx.per_output.check_not_freed({tuple_text(self.absent)})")
            self._lines.add(2, f"{assignment(self._parts.tapes)}ctx.tapes or raise_freed()")

    def _free_saved(self) -> None:
        """Frees what was saved unless the graph is retained.  A tape that is marked as last frees what it holds while
        it is used."""
        self._lines.add(2, "if not (create_graph or graph_is_retained()):  # free what was saved as early as possible")
        self._lines.add(3, "ctx.maybe_clear_saved_tensors()")
        self._lines.add(3, "ctx.primals = None")
        if self.is_per_output:
            self._lines.add(3, f"ctx.per_output.mark_passed({tuple_text(self.absent)})")
        if not self._parts.tapes:
            return
        depth = 3
        if self.is_per_output:
            self._lines.add(3, "if ctx.per_output.is_exhausted:")
            depth = 4
        for tape in self._parts.tapes:
            self._lines.add(depth, f"{tape}.is_last = True")
        self._lines.add(depth, "ctx.tapes = None")

    def _kernels_can_run(self, saved: str) -> str:
        """Returns the condition under which the compiled backward can run.

        Under vmap the tangents have no memory, as those of a class with its own kernels, and saved-tensor hooks may
        have replaced the `saved` tensors by tensors of another kind.
        """
        names = self._joint.tangents
        memory = f"type({names[0]}) is Tensor and has_memory({names[0]})"
        if len(names) > 1:
            tangents = tuple_text(names)
            memory = f"all_plain(map(type, {tangents})) and all(map(has_memory, {tangents}))"
        if not self._parts.saved:
            return memory
        self._lines.add(2, f"same_kinds = ctx.saved_kinds is None or ctx.saved_kinds == tensor_kinds({saved})")
        return f"same_kinds and {memory}"

    def needed_by_outputs(self) -> tuple[tuple[int, ...], ...]:
        """Returns, for each tangent, the indices of the saved values that its gradients are computed from."""
        needed: dict[str, set[str]] = {t: set() for t in self._joint.tangents}
        for tangents, saved in self._tangents_and_saved():
            for tangent in tangents:
                needed[tangent] |= saved
        for name in self._parts.version_checked:
            for i in self._joint.saved_by_eager[name]:
                needed[self._joint.tangents[i]].add(name)
        names = (*self._parts.saved, *self._parts.version_checked)
        return tuple(tuple(i for i, name in enumerate(names) if name in needed[t]) for t in self._joint.tangents)

    def _tangents_and_saved(self) -> Iterator[tuple[set[str], set[str]]]:
        """Yields, for each node of the backward, the tangents it depends on, and the saved values behind its inputs
        that depend on no tangent."""
        assert self._parts.backward is not None
        graph = self._parts.backward.graph
        tangents = dependencies(graph, set(self._joint.tangents))
        saved = dependencies(graph, {*self._parts.saved, *self._parts.tapes})
        for node in graph.nodes:
            yield tangents[node], set().union(*(saved[n] for n in node.all_input_nodes if not tangents[n]))
