"""The joint graph: forward and backward of a captured graph as one functional graph of ATen operators.

    placeholders   primals_1 ...     the inputs of the captured graph
                   tangents_1 ...    the gradients of its differentiable outputs
    outputs        forward outputs, then one gradient (or None) for each primal

The forward outputs are the tensors that the captured graph creates and returns, followed by the new values of the
inputs that it writes to.  A returned value that is an input, or a view of an input or of another output, is not an
output of the joint graph.  `JointGraph.returns` says how to make it, so that memory is shared exactly as in eager
PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.fx as fx

from compiler_core.autograd.passes import simplify, slice_writes
from compiler_core.autograd.passes.gpu_rewrites import make_constants_on_gpus, to_channels_last
from compiler_core.autograd.trace import decompositions, eager_memory, replaced_calls
from compiler_core.autograd.trace.functionalize import FunctionalRun
from compiler_core.autograd.trace.outputs import InputMutation, JointRefused, ReturnedValue, TensorLayout, ViewReplay
from compiler_core.autograd.trace.repeats import Repeats
from compiler_core.autograd.trace.writes import VisibleWrites, differs_in_short_strides
from compiler_core.hook.failures import only_recorded
from compiler_core.records import Compile, Expansion
from compiler_core.support import fx_symbols
from compiler_core.support.fx_graphs import add_origins, free_source_with, record_graph, target_name
from compiler_core.support.node_facts import view_base
from compiler_core.support.transform_levels import levels_left
from compiler_core.torch_private import (
    DisableAutocast,
    FakeTensor,
    FakeTensorMode,
    OpOverload,
    detect_fake_mode,
    is_any_autocast_enabled,
)

__all__ = ["InputMutation", "JointGraph", "JointRefused", "ReturnedValue", "ViewReplay", "trace_joint"]


@dataclass(frozen=True)
class JointGraph:
    """A joint graph, or only a forward graph if no gradient is required (`tangents` is empty)."""

    gm: fx.GraphModule
    primals: tuple[str, ...]
    tangents: tuple[str, ...]
    outputs: tuple[str, ...]
    """Names of the nodes of the forward outputs, those of `mutations` last."""
    captured_outputs: tuple[fx.Node, ...]
    """For each forward output, the captured node that has its final value."""
    differentiable: tuple[bool, ...]
    """For each forward output, whether it has a tangent."""
    reached_primals: tuple[frozenset[int], ...]
    """For each tangent, the primals that get a gradient from it."""
    unreached_primals: tuple[int, ...]
    """The primals that require a gradient and get none from any tangent: eager PyTorch has no edge to them."""
    layouts: tuple[TensorLayout, ...]
    """The layout of each tangent: that of its output, or a dense one if elements of the output share memory."""
    freed_together: tuple[tuple[int, ...], ...]
    """For each tangent, the tangents that eager PyTorch allows no backward from after one from it; see `EagerSaves`."""
    gradient_views: tuple[int, ...]
    """The primals whose gradients are views that share memory with other gradients.  Eager PyTorch copies them if
    tangents have strides that a gradient may not have."""
    viewed_tangents: tuple[int, ...]
    """The primals whose gradient is a tangent of which another gradient is a view.  Eager PyTorch copies them."""
    unsaved_by_eager: frozenset[str]
    """The primals, the values whose memory outputs use, and `as_strided` views of both, that eager PyTorch does not
    keep.  Writing to them before the backward does not change its gradients."""
    saved_by_eager: Mapping[str, tuple[int, ...]]
    """The primals and outputs that eager PyTorch saves, each with the tangents behind whose outputs it saves them."""
    returns: tuple[ReturnedValue, ...]
    mutations: tuple[InputMutation, ...]
    autocast: bool
    """Whether autocast was on.  The graph contains the casts, so it runs with autocast off."""

    @property
    def function_outputs(self) -> tuple[tuple[str, bool], ...]:
        """The forward outputs that the autograd function returns, each with whether it is differentiable.

        New values of inputs that get no gradient are written inside the function.  They are outputs only if the
        captured graph returns them too: otherwise the running statistics of a network would be a hundred more outputs
        of each call.
        """
        returned = {r.index for r in self.returns if r.base != "primal"}
        return tuple(
            (name, differentiable)
            for i, (name, differentiable) in enumerate(zip(self.outputs, self.differentiable, strict=True))
            if differentiable or i in returned
        )

    @property
    def numbers(self) -> frozenset[int]:
        """The primals that are not tensors."""
        placeholders = self.gm.graph.find_nodes(op="placeholder")[: len(self.primals)]
        return frozenset(i for i, n in enumerate(placeholders) if not isinstance(n.meta.get("val"), torch.Tensor))

    def origins(self, names: Iterable[str]) -> dict[str, fx_symbols.Origin]:
        """Returns where the symbols `names` are read from, in terms of the primals; raises `NoOrigin` if one cannot be
        read."""
        found = fx_symbols.symbol_origins(self.gm.graph.find_nodes(op="placeholder")[: len(self.primals)])
        return {name: fx_symbols.origin_of(name, found) for name in sorted(names)}

    @property
    def has_backward(self) -> bool:
        return bool(self.tangents)

    @property
    def gradients(self) -> tuple[fx.Node | None, ...]:
        """The node of each primal's gradient, or None."""
        return tuple(output_nodes(self.gm.graph)[len(self.outputs) :])


