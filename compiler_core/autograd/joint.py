"""The joint graph: forward and backward of a captured graph as one functional graph of aten operators.

    placeholders   primals_1 ...     the inputs of the captured graph
                   tangents_1 ...    the gradients of its differentiable outputs
    outputs        forward outputs, then one gradient (or None) for each primal

Forward outputs are the tensors that the captured graph makes and hands out, then the new values of
the inputs that it writes to.  An output that is an input, or a view of one or of another output, is
no output here: `JointGraph.returns` says how to make it from what is, so that memory is shared
exactly as in eager PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.fx as fx

from compiler_core.autograd.passes import simplify, slice_writes
from compiler_core.autograd.passes.channels_last import to_channels_last
from compiler_core.autograd.trace import decompositions, ownership
from compiler_core.autograd.trace.functionalize import (
    RANDOM_BETWEEN,
    FunctionalRun,
    JointRefused,
    Layout,
    Mutation,
    Return,
    View,
    plain_grad_state,
    random_between,
)
from compiler_core.autograd.trace.hidden_writes import VisibleWrites
from compiler_core.records import Compile, Expansion
from compiler_core.support import fx_symbols
from compiler_core.support.fx_graphs import record_graph, target_name
from compiler_core.support.operator_facts import view_base

__all__ = ["JointGraph", "JointRefused", "Mutation", "Return", "View", "trace_joint"]


@dataclass(frozen=True)
class JointGraph:
    """A joint graph, or a forward graph alone where no gradient is wanted (`tangents` is empty)."""

    gm: fx.GraphModule
    primals: tuple[str, ...]
    tangents: tuple[str, ...]
    outputs: tuple[str, ...]
    """Names of the forward outputs' nodes, those of `mutations` last."""
    makers: tuple[fx.Node, ...]
    """For each forward output, the captured node whose value it is in the end."""
    differentiable: tuple[bool, ...]
    """For each forward output, whether it has a tangent."""
    reaches: tuple[frozenset[int], ...]
    """For each tangent, the primals that get a gradient from it."""
    layouts: tuple[Layout, ...]
    """Of each tangent: that of its output."""
    shared: tuple[tuple[int, ...], ...]
    """For each tangent, those that eager PyTorch allows no backward from after one from it; see `EagerSaves`."""
    views: tuple[int, ...]
    """The primals whose gradients share memory with others' by being views; eager copies them where tangents have
    strides that no gradient may have."""
    exposed: frozenset[str]
    """The primals, and the values in whose memory outputs lie, that eager PyTorch does not save: whoever writes to them
    before the backward changes nothing there."""
    guarded: Mapping[str, tuple[int, ...]]
    """Those primals and outputs that it does save, each with the tangents behind whose outputs it does."""
    returns: tuple[Return, ...]
    mutations: tuple[Mutation, ...]
    autocast: bool
    """Casts are in the graph already, so it runs with autocast off."""

    @property
    def numbers(self) -> frozenset[int]:
        """The primals that are no tensors."""
        placeholders = self.gm.graph.find_nodes(op="placeholder")[: len(self.primals)]
        return frozenset(i for i, n in enumerate(placeholders) if not isinstance(n.meta.get("val"), torch.Tensor))

    def origins(self, names: Iterable[str]) -> dict[str, fx_symbols.Origin]:
        """Where the symbols `names` are read, in terms of the primals; NoOrigin where one cannot be."""
        found = fx_symbols.origins(self.gm.graph.find_nodes(op="placeholder")[: len(self.primals)])
        return {name: fx_symbols.origin_of(name, found) for name in sorted(names)}

    @property
    def has_backward(self) -> bool:
        return bool(self.tangents)

    @property
    def gradients(self) -> tuple[fx.Node | None, ...]:
        """The node of each primal's gradient."""
        return tuple(output_nodes(self.gm.graph)[len(self.outputs) :])


def output_nodes(graph: fx.Graph) -> list[Any]:
    """What the graph returns: nodes, or None."""
    outputs: Any = graph.output_node().args[0]
    return list(outputs)


def trace_joint(gm: fx.GraphModule, example_inputs: Sequence[Any], compile_: Compile) -> JointGraph:
    """The joint graph of `gm` for inputs like `example_inputs` (fake, or symbolic numbers), in the ambient grad mode.

    JointRefused where replaying it could differ from eager PyTorch.
    """
    with compile_.step("joint"):
        run, traced = _run(gm, example_inputs)
        joint = _assemble(run, traced, len(example_inputs))
        if joint.has_backward:
            if not torch.is_grad_enabled():
                raise JointRefused("the graph turns gradients on inside torch.no_grad()")
        name: Literal["joint", "forward"] = "joint" if joint.has_backward else "forward"
        record_graph(compile_, name, name, joint.gm)
        compile_.expansions = _expansions(gm.graph, joint.gm.graph)
    return joint


