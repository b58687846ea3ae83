"""Cuts the joint graph into a forward and a backward graph.

`mincut.py` decides what to save.  This module builds the two graphs and checks that they fit together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from compiler_core.autograd.joint import JointGraph, output_nodes
from compiler_core.autograd.mincut import Cut, JointValues, minimum_cut
from compiler_core.autograd.passes.simplify import eliminate_dead_code
from compiler_core.autograd.trace.eager_memory import replay_view
from compiler_core.errors import CompilerBug
from compiler_core.hook.failures import only_recorded
from compiler_core.instruments import tool
from compiler_core.records import Compile
from compiler_core.support import fx_symbols
from compiler_core.support.fx_graphs import dependencies, graph_module, items_of, record_graph
from compiler_core.support.fx_symbols import Origin
from compiler_core.support.interrupts import safe_point
from compiler_core.support.node_facts import is_view, view_base, view_source
from compiler_core.support.opaque_ops import is_tape
from compiler_core.support.operators import Fact, facts

aten = torch.ops.aten
Given = Mapping[str, tuple[int, ...]]
"""From the name of a flag to the tangents of which it tells whether any is given."""


@dataclass(frozen=True)
class Partitioned:
    """A forward and a backward graph.

    The forward returns the joint graph's forward outputs, then `saved`, then `tapes`.  The backward takes `saved` and
    `tapes`, then the symbols, then the tangents and flags, and returns a gradient or None for each primal.
    """

    joint: JointGraph
    forward: fx.GraphModule
    backward: fx.GraphModule | None
    saved: tuple[str, ...]
    tapes: tuple[str, ...]
    """Also saved, but not tensors: what autograd keeps for opaque operators."""
    version_checked: tuple[str, ...]
    """Primals and outputs that eager PyTorch saves and that the backward does not need.  They are saved so that
    autograd notices writes to them, as in eager."""
    symbols: Mapping[str, Origin]
    """The symbols that the sizes in the backward depend on, and where the forward reads them.  (A guard that is added
    later may make a number of one, which no input shows then.)"""
    given: Given
    """Further inputs of the backward: flags that tell which tangents are not absent."""
    saved_bytes: int


def partition(
    joint: JointGraph,
    compile_: Compile,
    memory_budget: float = 1.0,
    memory_curve: bool = False,
    strict: bool = False,
) -> Partitioned:
    """Cuts `joint` so that the forward saves the fewest bytes for the backward.

    Args:
        joint: the joint graph.  If it needs no gradient, it is the forward.
        compile_: the record of the compile.
        memory_budget: below 1, saves at most this share of those bytes if recomputation can achieve it.
        memory_curve: also record what other budgets would give.
        strict: raise StrictError if the cut cannot be explained in the record.
    """
    if not joint.has_backward:
        return Partitioned(joint, joint.gm, None, (), (), (), {}, {}, 0)
    with compile_.step("partition"):
        with compile_.step("partition", "minimum cut"):
            values = JointValues(joint)
            cut = minimum_cut(values, memory_budget)
        forward = _forward(joint, values, cut)
        numbers = _symbols(joint, values)  # not before: the layout of a saved copy may add guards
        backward = _backward(joint, values, cut, numbers)
        given = mask_absent(backward.graph, joint.tangents)
        if given:
            backward.recompile()
        saved = tuple(_saved_name(joint, n) for n in cut.saved if not is_tape(n))
        tapes = tuple(n.name for n in cut.saved if is_tape(n))
        parts = Partitioned(
            joint, forward, backward, saved, tapes, _version_checked(joint, cut), numbers, given, cut.bytes
        )
        check_partition(parts)
        with only_recorded(compile_, "partition", "the graphs, or what is saved and why", strict):
            record_graph(compile_, "forward", "forward", forward)
            record_graph(compile_, "backward", "backward", backward)
            if explain_partition := tool("explain_partition"):
                compile_.partition = explain_partition(values, cut, forward.graph, backward.graph, memory_curve)
    return parts


def _version_checked(joint: JointGraph, cut: Cut) -> tuple[str, ...]:
    late = {joint.primals[m.primal] for m in joint.mutations if joint.differentiable[m.output]}
    saved, nodes = {n.name for n in cut.saved}, {n.name: n for n in joint.gm.graph.nodes}
    return tuple(name for name in joint.saved_by_eager if name not in late and view_base(nodes[name]).name not in saved)


# ---- the two graphs ------------------------------------------------------------------------


def _forward(joint: JointGraph, values: JointValues, cut: Cut) -> fx.GraphModule:
    graph = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    for node in values.nodes:
        if node not in values.depends_on_tangents:
            copied[node] = _copy(graph, node, copied)
    results = output_nodes(joint.gm.graph)[: len(joint.outputs)]
    outputs = [copied[n] for n in results]
    for node in cut.saved:
        if node.name in joint.unsaved_by_eager:
            outputs.append(_saved_copy(graph, joint, node, copied[node]))
            continue
        outputs.append(copied[node])
        if node not in results and node.op != "placeholder":
            copied[node].meta["role"] = "saved"
    graph.output(outputs)
    eliminate_dead_code(graph)
    return _module(joint, graph)


def _saved_name(joint: JointGraph, node: fx.Node) -> str:
    return f"{node.name}_copy" if node.name in joint.unsaved_by_eager else node.name


def _saved_value(joint: JointGraph, node: fx.Node) -> Any:
    """Returns what is saved of `node`: a copy if the program may write to it, else its value."""
    return node.meta["val"].clone() if node.name in joint.unsaved_by_eager else node.meta["val"]


def _saved_copy(graph: fx.Graph, joint: JointGraph, node: fx.Node, copied: fx.Node) -> fx.Node:
    """Copies an input or output, which the program may write to before the backward."""
    clone: Any = aten.clone.default
    result = graph.create_node("call_function", clone, (copied,), name=_saved_name(joint, node))
    result.meta = _meta(node) | {"role": "saved", "val": _saved_value(joint, node)}
    return result


def _symbols(joint: JointGraph, values: JointValues) -> dict[str, Origin]:
    """Returns the symbols in the backward's values, and those that its nodes read, which may be numbers by now."""
    used = [n for n in values.nodes if n in values.backward or n.name in joint.tangents]
    read = {origin.name: origin for n in used if (origin := fx_symbols.origin_read_by(n)) is not None}
    return joint.origins(fx_symbols.symbol_names(n.meta.get("val") for n in used)) | read