def output_nodes(graph: fx.Graph) -> list[Any]:
    """Returns the nodes (or Nones) that the graph returns."""
    outputs: Any = graph.output_node().args[0]
    return list(outputs)


def trace_joint(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    compile_: Compile,
    change: Callable[[fx.GraphModule], fx.GraphModule] | None = None,
) -> JointGraph:
    """Traces the joint graph of `gm`, in the current grad mode.

    Args:
        gm: the captured graph.
        example_inputs: fake tensors or symbolic numbers like the inputs.
        compile_: the record of the compile, which gets the graph.
        change: the user's passes over the joint graph.

    Raises:
        JointRefused: running the joint graph could differ from eager PyTorch.
    """
    with compile_.step("joint"):
        with compile_.step("joint", "trace"):
            run, traced = _trace(gm, example_inputs)
        with only_recorded(compile_, "joint", "the times of lines"):
            run.provenance.line_clock.add_to(compile_.line_times, "joint")
        autocast = is_any_autocast_enabled()
        # the graph contains the casts, and passes call operators to find out what they return
        with compile_.step("joint", "simplify"), DisableAutocast():
            joint = _assemble(run, traced, example_inputs, compile_, change, autocast)
        name: Literal["joint", "forward"] = "joint" if joint.has_backward else "forward"
        with only_recorded(compile_, "joint", "the joint graph"):
            record_graph(compile_, name, name, joint.gm)
            compile_.expansions = _expansions(gm.graph, joint.gm.graph)
    return joint


def _expansions(captured: fx.Graph, joint: fx.Graph) -> list[Expansion]:
    """Returns, for each operation of `captured`, the nodes that it became in the forward and in the backward."""
    calls = [n for n in captured.nodes if n.op.startswith("call_") and "item" in n.meta]
    found = {n.meta["item"]: Expansion(n.meta["item"], target_name(n.target), [], [], [], []) for n in calls}
    for node in joint.nodes:
        function = node.meta.get("rule", "").removeprefix("autograd ")
        added = function != node.meta.get("rule", "")
        origins = node.meta.get("origin", ()) if node.op != "placeholder" else ()
        for into in (found[item] for item in origins if item in found):
            half = into.backward if added else into.forward
            half.append(node.meta["item"])
            if added and function not in into.functions:
                into.functions.append(function)
            if node.meta.get("decomposed") not in (None, *into.decomposed):
                into.decomposed.append(node.meta["decomposed"])
    return list(found.values())


def _trace(gm: fx.GraphModule, examples: Sequence[Any]) -> tuple[FunctionalRun, fx.GraphModule]:
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.traceback import preserve_node_meta

    fake_mode = detect_fake_mode(list(examples)) or FakeTensorMode()
    run = FunctionalRun(gm, examples, fake_mode)
    rules: Any = {
        **Repeats().rules(decompositions.decomposition_table()),
        torch.ops.aten.bernoulli.p: run.bernoulli,
        replaced_calls.RANDOM_BETWEEN: replaced_calls.random_between,
    }

    def joint(*primals: Any) -> list[torch.Tensor | None]:
        with VisibleWrites():
            return run.run_joint(*primals)

    symbolic, grad = any(map(fx_symbols.has_symbols, examples)), torch.is_grad_enabled()
    with (
        torch.inference_mode(False),  # autograd cannot use its tensors
        torch.set_grad_enabled(grad),
        levels_left(),
        preserve_node_meta(),
        fake_mode,
        fx_symbols.python_decompositions(symbolic),
    ):
        fresh = [e.detach() if isinstance(e, torch.Tensor) else e for e in examples]
        traced = make_fx(joint, decomposition_table=rules, tracing_mode="fake")(*fresh)
    free_source_with(traced)
    return run, traced


