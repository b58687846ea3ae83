"""Cutting the joint graph into forward and backward: which values to save, which to compute again.

A flow network is made of the values that the backward can use without a tangent.  Each value is an
edge ``in -> out`` whose capacity is what saving it costs; uses are edges of infinite capacity; the
source feeds what cannot or should not be computed again, the backward is the sink.  The minimum
cut is the cheapest set of values to save from which the backward can compute all it needs.

    cost of saving       its bytes; of equal bytes an input is best (it is there already), then
                         what the forward writes to memory anyway
    a view               is never saved: its base is, and the view made again
    computed again       pointwise operators, views and other cheap ones that fuse into their readers
    never again          random operators; an input that the graph overwrites cannot be saved either
    not unless the       matrix products and the like; reductions to less than a quarter; what an
    budget asks for it   unfusible operator of the backward would make us write to memory anyway

A memory budget below 1 gives up the last kind, cheapest first, until the saved bytes fit into that
share of the plain cut's.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from compiler_core import record
from compiler_core.errors import CompilerBug
from compiler_core.graphs import record_graph, tensor_bytes
from compiler_core.joint import JointGraph, JointRefused, output_nodes
from compiler_core.simplify import is_random, is_view, remove_dead, view_base

aten, prims = torch.ops.aten, torch.ops.prims

_CHEAP = {
    aten.clone, aten._to_copy, aten.copy, aten._unsafe_view, aten.reshape, aten.contiguous,
    aten.full, aten.full_like, aten.zeros, aten.zeros_like, aten.ones, aten.ones_like, aten.scalar_tensor,
    aten.new_zeros, aten.new_full, aten.empty, aten.empty_like, aten.arange, aten.lift_fresh_copy,
    aten.where, aten.index, aten.gather, aten.triu, aten.tril, aten.gelu, aten.gelu_backward, aten.silu,
    aten.threshold_backward, aten.maximum, aten.minimum, aten.clamp,
    prims.convert_element_type, prims.iota,
}  # fmt: skip
_REDUCTIONS = {
    aten.sum, aten.mean, aten.amax, aten.amin, aten.max, aten.min, aten.var, aten.var_mean, aten.std,
    aten.any, aten.all, aten.argmax, prims.sum, prims.var,
}  # fmt: skip
_PRODUCTS = {
    aten.mm, aten.bmm, aten.addmm, aten.baddbmm, aten.convolution, aten.convolution_backward,
    aten._scaled_dot_product_flash_attention, aten._scaled_dot_product_efficient_attention,
    aten._scaled_dot_product_cudnn_attention, aten._scaled_dot_product_flash_attention_for_cpu,
}  # fmt: skip


@dataclass(frozen=True)
class Partitioned:
    """The forward returns the joint graph's forward outputs, then `saved`; the backward takes
    `saved`, then the tangents, and returns a gradient or None for each primal."""

    joint: JointGraph
    forward: fx.GraphModule
    backward: fx.GraphModule | None
    saved: tuple[str, ...]
    saved_bytes: int


def partition(joint: JointGraph, compile_: record.Compile, memory_budget: float = 1.0) -> Partitioned:
    """Cut `joint` by bytes, record both graphs and the reason for each value's fate."""
    if not joint.has_backward:
        record_graph(compile_, "forward", "forward", joint.gm)
        return Partitioned(joint, joint.gm, None, (), 0)
    with compile_.step("partition"):
        values = _Values(joint)
        cut = _within_budget(values, memory_budget)
        parts = _extract(joint, cut.saved)
        check(parts)
        record_graph(compile_, "forward", "forward", parts.forward)
        assert parts.backward is not None
        record_graph(compile_, "backward", "backward", parts.backward)
        compile_.partition = _account(values, cut, parts)
    return parts


# ---- what there is to choose from ----------------------------------------------------------