def _backward(joint: JointGraph, values: JointValues, cut: Cut, numbers: Mapping[str, Origin]) -> fx.GraphModule:
    """Builds the backward: operations in the joint graph's order; recomputed ones come just before their reader."""
    graph = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    for node in cut.saved:
        copied[node] = graph.placeholder(_saved_name(joint, node))
        copied[node].meta = _meta(node) | {"role": "saved", "val": _saved_value(joint, node)}
    readers = {n: fx_symbols.origin_read_by(n) for n in values.nodes} if numbers else {}
    for name, origin in numbers.items():
        result = graph.placeholder(name)
        result.meta = {"val": origin.value, "origin": items_of(origin.placeholder), "rule": "partition"}
        copied |= {n: result for n, read in readers.items() if read == origin}
    for node in joint.gm.graph.find_nodes(op="placeholder"):
        if node.name in joint.tangents:
            copied[node] = _copy(graph, node, copied)
    for node in values.nodes:
        if node in values.backward_only or node in values.gradients:
            _copy_with_inputs(graph, node, copied)
    graph.output([None if n is None else copied[n] for n in joint.gradients])
    inner = (n for n in cut.saved if n.op != "placeholder" and n not in values.outputs)
    _copy_saved_gradients(
        graph, {copied[n] for n in (*inner, *(n for n in cut.saved if n.name in joint.unsaved_by_eager))}
    )
    return _module(joint, graph)


def _copy_saved_gradients(graph: fx.Graph, kept: Set[fx.Node]) -> None:
    """Copies gradients that are saved values themselves: the program may write to the gradient, and another backward
    must still find the saved value."""
    gradients = [n and (replay_view(graph, n) if view_base(n) in kept else n) for n in output_nodes(graph)]
    graph.output_node().args = (gradients,)


def _copy_with_inputs(graph: fx.Graph, node: fx.Node, copied: dict[fx.Node, fx.Node]) -> None:
    work = [node]
    while work:
        missing = [n for n in work[-1].all_input_nodes if n not in copied]
        if missing and work[-1] not in copied:
            work.extend(reversed(missing))
        elif (ready := work.pop()) not in copied:
            copied[ready] = _copy(graph, ready, copied)


def _copy(graph: fx.Graph, node: fx.Node, copied: Mapping[fx.Node, fx.Node]) -> fx.Node:
    safe_point()
    result = graph.node_copy(node, copied.__getitem__)
    result.meta = _meta(node)
    if is_view(node) and view_source(result).meta["val"] is not view_source(node).meta["val"]:
        result.meta["val"] = fx_symbols.evaluate_call(result)  # the saved copy may have other strides
    return result


def _meta(node: fx.Node) -> dict[str, Any]:
    names = ("val", "module", "role", "new_value_of", "is_gradient", "runs_to_raise")
    kept = {name: node.meta[name] for name in names if name in node.meta}
    return kept | {"origin": items_of(node), "rule": "partition"}


def _module(joint: JointGraph, graph: fx.Graph) -> fx.GraphModule:
    graph.lint()
    return graph_module(joint.gm, graph)