def _assemble(
    run: FunctionalRun,
    traced: fx.GraphModule,
    examples: Sequence[Any],
    compile_: Compile,
    change: Callable[[fx.GraphModule], fx.GraphModule] | None,
    autocast: bool,
) -> JointGraph:
    primals = tuple(f"primals_{i}" for i in range(1, len(examples) + 1))
    tangents = tuple(f"tangents_{i}" for i in range(1, sum(run.plan.differentiable) + 1))
    gm = simplify.copy_graph(traced, primals + tangents)
    _check_writes(gm.graph)
    count = len(run.plan.outputs)
    returned = count - len(run.plan.mutations)
    if tangents:
        inputs = gm.graph.find_nodes(op="placeholder")[: len(primals)]
        run.memory = eager_memory.after_accumulation(run.memory, inputs, output_nodes(gm.graph)[count:])
    simplify.inline_constants(gm)
    simplify.give_zeros_memory(gm.graph)
    simplify.keep_errors(gm.graph)
    simplify.conjugate_numbers(gm.graph)
    simplify.drop_aliases(gm.graph)
    if change:
        simplify.eliminate_dead_code(gm.graph)
        gm = change(gm)
    views = _simplify(gm, run, count, returned, compile_)
    _set_node_roles(gm.graph, count, returned)
    _match_captured(gm.graph, run.plan.captured_outputs[:returned])
    _mark_new_values(gm.graph, run, count)
    gm.graph.lint()
    gm.recompile()
    nodes = output_nodes(gm.graph)
    exposed, guarded = _externally_writable(gm.graph, run, returned) if tangents else (frozenset(), {})
    known = frozenset[int]().union(*run.reached_primals, (m.primal for m in run.plan.mutations))
    with_gradient = (i for i, e in enumerate(examples) if isinstance(e, torch.Tensor) and e.requires_grad)
    layouts = [TensorLayout.of(n.meta["val"]) for n in gm.graph.find_nodes(op="placeholder") if n.name in tangents]
    return JointGraph(
        gm=gm,
        primals=primals,
        tangents=tangents,
        outputs=tuple(n.name for n in nodes[:count]),
        captured_outputs=tuple(run.plan.captured_outputs),
        differentiable=tuple(run.plan.differentiable),
        reached_primals=tuple(run.reached_primals),
        unreached_primals=tuple(i for i in with_gradient if i not in known),
        layouts=tuple(layouts),
        freed_together=run.freed_together,
        gradient_views=views,
        viewed_tangents=run.memory.viewed_tangents,
        unsaved_by_eager=exposed,
        saved_by_eager=guarded,
        returns=tuple(run.plan.returns),
        mutations=tuple(run.plan.mutations),
        autocast=autocast,
    )


def _match_captured(graph: fx.Graph, captured: Sequence[fx.Node]) -> None:
    """Gives each returned value its ``meta["is_gradient"]`` (see `pipeline/frame.py`) and, where they differ for
    dimensions of size 1, its strides at capture: operators that one was decomposed to choose others."""
    for node, producer in zip(output_nodes(graph), captured, strict=False):
        if "is_gradient" in producer.meta:
            node.meta["is_gradient"] = True
        wanted, value = producer.meta.get("val"), node.meta.get("val")
        if (
            isinstance(wanted, torch.Tensor)
            and isinstance(value, FakeTensor)
            and differs_in_short_strides(value, wanted)
        ):
            with value.fake_mode:
                like = torch.empty_strided(value.shape, wanted.stride(), dtype=value.dtype, device=value.device)
            node.meta["val"] = like


def _mark_new_values(graph: fx.Graph, run: FunctionalRun, count: int) -> None:
    """Sets ``meta["new_value_of"]`` to the name of an input, for each output that kernels may write to that input
    directly: autograd does not record the write, and none of the other `count` forward outputs is that value."""
    inputs, outputs = graph.find_nodes(op="placeholder"), output_nodes(graph)[:count]
    for mutation in run.plan.mutations:
        node, target = outputs[mutation.output], inputs[mutation.primal]
        recorded = run.plan.differentiable[mutation.output] or (
            target.meta["val"].requires_grad and not mutation.under_no_grad
        )
        if not (recorded or mutation.resized) and outputs.count(node) == 1:
            node.meta["new_value_of"] = target.name