class _Values:
    """The joint graph's nodes, by which half of the run needs them."""

    def __init__(self, joint: JointGraph) -> None:
        nodes = list(joint.gm.graph.nodes)
        results = output_nodes(joint.gm.graph)
        self.nodes = nodes[:-1]
        self.outputs: list[fx.Node] = results[: len(joint.outputs)]
        self.gradients: list[fx.Node] = [n for n in results[len(joint.outputs) :] if n is not None]
        self.mutated = {joint.primals[m.primal] for m in joint.mutations}
        tangents = {n for n in nodes if n.name in joint.tangents}
        self.after_tangents = _forwards(tangents)
        random = [n for n in self.nodes if is_random(n) and n not in self.after_tangents]
        self.forward = _with_elements(_backwards([*self.outputs, *random]))
        self.backward = _backwards(self.gradients)
        if late := [n for n in self.outputs if n in self.after_tangents]:
            raise CompilerBug(f"forward output {late[0].name} depends on a tangent")

    def candidates(self) -> list[fx.Node]:
        """What the backward can use and that needs no tangent."""
        return [n for n in self.nodes if n in self.backward and n not in self.after_tangents]

    def is_late(self, node: fx.Node) -> bool:
        """Runs in the backward whatever the cut."""
        return node not in self.forward


def _forwards(start: Iterable[fx.Node]) -> set[fx.Node]:
    seen = set(start)
    work = list(seen)
    while work:
        for user in work.pop().users:
            if user not in seen and user.op != "output":
                seen.add(user)
                work.append(user)
    return seen


def _backwards(start: Iterable[fx.Node]) -> set[fx.Node]:
    seen = set(start)
    work = list(seen)
    while work:
        for source in work.pop().all_input_nodes:
            if source not in seen:
                seen.add(source)
                work.append(source)
    return seen


def _with_elements(nodes: set[fx.Node]) -> set[fx.Node]:
    """`nodes` and all results of those that have several: they are made whether used or not."""
    return nodes | {u for n in nodes for u in n.users if u.target is operator.getitem}


def _packet(node: fx.Node) -> Any:
    return getattr(node.target, "overloadpacket", None)


def bytes_of(node: fx.Node) -> int:
    """Bytes of the tensors in a node's value."""
    value = node.meta.get("val")
    tensors = value if isinstance(value, (list, tuple)) else [value]
    return sum(tensor_bytes(t) for t in tensors if isinstance(t, torch.Tensor))


def is_cheap(node: fx.Node) -> bool:
    """Its result costs little to compute again and can be computed inside its reader's kernel."""
    if node.target is operator.getitem or is_view(node) or _packet(node) in _CHEAP | _REDUCTIONS:
        return True
    return torch.Tag.pointwise in getattr(node.target, "tags", ())


def _fusible(maker: fx.Node, reader: fx.Node) -> bool:
    return _packet(reader) is aten.cat or (is_cheap(reader) and (is_cheap(maker) or is_random(maker)))


def _why_not_again(node: fx.Node, values: _Values) -> str | None:
    """The reason to compute `node` only once, where there is one; a forward node, not a view."""
    if is_random(node):
        return "a random operator: computing it again would draw other numbers"
    if _packet(node) in _PRODUCTS:
        return "a matrix product, convolution or attention: expensive to compute again"
    if not is_cheap(node):
        return f"{node.target} is not known to be cheap to compute again"
    if _packet(node) in _REDUCTIONS and bytes_of(node) * 4 < sum(map(bytes_of, node.all_input_nodes)):
        return "a reduction: small to save, and computing it again reads all of its input"
    if reader := _unfused_reader(node, values):
        return f"{reader.name} in the backward reads it from memory, so computing it again would not save the traffic"
    return None


def _unfused_reader(node: fx.Node, values: _Values) -> fx.Node | None:
    """A reader in the backward, direct or through views, that `node` cannot be fused into."""
    work = [node]
    while work:
        current = work.pop()
        for user in current.users:
            if user.op == "output":
                continue
            if values.is_late(user) and not _fusible(current, user):
                return user
            if is_view(user):
                work.append(user)
    return None