def check_partition(parts: Partitioned) -> None:
    """Raises `CompilerBug` unless what the forward saves is what the backward takes, in order and kind."""
    assert parts.backward is not None
    given = output_nodes(parts.forward.graph)[len(parts.joint.outputs) :]
    placeholders = list(parts.backward.graph.find_nodes(op="placeholder"))
    count = len(parts.saved) + len(parts.tapes)
    taken, tangents = placeholders[:count], placeholders[count + len(parts.symbols) :]
    given_kinds, taken_kinds = list(map(_name_shape_dtype, given)), list(map(_name_shape_dtype, taken))
    if given_kinds != taken_kinds:
        raise CompilerBug(f"the forward saves {given_kinds} but the backward takes {taken_kinds}")
    if tuple(n.name for n in given) != parts.saved + parts.tapes:
        raise CompilerBug(f"the forward saves {[n.name for n in given]}, not {parts.saved + parts.tapes}")
    if tuple(n.name for n in tangents) != (*parts.joint.tangents, *parts.given):
        raise CompilerBug(f"the backward takes {[n.name for n in tangents]}, not {parts.joint.tangents}")
    if len(output_nodes(parts.backward.graph)) != len(parts.joint.primals):
        raise CompilerBug("the backward does not return one gradient for each primal")


def _name_shape_dtype(node: fx.Node) -> tuple[str, tuple[int, ...], Any]:
    value = node.meta["val"]
    return (node.name, (), None) if is_tape(node) else (node.name, tuple(value.shape), value.dtype)


# ---- absent tangents -----------------------------------------------------------------------
# A backward takes zeros for the tangent of an output that gets no gradient.  Eager PyTorch computes nothing there,
# while zero times an infinite slope is NaN.  So where a value is combined with one that is computed from other
# tangents, it is replaced by zero if all tangents that it depends on are absent, as in the backward of
# ``y = x * 2; return y, y.log()``:
#
#     div = aten.div(tangents_2, y)          div = aten.div(tangents_2, y)
#     add = aten.add(tangents_1, div)        where = where(given_2, div, 0)
#                                            add = aten.add(tangents_1, where)
#
# ``given_2`` is True unless ``tangents_2`` is absent.  On a GPU each tangent that is no scalar has a flag: kernels do
# not read one that is absent (`loops/schedule/inputs.py`), so that no zeros as large as logits are needed.


def mask_absent(graph: fx.Graph, tangents: Sequence[str]) -> Given:
    """Masks values in the backward `graph`, which gets an input for each flag, after its `tangents`."""
    if len(tangents) < 2:
        return {}
    sources = dependencies(graph, tangents)
    flags: dict[tuple[tuple[int, ...], torch.device], fx.Node] = {}
    for node in graph.find_nodes(op="placeholder"):
        value = node.meta["val"]
        if node.name in tangents and value.is_cuda and value.dim() > 0:
            alone = (tangents.index(node.name),)
            flags[alone, value.device] = _flag(graph, alone, value.device)
    masked: dict[fx.Node, fx.Node] = {}
    zeros: set[fx.Node] = set()  # what is zero if all tangents that it comes from are
    for node in list(graph.nodes):
        if node.name in tangents:
            zeros.add(node)
        if node.op != "call_function":  # gradients are dropped elsewhere
            continue
        for value in node.all_input_nodes:
            if not sources[value] or sources[value] == sources[node] or value in zeros or not _is_tensor(value):
                continue
            if value not in masked:
                indices = tuple(i for i, tangent in enumerate(tangents) if tangent in sources[value])
                key = indices, value.meta["val"].device
                flags[key] = flags.get(key) or _flag(graph, *key)
                masked[value] = _mask(graph, flags[key], value)
                zeros.add(masked[value])
            node.replace_input_with(value, masked[value])
        keeps_zeros = Fact.ZERO_OF_ZEROS in facts(node.target) or is_view(node)
        if sources[node] and keeps_zeros and all(n in zeros for n in node.all_input_nodes if _is_tensor(n)):
            zeros.add(node)
    return {flag.name: indices for (indices, _), flag in flags.items()}


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _flag(graph: fx.Graph, indices: tuple[int, ...], device: torch.device) -> fx.Node:
    inputs = graph.find_nodes(op="placeholder")
    tangent = next(n for n in inputs if n.name == f"tangents_{indices[0] + 1}")
    elsewhere = [] if device == tangent.meta["val"].device else [str(device).replace(":", "")]
    with graph.inserting_after(list(inputs)[-1]):
        flag = graph.placeholder("_".join(["given", *(str(i + 1) for i in indices), *elsewhere]))
    value = tangent.meta["val"].new_empty((), dtype=torch.bool, device=device)
    flag.meta = {**tangent.meta, "val": value}
    return flag


def _mask(graph: fx.Graph, flag: fx.Node, value: fx.Node) -> fx.Node:
    full: Any = aten.full.default
    where: Any = aten.where.self
    like = value.meta["val"]
    with graph.inserting_before(value.next):
        zero = graph.call_function(full, ([], 0), {"dtype": like.dtype, "device": like.device})
        masked = graph.call_function(where, (flag, value, zero))
    zero.meta = {**value.meta, "val": like.new_empty(())}
    masked.meta = {**value.meta, "val": where(flag.meta["val"], like, zero.meta["val"])}
    return masked