def _simplify(gm: fx.GraphModule, run: FunctionalRun, count: int, returned: int, compile_: Compile) -> tuple[int, ...]:
    """Runs all passes, each as a step of the record; returns `JointGraph.gradient_views`.

    Of the graph's outputs the first `count` are forward outputs, of which the first `returned` are returned.
    """
    try:
        fx_symbols.compute_sizes_from_placeholders(gm.graph)
    except fx_symbols.NoOrigin as error:
        raise JointRefused(str(error)) from error

    def run_pass(function: Callable[..., Any], *args: Any) -> Any:
        with compile_.step("joint", f"pass {function.__name__.replace('_', ' ')}"):
            return function(*args)

    graph, has_backward = gm.graph, any(run.plan.differentiable)
    run_pass(simplify.cancel_transposes, graph)
    run_pass(make_constants_on_gpus, graph)
    run_pass(slice_writes.shorten_write_chains, graph)
    if has_backward:
        run_pass(simplify.narrow_masks, graph)
    run_pass(eager_memory.copy_shared_outputs, graph, count)
    run_pass(simplify.eliminate_common_subexpressions, graph, output_nodes(graph)[:returned])
    views = run_pass(eager_memory.copy_shared_gradients, graph, run.memory) if has_backward else ()
    run_pass(simplify.eliminate_dead_code, graph)
    run_pass(simplify.fuse_relu_into_addmm, graph)
    run_pass(simplify.split_addmm_bias, graph)
    run_pass(simplify.return_float32_gradients, graph)
    run_pass(simplify.softmax_from_log_softmax, graph)
    run_pass(simplify.rsqrt_in_batch_norms, graph)
    run_pass(to_channels_last, graph)
    run_pass(simplify.split_convolution_bias, graph)
    run_pass(simplify.replace_shape_only_inputs, graph)
    found: tuple[int, ...] = views
    return found


def _externally_writable(
    graph: fx.Graph, run: FunctionalRun, returned: int
) -> tuple[frozenset[str], dict[str, tuple[int, ...]]]:
    """Returns `JointGraph.unsaved_by_eager` and `JointGraph.saved_by_eager`: values that the program can write to
    before the backward."""
    inputs, outputs = graph.find_nodes(op="placeholder"), output_nodes(graph)[:returned]
    seen = [(n, n, at) for n, at in zip(inputs, run.memory.inputs, strict=True) if n.meta["role"] == "primal"]
    seen += [(n, view_base(n), at) for n, at in zip(outputs, run.memory.outputs, strict=False)]
    exposed, guarded = set(), {}
    for node, base, memory in seen:
        tangents = tuple(i for i, saved in enumerate(run.memory.saved) if memory in saved)
        if tangents:
            guarded[node.name] = tangents
        elif isinstance(base.meta.get("val"), torch.Tensor):
            exposed.add(base.name)
    windows = graph.find_nodes(op="call_function", target=torch.ops.aten.as_strided.default)
    exposed.update(n.name for n in windows if view_base(n).name in exposed)
    return frozenset(exposed - _kept_by_checkpoints(graph)), guarded


def _kept_by_checkpoints(graph: fx.Graph) -> set[str]:
    """Returns the values that checkpoints read: eager PyTorch keeps them for the second run, though not as saved
    tensors."""
    inside = {node: number for node in graph.nodes if (number := node.meta.get("checkpoint")) is not None}
    return {n.name for node, number in inside.items() for n in node.all_input_nodes if inside.get(n) != number}


def _check_writes(graph: fx.Graph) -> None:
    """Raises `JointRefused` if an operator still writes to an input.

    A functional graph writes to no input.  A write that is left was hidden inside an operator, and would be lost.
    """
    for node in graph.nodes:
        if isinstance(node.target, OpOverload) and node.target._schema.is_mutable:
            if not node.users or any(view_base(n).op == "placeholder" for n in node.all_input_nodes[:1]):
                raise JointRefused(
                    f"{node.meta.get('decomposed') or node.target} writes to an argument, which its schema does not say"
                )


def _set_node_roles(graph: fx.Graph, count: int, returned: int) -> None:
    """Sets ``meta["role"]``; a gradient also gets the origin of the input that it belongs to."""
    inputs = graph.find_nodes(op="placeholder")
    for i, node in enumerate(output_nodes(graph)):
        if node is not None:
            if i < returned:
                role = "output"
            else:
                role = "mutation" if i < count else "gradient"
            node.meta.setdefault("role", role)
            if role == "gradient" and node.op != "placeholder":
                add_origins(node, inputs[i - count])
    for node in graph.nodes:
        if node.op == "placeholder":
            node.meta["role"] = node.name.split("_")[0].removesuffix("s")