def _recompute_cost(node: fx.Node) -> tuple[int, float]:
    """Order in which a memory budget gives up saving: by kind, then by work per byte saved."""
    traffic = bytes_of(node) + sum(map(bytes_of, node.all_input_nodes))
    if _packet(node) in _PRODUCTS:
        inner = max((t.shape[-1] for a in node.all_input_nodes if (t := _tensor(a)) is not None and t.dim()), default=1)
        return 3, float(inner)
    kind = 2 if not is_cheap(node) else 1 if _packet(node) in _REDUCTIONS else 0
    return kind, traffic / max(bytes_of(node), 1)


def _tensor(node: fx.Node) -> torch.Tensor | None:
    value = node.meta.get("val")
    return value if isinstance(value, torch.Tensor) else None


# ---- the cut -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Cut:
    saved: tuple[fx.Node, ...]
    once: Mapping[fx.Node, str]
    """Values that this cut may not compute again, and why."""

    @property
    def bytes(self) -> int:
        return sum(map(bytes_of, self.saved))


def _within_budget(values: _Values, budget: float) -> _Cut:
    """The plain minimum cut or, for a budget below 1, the one with the fewest concessions that fits."""
    once = _computed_once(values)
    plain = _min_cut(values, once)
    if budget >= 1 or not plain.saved:
        return plain
    room = max(budget, 0.0) * plain.bytes
    concessions = sorted((n for n in once if not is_random(n)), key=_recompute_cost)
    low, high, best = 1, len(concessions), plain
    while low <= high:
        middle = (low + high) // 2
        given_up = set(concessions[:middle])
        cut = _min_cut(values, {n: why for n, why in once.items() if n not in given_up})
        if cut.bytes < best.bytes or (cut.bytes <= room and cut.bytes <= best.bytes):
            best = cut
        low, high = (low, middle - 1) if cut.bytes <= room else (middle + 1, high)
    return best


def _computed_once(values: _Values) -> dict[fx.Node, str]:
    reasons = {}
    for node in values.candidates():
        if node.op == "call_function" and node in values.forward and not is_view(node):
            if node.target is not operator.getitem and (why := _why_not_again(node, values)):
                reasons[node] = why
    return reasons


def _min_cut(values: _Values, once: Mapping[fx.Node, str]) -> _Cut:
    import networkx

    network, scale = networkx.DiGraph(), 4 * len(values.nodes) + 1
    candidates = values.candidates()
    for node in candidates:
        if node.op == "placeholder" or node in once:
            network.add_edge("source", f"{node.name}_in", capacity=math.inf)
        network.add_edge(f"{node.name}_in", f"{node.name}_out", capacity=_capacity(node, values, scale))
        for user in node.users:
            if user in values.after_tangents or user.op == "output":
                continue
            network.add_edge(f"{node.name}_out", f"{user.name}_in", capacity=math.inf)
        if node in values.gradients or any(u in values.after_tangents & values.backward for u in node.users):
            network.add_edge(f"{node.name}_out", "sink", capacity=math.inf)
    if "source" not in network or "sink" not in network:
        return _Cut((), once)
    try:
        _, (reached, _) = networkx.minimum_cut(network, "source", "sink")
    except networkx.NetworkXUnbounded:
        raise JointRefused(_overwritten(values)) from None
    cut = [n for n in candidates if f"{n.name}_in" in reached and f"{n.name}_out" not in reached]
    return _Cut(tuple(cut), once)


