"""Source of the `torch.autograd.Function` around a compiled forward and backward.

It sets the attributes of ``ctx`` that PyTorch's methods set (``save_for_backward`` sets ``to_save``, and so on): these
methods are written in Python, and calling them takes longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch.fx as fx

from compiler_core.autograd.joint import output_nodes
from compiler_core.autograd.source_writer import SourceWriter, assignment, numbers_text
from compiler_core.autograd.trace.outputs import TensorLayout
from compiler_core.codegen.wrapper.values import tuple_text
from compiler_core.support.fx_graphs import dependencies
from compiler_core.support.node_facts import view_base
from compiler_core.support.size_expr import are_contiguous


class FunctionClass:
    """Writes the class ``Compiled`` and its backward node.

    `refusal` says why the captured graph cannot run again for gradients of gradients; empty if it can.
    """

    def __init__(self, writer: SourceWriter, refusal: str) -> None:
        self._writer, self._parts, self._joint, self._refusal = writer, writer.parts, writer.joint, refusal
        self._backward_call = BackwardCall(writer)

    def write(self) -> None:
        lines, saved = self._writer, self._parts.saved
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
        self._writer.add(0, "class CompiledBackward(Compiled._backward_cls):")
        self._writer.add(1, f"__slots__ = {slots!r}")
        self._writer.add(1, "apply = Compiled.backward  # skips the choice between backward and vjp")
        self._writer.blank(2)
        self._writer.add(0, "Compiled._backward_cls = CompiledBackward")

    # ---- forward -----------------------------------------------------------------------

    def _forward(self) -> None:
        joint, parts = self._joint, self._parts
        self._writer.add(1, "@staticmethod")
        self._writer.add(1, f"def forward(ctx, {', '.join(joint.primals)}):")
        self._keep_primals()
        if parts.symbols:
            self._writer.read_symbols(2, parts.symbols)
            self._writer.add(2, f"ctx.symbols = {tuple_text(parts.symbols)}")
        self._writer.run_forward(2, [*joint.outputs, *parts.saved, *parts.tapes])
        if parts.tapes:
            self._writer.add(2, f"ctx.tapes = {tuple_text(parts.tapes)}")
        self._write_early()
        self._share_versions()
        self._save()
        non_differentiable = [name for name, differentiable in joint.function_outputs if not differentiable]
        if non_differentiable:
            self._writer.add(2, f"ctx.non_differentiable = {tuple_text(non_differentiable)}")
        self._writer.add(2, "ctx.materialize_grads = False")
        self._writer.add(2, f"return {tuple_text(name for name, _ in joint.function_outputs)}")

    def _keep_primals(self) -> None:
        """Keeps the inputs, except those that the graph writes to, for gradients of gradients."""
        written = {m.primal for m in self._joint.mutations}
        kept = [i for i in range(len(self._joint.primals)) if i not in written]
        self._writer.add(2, f"ctx.primals = {tuple_text(self._joint.primals[i] for i in kept)}")
        if not self._refusal:
            tensors = [self._joint.primals[i] for i in kept if i not in self._joint.numbers]
            self._writer.add(2, "try:")
            self._writer.add(3, f"ctx.versions = {tuple_text(f'{t}._version' for t in tensors)}")
            self._writer.add(2, "except RuntimeError:  # inference tensors have no version")
            self._writer.add(3, "ctx.versions = ()")

    def _write_early(self) -> None:
        """Writes to inputs that get no gradient before values are saved.

        The second run of a checkpoint ends where values are saved, and eager PyTorch has made these writes by then.
        """
        early = [m for m in self._joint.mutations if not self._joint.differentiable[m.output]]
        early = self._writer.count_kernel_writes(2, early)
        self._writer.write_inputs(2, [m for m in early if m.under_no_grad])
        if recorded := [m for m in early if not m.under_no_grad]:
            self._writer.add(2, "with torch.enable_grad():")
            self._writer.write_inputs(3, recorded)

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
                self._writer.add(2, f"{base.name} = {output.name}.detach().as_strided({window})")

    def _save(self) -> None:
        """Saves the values that the backward needs, and those whose versions PyTorch is to check."""
        joint, parts = self._joint, self._parts
        nodes = output_nodes(parts.forward.graph)[len(joint.outputs) :][: len(parts.saved)]
        names = (*parts.saved, *parts.version_checked)
        if names:
            self._writer.add(2, f"ctx.to_save = {tuple_text(names)}", "saved", nodes)
        if nodes:  # saved-tensor hooks may give the backward other tensors
            kinds = f"tensor_kinds({tuple_text(parts.saved)}) if saved_tensors_hooks(True) else None"
            self._writer.add(2, f"ctx.saved_kinds = {kinds}")
        if self._backward_call.is_per_output:
            # the node must not hold its outputs; a detached tensor shares the version counter
            values = [f"{n}.detach()" if n in joint.outputs else n for n in names]
            arguments = f"{tuple_text(values)}, {self._backward_call.needed_by_outputs()}, {joint.freed_together}"
            self._writer.add(2, f"ctx.per_output = SavedPerOutput({arguments})")

    # ---- backward ----------------------------------------------------------------------

    def _backward(self) -> None:
        joint, backward = self._joint, self._parts.backward
        assert backward is not None
        tangents = iter(joint.tangents)
        received = [next(tangents) if differentiable else f"_{name}" for name, differentiable in joint.function_outputs]
        self._writer.add(1, "@staticmethod")
        self._writer.add(1, f"def backward(ctx, {', '.join(received)}):")
        self._writer.add(2, f"if {' and '.join(f'{t} is None' for t in joint.tangents)}:")
        self._writer.add(3, f"return {tuple_text(['None'] * len(joint.primals))}")
        self._writer.add(2, "create_graph = is_grad_enabled()")
        if not self._refusal:
            self._writer.add(2, "if create_graph and inputs_unchanged(ctx):")
            self._writer.add(3, f"return double_backward.gradients(ctx, {tuple_text(joint.tangents)})")
            self._writer.add(2, "if is_anomaly_enabled() and inputs_unchanged(ctx):")
            self._writer.add(3, f"return double_backward.anomaly_gradients(ctx, {tuple_text(joint.tangents)})")
        dropped = self._drop_gradients()
        if dropped or self._parts.given or self._backward_call.is_per_output:
            self._writer.add(
                2, assignment(self._backward_call.absent) + tuple_text(f"{t} is None" for t in joint.tangents)
            )
        if self._parts.symbols:
            self._writer.add(2, f"{assignment(tuple(self._parts.symbols))}ctx.symbols")
        self._match_tangent_layouts()
        self._set_flags(backward.graph)
        for name, stand_in in self._writer.optional.items():
            self._writer.add(2, f"if {name} is None: {name} = {stand_in}  # kernels do not read it")
        nodes = output_nodes(backward.graph)
        results = [f"gradient_{i}" if n is not None else "_" for i, n in enumerate(nodes, 1)]
        self._backward_call.write(results, nodes)
        for line in (*_shared_objects(nodes), *self._copy_gradient_views(results), *dropped):
            self._writer.add(2, line)
        gradients = ["None" if r == "_" else r for r in results]
        self._writer.add(2, f"if create_graph:  # {self._refusal or 'an input was written to'}")
        self._writer.add(3, f"return double_backward.once_differentiable(ctx, {tuple_text(gradients)})")
        self._writer.add(2, f"return {tuple_text(gradients)}")

    def _set_flags(self, graph: fx.Graph) -> None:
        """Sets the flags that tell the backward which tangents are given."""
        joint = self._joint
        for node in graph.find_nodes(op="placeholder"):
            if node.name in self._parts.given:
                indices, device = self._parts.given[node.name], node.meta["val"].device
                present = " or ".join(f"not {self._backward_call.absent[i]}" for i in indices)
                known = [i for i in indices if joint.tangents[i] not in self._writer.optional]
                there = [f"{joint.tangents[i]}.device" for i in known if joint.layouts[i].device == device]
                self._writer.add(2, f"{node.name} = flag({present}, {there[0] if there else repr(str(device))})")

    def _match_tangent_layouts(self) -> None:
        """Gives the tangents the strides that the backward was compiled for."""
        joint = self._joint
        if joint.gradient_views:
            self._writer.add(2, "layout_changed = False")
        self._writer.add(2, "try:")
        from_sparse = []
        for name, layout in zip(joint.tangents, joint.layouts, strict=True):
            stride = numbers_text(layout.stride)
            if_absent = f"{name} is None or " if len(joint.tangents) > 1 else ""
            if name in self._writer.optional:
                if_absent = f"{name} is not None and "
            differs = f"{name}.stride() != {stride}"
            if are_contiguous(layout.shape, layout.stride):
                differs = f"not {name}.is_contiguous()"
            arguments = self._writer.layout_text(layout)
            self._writer.add(3, f"if type({name}) is not Tensor:")
            self._writer.add(4, f"{name} = as_plain({name})")
            from_sparse.append(f"{name} = match_layout(as_dense({name}), {arguments})")
            self._writer.add(3, f"if {if_absent}{differs}:")
            self._writer.add(4, f"{name} = match_layout({name}, {arguments})")
            if joint.gradient_views:
                self._writer.add(4, "layout_changed = True")
        self._writer.add(2, "except RuntimeError:  # a sparse tensor, or one of a class with its own kernels")
        rerun = f"double_backward.gradients_without_kernels(ctx, {tuple_text(joint.tangents)})"
        self._writer.add(3, f"if (gradients := {rerun}) is not None:")
        self._writer.add(4, "return gradients")
        if joint.gradient_views:
            from_sparse.append("layout_changed = True")
        for line in from_sparse:
            self._writer.add(3, line)

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


class BackwardCall:
    """Writes the part of ``backward`` from reading the saved values to the call of the backward graph."""

    def __init__(self, writer: SourceWriter) -> None:
        self._writer, self._parts, self._joint = writer, writer.parts, writer.joint
        self.absent = [f"no_{t}" for t in writer.joint.tangents]
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
        if self._parts.tapes:
            if self.is_per_output:
                self._writer.add(2, f"ctx.per_output.check_not_freed({tuple_text(self.absent)})")
            self._writer.add(2, f"{assignment(self._parts.tapes)}ctx.tapes or raise_freed()")
        body = self._writer.inlined("backward", inputs)
        if self._saves or not body:
            self._read_saved(self._reading_statement(inputs, as_list=not body))
        self._free_saved()
        if not body:
            kernels_can_run = self._kernels_can_run(f"inputs[:{len(saved)}]")
            self._writer.add(2, f"run = backward_graph if {kernels_can_run} else eager_backward")
            for name, stand_in in self._writer.optional.items():
                at = inputs.index(name) - len(inputs)
                zeros = f"inputs[{at}] = {self._zeros(name)}"
                self._writer.add(2, f"if {name} is {stand_in} and run is eager_backward: {zeros}")
            self._writer.write_call(2, "backward", f"{assignment(results)}run(inputs)", nodes)
            return
        kernels_can_run = self._kernels_can_run(tuple_text(saved))
        self._writer.add(2, f"if {kernels_can_run}:")
        self._writer.write_inlined(3, "backward", body, results, nodes)
        self._writer.add(2, "else:")
        for name, stand_in in self._writer.optional.items():
            self._writer.add(3, f"if {name} is {stand_in}: {name} = {self._zeros(name)}")
        self._writer.add(3, f"{assignment(results)}eager_backward([{', '.join(inputs)}])")

    def _zeros(self, tangent: str) -> str:
        """Returns what makes the zeros that PyTorch's operators take for an absent tangent."""
        return f"new_zeros({self._writer.layout_text(self._joint.layouts[self._joint.tangents.index(tangent)])})"

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
            self._writer.add(2, statement.format("ctx.saved_tensors"))
            return
        self._writer.add(2, "try:")
        self._writer.add(3, statement.format("ctx.saved_tensors"))
        self._writer.add(2, "except RuntimeError as error:  # an earlier backward went through other outputs")
        self._writer.add(3, statement.format(f"ctx.per_output.saved_after_free({tuple_text(self.absent)}, error)"))

    def _check_not_freed(self) -> None:
        """Raises eager's error for a second backward through freed tensors, if no saved tensor here would raise it."""
        if self._saves or self._parts.tapes or not any(self._joint.freed_together):
            return
        self._writer.add(2, "if ctx.primals is None:")
        check = f"ctx.per_output.check_not_freed({tuple_text(self.absent)})" if self.is_per_output else "raise_freed()"
        self._writer.add(3, check)

    def _free_saved(self) -> None:
        """Frees what was saved unless the graph is retained.  A tape that is marked as last frees what it holds while
        it is used."""
        self._writer.add(2, "if not (create_graph or graph_is_retained()):  # free what was saved as early as possible")
        self._writer.add(3, "ctx.maybe_clear_saved_tensors()")
        self._writer.add(3, "ctx.primals = None")
        if self.is_per_output:
            self._writer.add(3, f"ctx.per_output.mark_passed({tuple_text(self.absent)})")
        if not self._parts.tapes:
            return
        depth = 3
        if self.is_per_output:
            self._writer.add(3, "if ctx.per_output.is_exhausted:")
            depth = 4
        for tape in self._parts.tapes:
            self._writer.add(depth, f"{tape}.is_last = True")
        self._writer.add(depth, "ctx.tapes = None")

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
        self._writer.add(2, f"same_kinds = ctx.saved_kinds is None or ctx.saved_kinds == tensor_kinds({saved})")
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