def _expansions(captured: fx.Graph, joint: fx.Graph) -> list[Expansion]:
    """What became of each operation of `captured`."""
    calls = [n for n in captured.nodes if n.op.startswith("call_") and "item" in n.meta]
    found = {n.meta["item"]: Expansion(n.meta["item"], target_name(n.target), [], [], [], []) for n in calls}
    for node in joint.nodes:
        function = node.meta.get("rule", "").removeprefix("autograd ")
        added = function != node.meta.get("rule", "")
        for into in (found[item] for item in node.meta.get("origin", ()) if item in found and node.op != "placeholder"):
            (into.backward if added else into.forward).append(node.meta["item"])
            if added and function not in into.functions:
                into.functions.append(function)
            if node.meta.get("decomposed") not in (None, *into.decomposed):
                into.decomposed.append(node.meta["decomposed"])
    return list(found.values())


def _run(gm: fx.GraphModule, examples: Sequence[Any]) -> tuple[FunctionalRun, fx.GraphModule]:
    from torch._guards import detect_fake_mode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.traceback import preserve_node_meta

    fake_mode = detect_fake_mode(list(examples))
    if fake_mode is None:
        from torch._subclasses.fake_tensor import FakeTensorMode

        fake_mode = FakeTensorMode()
    run = FunctionalRun(gm, examples, fake_mode)
    rules: Any = {**decompositions.table(), torch.ops.aten.bernoulli.p: run.bernoulli, RANDOM_BETWEEN: random_between}

    def joint(*primals: Any) -> list[torch.Tensor | None]:
        with VisibleWrites():
            return run.run_joint(*primals)

    with plain_grad_state(), preserve_node_meta(), fake_mode:
        fresh = [e.detach() if isinstance(e, torch.Tensor) else e for e in examples]
        return run, make_fx(joint, decomposition_table=rules, tracing_mode="fake")(*fresh)


def _assemble(run: FunctionalRun, traced: fx.GraphModule, primal_count: int) -> JointGraph:
    primals = tuple(f"primals_{i}" for i in range(1, primal_count + 1))
    tangents = tuple(f"tangents_{i}" for i in range(1, sum(run.differentiable) + 1))
    gm = simplify.copy_graph(traced, primals + tangents)
    _check_writes(gm.graph)
    count = len(run.outputs)
    returned = count - len(run.mutations)
    simplify.inline_constants(gm)
    simplify.drop_aliases(gm.graph)
    try:
        fx_symbols.from_placeholders(gm.graph)
    except fx_symbols.NoOrigin as error:
        raise JointRefused(str(error)) from error
    simplify.cancel_transposes(gm.graph)
    slice_writes.shorten(gm.graph)
    if tangents:
        simplify.narrow_masks(gm.graph)
    ownership.own_outputs(gm.graph, count)
    simplify.merge_equal(gm.graph, output_nodes(gm.graph)[:returned])
    views = ownership.own_gradients(gm.graph, run.memory) if tangents else ()
    simplify.remove_dead(gm.graph)
    simplify.relu_in_product(gm.graph)
    simplify.bias_apart(gm.graph)
    simplify.conv_bias_apart(gm.graph)
    simplify.exp_of_log_softmax(gm.graph)
    to_channels_last(gm.graph)
    simplify.forms_alone(gm.graph)
    _set_roles(gm.graph, count, returned)
    if not tangents:  # autograd gets no input back as if it were a result
        for mutation in run.mutations:
            output_nodes(gm.graph)[mutation.output].meta["new_value_of"] = primals[mutation.primal]
    gm.graph.lint()
    gm.recompile()
    nodes = output_nodes(gm.graph)
    exposed, guarded = _seen_from_outside(gm.graph, run, returned) if tangents else (frozenset(), {})
    layouts = [Layout.of(n.meta["val"]) for n, d in zip(nodes, run.differentiable, strict=False) if d]
    return JointGraph(
        gm=gm,
        primals=primals,
        tangents=tangents,
        outputs=tuple(n.name for n in nodes[:count]),
        makers=tuple(run.makers),
        differentiable=tuple(run.differentiable),
        reaches=tuple(run.reaches),
        layouts=tuple(layouts),
        shared=run.shared,
        views=views,
        exposed=exposed,
        guarded=guarded,
        returns=tuple(run.returns),
        mutations=tuple(run.mutations),
        autocast=torch._C._is_any_autocast_enabled(),
    )


def _seen_from_outside(
    graph: fx.Graph, run: FunctionalRun, returned: int
) -> tuple[frozenset[str], dict[str, tuple[int, ...]]]:
    """Which values somebody can write to before the backward: `exposed` and `guarded` of the joint graph."""
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
    return frozenset(exposed), guarded


def _check_writes(graph: fx.Graph) -> None:
    """A functional graph writes to none of its inputs; a write that is left was hidden in an operator, and nothing
    here would make it."""
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
            if not node.users or any(view_base(n).op == "placeholder" for n in node.all_input_nodes[:1]):
                raise JointRefused(f"{node.meta.get('decomposed') or node.target} writes to an argument unseen")


def _set_roles(graph: fx.Graph, count: int, returned: int) -> None:
    for i, node in enumerate(output_nodes(graph)):
        if node is not None:
            role = "output" if i < returned else "mutation" if i < count else "gradient"
            node.meta.setdefault("role", role)
    for node in graph.nodes:
        if node.op == "placeholder":
            node.meta["role"] = node.name.split("_")[0].removesuffix("s")