def _capacity(node: fx.Node, values: _Values, scale: int) -> float:
    """Bytes, times `scale`, plus a small preference among equals; infinite where it cannot be saved."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or is_view(node) and node.target is not operator.getitem:
        return math.inf
    if is_view(node) or node.op == "get_attr" or node.name in values.mutated:
        return math.inf
    written = node in values.outputs or any(not _fusible(node, u) for u in node.users if u in values.forward)
    preference = 0 if node.op == "placeholder" else 1 if written else 2
    preference = 0 if node.op == "placeholder" else 1 if written else 2
    return bytes_of(node) * scale + preference


def _overwritten(values: _Values) -> str:
    names = ", ".join(sorted(values.mutated)) or "none"
    return f"the backward needs a value that cannot be saved (inputs that the graph overwrites: {names})"


# ---- forward and backward ------------------------------------------------------------------


def _extract(joint: JointGraph, saved: Sequence[fx.Node]) -> Partitioned:
    results = output_nodes(joint.gm.graph)
    count = len(joint.outputs)
    forward = _forward(joint, [*results[:count], *saved])
    backward = _backward(joint, saved, results[count:])
    names = tuple(n.name for n in saved)
    return Partitioned(joint, forward, backward, names, sum(map(bytes_of, saved)))


def _forward(joint: JointGraph, results: Sequence[fx.Node]) -> fx.GraphModule:
    graph = fx.Graph()
    after = _forwards(n for n in joint.gm.graph.nodes if n.name in joint.tangents)
    copied: dict[fx.Node, fx.Node] = {}
    for node in joint.gm.graph.nodes:
        if node.op != "output" and node not in after:
            copied[node] = _copy(graph, node, copied)
    graph.output([copied[n] for n in results])
    for node in results[len(joint.outputs) :]:
        if copied[node].meta.get("role") in (None, "gradient"):
            copied[node].meta["role"] = "saved"
    remove_dead(graph)
    return _module(joint, graph)


def _backward(joint: JointGraph, saved: Sequence[fx.Node], gradients: Sequence[fx.Node | None]) -> fx.GraphModule:
    """Operations in the joint graph's order; what is computed again comes just before its reader."""
    graph = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    for node in saved:
        copied[node] = graph.placeholder(node.name)
        copied[node].meta = _meta(node) | {"role": "saved"}
    wanted = [n for n in gradients if n is not None]
    tangents = [n for n in joint.gm.graph.nodes if n.name in joint.tangents]
    for node in tangents:
        copied[node] = _copy(graph, node, copied)
    after, needed = _forwards(tangents), _backwards(wanted)
    order = [n for n in joint.gm.graph.nodes if n in after and n in needed]
    for node in [*order, *wanted]:
        _copy_with_sources(graph, node, copied)
    graph.output([None if n is None else copied[n] for n in gradients])
    return _module(joint, graph)


def _copy_with_sources(graph: fx.Graph, node: fx.Node, copied: dict[fx.Node, fx.Node]) -> None:
    work = [node]
    while work:
        missing = [n for n in work[-1].all_input_nodes if n not in copied]
        if work[-1] in copied or not missing:
            last = work.pop()
            if last not in copied:
                copied[last] = _copy(graph, last, copied)
        else:
            work.extend(reversed(missing))


def _copy(graph: fx.Graph, node: fx.Node, copied: Mapping[fx.Node, fx.Node]) -> fx.Node:
    made = graph.node_copy(node, copied.__getitem__)
    made.meta = _meta(node)
    return made


def _meta(node: fx.Node) -> dict[str, Any]:
    kept = {k: node.meta[k] for k in ("val", "module", "role") if k in node.meta}
    return kept | {"origin": (node.meta["item"],), "rule": "partition"}


def _module(joint: JointGraph, graph: fx.Graph) -> fx.GraphModule:
    graph.lint()
    return fx.GraphModule(joint.gm, graph)


def check(parts: Partitioned) -> None:
    """The law of the cut: what the forward hands over is what the backward takes, in order and kind."""
    assert parts.backward is not None
    given = output_nodes(parts.forward.graph)[len(parts.joint.outputs) :]
    placeholders = [n for n in parts.backward.graph.nodes if n.op == "placeholder"]
    taken = placeholders[: len(placeholders) - len(parts.joint.tangents)]
    if [_kind(n) for n in given] != [_kind(n) for n in taken] or [n.name for n in given] != list(parts.saved):
        raise CompilerBug(f"the forward saves {[*map(_kind, given)]} but the backward takes {[*map(_kind, taken)]}")
    if tuple(n.name for n in placeholders[len(taken) :]) != parts.joint.tangents:
        raise CompilerBug("the backward's tangents are not the joint graph's")
    if len(output_nodes(parts.backward.graph)) != len(parts.joint.primals):
        raise CompilerBug("the backward does not return one gradient for each primal")


