"""Source of the `torch.autograd.Function` around a compiled forward and backward.

It sets the attributes of ``ctx`` that PyTorch's methods set (``save_for_backward`` sets ``to_save``, and so on): these
methods are written in Python, and calling them takes longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch.fx as fx

from compiler_core.autograd.joint import output_nodes
from compiler_core.autograd.partition import Partitioned
from compiler_core.autograd.source.backward_graph import BackwardCall
from compiler_core.autograd.source.graph_calls import GraphCalls
from compiler_core.autograd.source.lines import SourceLines, assignment, numbers_text
from compiler_core.autograd.source.writes import count_kernel_writes, write_inputs
from compiler_core.autograd.trace.outputs import TensorLayout
from compiler_core.codegen.wrapper.values import tuple_text
from compiler_core.support.operator_facts import view_base
from compiler_core.support.size_expr import are_contiguous


class FunctionClass:
    """Writes the class ``Compiled`` and its backward node.

    `refusal` says why the captured graph cannot run again for gradients of gradients; empty if it can.
    """

    def __init__(self, lines: SourceLines, parts: Partitioned, calls: GraphCalls, refusal: str) -> None:
        self._lines, self._parts, self._joint, self._calls, self._refusal = lines, parts, parts.joint, calls, refusal
        self._backward_call = BackwardCall(lines, parts, calls)

    def write(self) -> None:
        lines, saved = self._lines, self._parts.saved
        count = "1 tensor" if len(saved) == 1 else f"{len(saved)} tensors"
        lines.add(0, "class Compiled(torch.autograd.Function):")
        lines.add(1, f'"""Saves {count}, {self._parts.saved_bytes:,} bytes: {", ".join(saved) or "none"}."""')
        lines.blank()
        self._forward()
        lines.blank()
        self._backward()
        lines.blank(2)
        lines.add(0, "apply = super(torch.autograd.Function, Compiled).apply  # skips what only functorch needs")
        lines.blank(2)
        self._node_class()
        lines.blank(2)

    def _node_class(self) -> None:
        """The class of the node that PyTorch makes at each call.  Slots are faster than a ``__dict__``."""
        slots = ["primals"]
        if not self._refusal:
            slots.append("versions")
        if self._parts.symbols:
            slots.append("symbols")
        if self._backward_call.is_per_output:
            slots.append("per_output")
        if self._parts.tapes:
            slots.append("tapes")
        if self._parts.saved:
            slots.append("saved_kinds")
        self._lines.add(0, "class CompiledBackward(Compiled._backward_cls):")
        self._lines.add(1, f"__slots__ = {slots!r}")
        self._lines.add(1, "apply = Compiled.backward  # skips the choice between backward and vjp")
        self._lines.blank(2)
        self._lines.add(0, "Compiled._backward_cls = CompiledBackward")

    # ---- forward -----------------------------------------------------------------------

    def _forward(self) -> None:
        joint, parts = self._joint, self._parts
        self._lines.add(1, "@staticmethod")
        self._lines.add(1, f"def forward(ctx, {', '.join(joint.primals)}):")
        self._keep_primals()
        if parts.symbols:
            self._calls.read_symbols(2, parts.symbols)
            self._lines.add(2, f"ctx.symbols = {tuple_text(parts.symbols)}")
        self._calls.run_forward(2, [*joint.outputs, *parts.saved, *parts.tapes])
        if parts.tapes:
            self._lines.add(2, f"ctx.tapes = {tuple_text(parts.tapes)}")
        self._write_early()
        self._share_versions()
        self._save()
        non_differentiable = [name for name, differentiable in joint.function_outputs if not differentiable]
        if non_differentiable:
            self._lines.add(2, f"ctx.non_differentiable = {tuple_text(non_differentiable)}")
        self._lines.add(2, "ctx.materialize_grads = False")
        self._lines.add(2, f"return {tuple_text(name for name, _ in joint.function_outputs)}")

    def _keep_primals(self) -> None:
        """Keeps the inputs, except those that the graph writes to, for gradients of gradients."""
        written = {m.primal for m in self._joint.mutations}
        kept = [i for i in range(len(self._joint.primals)) if i not in written]
        self._lines.add(2, f"ctx.primals = {tuple_text(self._joint.primals[i] for i in kept)}")
        if not self._refusal:
            tensors = [self._joint.primals[i] for i in kept if i not in self._joint.numbers]
            self._lines.add(2, "try:")
            self._lines.add(3, f"ctx.versions = {tuple_text(f'{t}._version' for t in tensors)}")
            self._lines.add(2, "except RuntimeError:  # inference tensors have no version")
            self._lines.add(3, "ctx.versions = ()")

    def _write_early(self) -> None:
        """Writes to inputs that get no gradient before values are saved.

        The second run of a checkpoint ends where values are saved, and eager PyTorch has made these writes by then.
        """
        early = [m for m in self._joint.mutations if not self._joint.differentiable[m.output]]
        early = count_kernel_writes(self._lines, 2, self._joint, early, self._calls.inputs_written_by_kernels)
        write_inputs(self._lines, 2, self._parts, [m for m in early if m.under_no_grad])
        if recorded := [m for m in early if not m.under_no_grad]:
            self._lines.add(2, "with torch.enable_grad():")
            write_inputs(self._lines, 3, self._parts, recorded)

    def _share_versions(self) -> None:
        """If an output is a view of a saved value, saves a view of that output instead of the value.

        Then they share a version counter, and PyTorch notices writes to the output before the backward.
        """
        for output in output_nodes(self._parts.forward.graph)[: len(self._joint.outputs)]:
            base = view_base(output)
            if base is not output and base.name in self._parts.saved:
                layout = TensorLayout.of(base.meta["val"])
                shape, stride = numbers_text(layout.shape), numbers_text(layout.stride)
                window = f"{shape}, {stride}, {base.name}.storage_offset()"
                self._lines.add(2, f"{base.name} = {output.name}.detach().as_strided({window})")

    def _save(self) -> None:
        """Saves the values that the backward needs, and those whose versions PyTorch is to check."""
        joint, parts = self._joint, self._parts
        nodes = output_nodes(parts.forward.graph)[len(joint.outputs) :][: len(parts.saved)]
        names = (*parts.saved, *parts.version_checked)
        if names:
            self._lines.add(2, f"ctx.to_save = {tuple_text(names)}", "saved", nodes)
        if nodes:  # saved-tensor hooks may give the backward other tensors
            kinds = f"tensor_kinds({tuple_text(parts.saved)}) if saved_tensors_hooks(True) else None"
            self._lines.add(2, f"ctx.saved_kinds = {kinds}")
        if self._backward_call.is_per_output:
            # the node must not hold its outputs; a detached tensor shares the version counter
            values = [f"{n}.detach()" if n in joint.outputs else n for n in names]
            arguments = f"{tuple_text(values)}, {self._backward_call.needed_by_outputs()}, {joint.freed_together}"
            self._lines.add(2, f"ctx.per_output = SavedPerOutput({arguments})")

    # ---- backward ----------------------------------------------------------------------

    def _backward(self) -> None:
        joint, backward = self._joint, self._parts.backward
        assert backward is not None
        tangents = iter(joint.tangents)
        received = [next(tangents) if differentiable else f"_{name}" for name, differentiable in joint.function_outputs]
        self._lines.add(1, "@staticmethod")
        self._lines.add(1, f"def backward(ctx, {', '.join(received)}):")
        self._lines.add(2, f"if {' and '.join(f'{t} is None' for t in joint.tangents)}:")
        self._lines.add(3, f"return {tuple_text(['None'] * len(joint.primals))}")
        self._lines.add(2, "create_graph = is_grad_enabled()")
        if not self._refusal:
            self._lines.add(2, "if create_graph and inputs_unchanged(ctx):")
            self._lines.add(3, f"return double_backward.gradients(ctx, {tuple_text(joint.tangents)})")
            self._lines.add(2, "if is_anomaly_enabled() and inputs_unchanged(ctx):")
            self._lines.add(3, f"return double_backward.anomaly_gradients(ctx, {tuple_text(joint.tangents)})")
        dropped = self._drop_gradients()
        if dropped or self._parts.given or self._backward_call.is_per_output:
            self._lines.add(
                2, assignment(self._backward_call.absent) + tuple_text(f"{t} is None" for t in joint.tangents)
            )
        if self._parts.symbols:
            self._lines.add(2, f"{assignment(tuple(self._parts.symbols))}ctx.symbols")
        self._match_tangent_layouts()
        self._set_flags(backward.graph)
        nodes = output_nodes(backward.graph)
        results = [f"gradient_{i}" if n is not None else "_" for i, n in enumerate(nodes, 1)]
        self._backward_call.write(results, nodes)
        for line in (*_shared_objects(nodes), *self._copy_gradient_views(results), *dropped):
            self._lines.add(2, line)
        gradients = ["None" if r == "_" else r for r in results]
        self._lines.add(2, f"if create_graph:  # {self._refusal or 'an input was written to'}")
        self._lines.add(3, f"return double_backward.once_differentiable(ctx, {tuple_text(gradients)})")
        self._lines.add(2, f"return {tuple_text(gradients)}")

    def _set_flags(self, graph: fx.Graph) -> None:
        """Sets the flags that tell the backward which tangents are given."""
        joint = self._joint
        for node in graph.find_nodes(op="placeholder"):
            if node.name in self._parts.given:
                indices, device = self._parts.given[node.name], node.meta["val"].device
                present = " or ".join(f"not {self._backward_call.absent[i]}" for i in indices)
                there = [f"{joint.tangents[i]}.device" for i in indices if joint.layouts[i].device == device]
                self._lines.add(2, f"{node.name} = flag({present}, {there[0] if there else repr(str(device))})")

    def _match_tangent_layouts(self) -> None:
        """Gives the tangents the strides that the backward was compiled for."""
        joint = self._joint
        if joint.gradient_views:
            self._lines.add(2, "layout_changed = False")
        self._lines.add(2, "try:")
        from_sparse = []
        for name, layout in zip(joint.tangents, joint.layouts, strict=True):
            shape, stride = numbers_text(layout.shape), numbers_text(layout.stride)
            if_absent = f"{name} is None or " if len(joint.tangents) > 1 else ""
            differs = f"{name}.stride() != {stride}"
            if are_contiguous(layout.shape, layout.stride):
                differs = f"not {name}.is_contiguous()"
            arguments = f"{shape}, {stride}, {layout.dtype}, '{layout.device}'"
            self._lines.add(3, f"if type({name}) is not Tensor:")
            self._lines.add(4, f"{name} = as_plain({name})")
            from_sparse.append(f"{name} = match_layout(as_dense({name}), {arguments})")
            self._lines.add(3, f"if {if_absent}{differs}:")
            self._lines.add(4, f"{name} = match_layout({name}, {arguments})")
            if joint.gradient_views:
                self._lines.add(4, "layout_changed = True")
        self._lines.add(2, "except RuntimeError:  # a sparse tensor, or one of a class with its own kernels")
        rerun = f"double_backward.gradients_without_kernels(ctx, {tuple_text(joint.tangents)})"
        self._lines.add(3, f"if (gradients := {rerun}) is not None:")
        self._lines.add(4, "return gradients")
        if joint.gradient_views:
            from_sparse.append("layout_changed = True")
        for line in from_sparse:
            self._lines.add(3, line)

    def _copy_gradient_views(self, results: Sequence[str]) -> Iterator[str]:
        """Yields statements that copy gradients which share memory, where eager's AccumulateGrad copies.

        It copies a tangent itself if something else holds it, such as the caller of ``backward``.
        """
        for i in self._joint.viewed_tangents:
            if results[i] != "_":
                yield f"if {results[i]}._use_count() == 1: {results[i]} = {results[i]}.clone()"
        for i in self._joint.gradient_views:
            if results[i] != "_":
                yield f"if layout_changed: {results[i]} = {results[i]}.clone()"

    def _drop_gradients(self) -> list[str]:
        """Returns statements that drop the gradients which eager PyTorch would not have made, because none of the
        outputs that they come from got a gradient."""
        joint, lines = self._joint, []
        for i, node in enumerate(joint.gradients):
            sources = [t for t, reached in zip(joint.tangents, joint.reached_primals, strict=True) if i in reached]
            if node is not None and len(sources) < len(joint.tangents):
                condition = " and ".join(f"no_{t}" for t in sources)
                lines.append(f"gradient_{i + 1} = None if {condition} else gradient_{i + 1}")
        return lines


def _shared_objects(gradients: Sequence[fx.Node | None]) -> Iterator[str]:
    """Yields statements that make gradients of one node one tensor object, so that AccumulateGrad copies all but one.

    A backend may return several views of the same memory for them.
    """
    for i, node in enumerate(gradients):
        if node is not None and node in gradients[:i]:
            yield f"gradient_{i + 1} = gradient_{gradients.index(node) + 1}"