def _kind(node: fx.Node) -> tuple[str, Any, Any]:
    value = node.meta["val"]
    return node.name, tuple(value.shape), value.dtype


# ---- the account of it ---------------------------------------------------------------------


def _account(values: _Values, cut: _Cut, parts: Partitioned) -> record.Partition:
    assert parts.backward is not None
    again = {n.name for n in parts.backward.graph.nodes if n.op == "call_function"}
    in_joint = {n.name: n for n in values.nodes}
    made = []
    for node in parts.forward.graph.nodes:
        if node.op == "output" or _tensor(node) is None and node.name not in again:
            continue
        decision, reason = _fate(in_joint[node.name], values, cut, again)
        edge = [f"{node.name}_in", f"{node.name}_out"] if decision == "saved" else None
        made.append(record.Value(node.meta["item"], decision, bytes_of(node), reason, edge))
    default = _default_saved(values)
    return record.Partition(made, len(cut.saved), cut.bytes, len(default), sum(map(bytes_of, default)))


def _fate(node: fx.Node, values: _Values, cut: _Cut, again: set[str]) -> tuple[Any, str]:
    size = f"{bytes_of(node):,} bytes"
    if node in cut.saved:
        return "saved", _why_saved(node, values, cut, size)
    if node.name in again:
        return "recomputed", _why_again(node, cut, size)
    if node not in values.backward:
        return "neither", "the backward does not need it"
    return "neither", "only values that are saved themselves are made of it, so the backward does not need it"


def _why_saved(node: fx.Node, values: _Values, cut: _Cut, size: str) -> str:
    makes = sorted(n.name for n in _made_of(node, values, set(cut.saved)))
    use = f"the backward makes {_list(makes)} of it" if makes else "the backward reads it"
    if node.op == "placeholder":
        return f"an input, in memory already ({size}): {use}"
    if why := cut.once.get(_maker(node)):
        return f"{why} ({size}); {use}"
    return f"saving these {size} is cheaper than saving what it is made of; {use}"


def _why_again(node: fx.Node, cut: _Cut, size: str) -> str:
    sources = sorted({n.name for n in _saved_sources(node, set(cut.saved))})
    origin = f"from {_list(sources)}" if sources else "from constants"
    if is_view(node):
        return f"a view, made again {origin}: a view is never saved, its base is"
    return f"cheap to compute again {origin} inside the kernel that reads it; saving it would take {size} more"


def _made_of(node: fx.Node, values: _Values, saved: set[fx.Node]) -> list[fx.Node]:
    """Forward values that the backward computes again and that read `node` directly."""
    return [u for u in node.users if u in values.backward and u not in values.after_tangents and u not in saved]


def _saved_sources(node: fx.Node, saved: set[fx.Node]) -> set[fx.Node]:
    found, seen, work = set(), {node}, [node]
    while work:
        for source in work.pop().all_input_nodes:
            if source in saved:
                found.add(source)
            elif source not in seen:
                seen.add(source)
                work.append(source)
    return found


def _maker(node: fx.Node) -> fx.Node:
    """The operator itself, where `node` takes one of its several results."""
    if node.target is operator.getitem:
        source = node.args[0]
        assert isinstance(source, fx.Node)
        return source
    return node


def _list(names: Sequence[str]) -> str:
    shown = list(names[:3]) + ([f"{len(names) - 3} more"] if len(names) > 3 else [])
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _default_saved(values: _Values) -> list[fx.Node]:
    """What saving all that the backward reads would save: each forward value (of a view, its base)
    that an operation belonging to the backward alone uses."""
    read = {}
    for node in values.nodes:
        if node not in values.forward and node.op != "placeholder" or node not in values.backward | values.forward:
            continue
        users = [u for u in node.users if u in values.backward and u not in values.forward and u.op != "output"]
        if users or node in values.gradients:
            if _tensor(node) is not None and node not in values.after_tangents:
                read[view_base(node)] = None
    return [n for n in read if _tensor(n) is not None]
