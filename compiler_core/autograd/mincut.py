"""Which values to save for the backward: a minimum cut of the joint graph, by bytes.

A flow network is made of the values that the backward can use without a tangent.  Each value is an
edge ``in -> out`` whose capacity is what saving it costs; uses are edges of infinite capacity; the
source feeds what cannot or should not be computed again, the backward is the sink.  The minimum
cut is the cheapest set of values to save from which the backward can compute all it needs.

    cost of saving       its bytes, and a little more for what the forward would not write to memory anyway;
                         of equal bytes an input is best (it is there already);
                         of an input or output that eager PyTorch does not save a copy is saved
    a view               is never saved: its base is, and the view made again
    computed again       pointwise operators, views and other cheap ones that fuse into their readers
    never again          random operators; an input that the graph overwrites cannot be saved either
    not unless the       matrix products and the like; reductions to less than a quarter; what an
    budget asks for it   unfusible operator of the backward would make us write to memory anyway

A memory budget below 1 gives up the last kind, cheapest first, until the saved bytes fit into that
share of the plain cut's.
"""

from __future__ import annotations

import bisect
import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from compiler_core.autograd.joint import JointGraph, output_nodes
from compiler_core.autograd.op_cost import bytes_of, nanoseconds, tensor_of
from compiler_core.errors import CompilerBug
from compiler_core.support.fx_symbols import is_symbolic
from compiler_core.support.opaque_ops import is_tape, operator_of
from compiler_core.support.operator_facts import is_pure, is_random, is_view

aten, prims = torch.ops.aten, torch.ops.prims

_OF_A_FORM = {aten.full_like, aten.zeros_like, aten.ones_like, aten.new_zeros, aten.new_full, aten.empty_like}
"""They read nothing of their input but its size, type and strides."""
_CHEAP = _OF_A_FORM | {
    aten.clone, aten._to_copy, aten.copy, aten._unsafe_view, aten.reshape, aten.contiguous,
    aten.full, aten.zeros, aten.ones, aten.scalar_tensor, aten.empty, aten.arange,
    aten.where, aten.index, aten.gather, aten.triu, aten.tril, aten.gelu, aten.gelu_backward, aten.silu,
    aten.threshold_backward, aten.maximum, aten.minimum, aten.clamp,
    prims.convert_element_type, prims.iota,
}  # fmt: skip
_REDUCTIONS = {
    aten.sum, aten.mean, aten.amax, aten.amin, aten.max, aten.min, aten.var, aten.var_mean, aten.std,
    aten.any, aten.all, aten.argmax, prims.sum, prims.var,
}  # fmt: skip
_PRODUCTS = {
    aten.mm, aten.bmm, aten.addmm, aten._addmm_activation, aten.baddbmm, aten.convolution, aten.convolution_backward,
    aten._scaled_dot_product_flash_attention, aten._scaled_dot_product_efficient_attention,
    aten._scaled_dot_product_cudnn_attention, aten._scaled_dot_product_flash_attention_for_cpu,
}  # fmt: skip


WRITING = 1 / 128
"""The share of its bytes that writing a value costs: a mean beside what it is the mean of costs less."""


class Values:
    """The values of a joint graph, by which half of the run needs them."""

    def __init__(self, joint: JointGraph) -> None:
        self.nodes: list[fx.Node] = list(joint.gm.graph.nodes)[:-1]
        self.outputs: set[fx.Node] = set(output_nodes(joint.gm.graph)[: len(joint.outputs)])
        self.gradients: set[fx.Node] = {n for n in joint.gradients if n is not None}
        self.overwritten = {joint.primals[m.primal] for m in joint.mutations}
        self.exposed = joint.exposed
        self.after_tangents = descendants(n for n in self.nodes if n.name in joint.tangents)
        drawn = {n for n in self.nodes if is_random(n)} - self.after_tangents
        self.forward = _with_elements(ancestors(self.outputs | drawn))
        self.backward = ancestors(self.gradients)
        self.backward_only = self.backward & self.after_tangents
        usable = [n for n in self.nodes if n in self.backward and n not in self.after_tangents]
        self.candidates = [n for n in usable if not is_symbolic(n.meta.get("val"))]
        """What the backward can use and that needs no tangent; numbers are handed over, whichever it needs."""

    @functools.cached_property
    def written(self) -> set[fx.Node]:
        """What the forward writes to memory, saved or not: its outputs, and what an operator reads that does not fuse
        with it, or that needs it through such a one too (both branches of a residual)."""
        written = set(self.outputs)
        bits = {node: 1 << number for number, node in enumerate(self.nodes)}
        behind: dict[fx.Node, tuple[int, int]] = {}  # what a value needs: all, and what through such operators
        for node in (n for n in self.nodes if n in self.forward):
            needed, beyond = bits[node], 0
            for source in node.all_input_nodes if _packet(node) not in _OF_A_FORM else ():
                further, far = behind[source]
                needed |= further
                beyond |= far if _fusible(source, node) else further
            behind[node] = needed, beyond
            written.update(s for s in node.all_input_nodes if beyond & bits[s])
        return written

    def wanted(self, node: fx.Node) -> bool:
        """The backward needs `node` for a gradient, or for what depends on a tangent."""
        return node in self.gradients or not self.backward_only.isdisjoint(node.users)

    def readers(self, node: fx.Node) -> list[fx.Node]:
        """Those that the backward could compute again from `node`."""
        used = (u for u in node.users if u in self.backward and u not in self.after_tangents)
        return [u for u in used if not is_symbolic(u.meta.get("val"))]

    def computed_again(self, wanted: Iterable[fx.Node], kept: Set[fx.Node]) -> set[fx.Node]:
        """The operations of the forward that have to run again for `wanted` where only `kept` is there."""
        seen: set[fx.Node] = set()
        work = list(wanted)
        while work:
            node = work.pop()
            if node not in kept and node not in seen and node.op != "placeholder":
                seen.add(node)
                work.extend(node.all_input_nodes)
        return {n for n in seen if n in self.forward}

    def work(self, cut: Cut) -> float:
        """Nanoseconds that the backward spends on what the forward has computed already."""
        ends = self.backward_only | self.gradients
        return sum(nanoseconds(n) for n in self.computed_again(ends, set(cut.saved)) if not is_view(n))


@dataclass(frozen=True)
class Cut:
    """The values to save, in the joint graph's order, tapes after tensors."""

    saved: tuple[fx.Node, ...]
    once: Mapping[fx.Node, str]
    """Values that this cut did not allow to be computed again, and why."""

    @property
    def bytes(self) -> int:
        return sum(map(bytes_of, self.saved))


def minimum_cut(values: Values, budget: float = 1.0) -> Cut:
    """The cut of fewest bytes; for a budget below 1, with the fewest concessions that fit into it."""
    once = {n: why for n in values.candidates if (why := _why_once(n, values))}
    concessions = sorted((n for n in once if is_pure(n)), key=_cost_of_computing)

    def conceding(count: int) -> Cut:
        given_up = set(concessions[:count])
        return _cut(values, {n: why for n, why in once.items() if n not in given_up})

    plain = conceding(0)
    if budget >= 1:
        return plain
    # the more may be computed again, the fewer bytes the cheapest cut has, so halving finds the first that fits
    room = int(max(budget, 0.0) * plain.bytes)
    return conceding(bisect.bisect_left(range(len(concessions)), -room, key=lambda count: -conceding(count).bytes))


def budget_curve(values: Values) -> list[tuple[float, Cut]]:
    """The cuts for budgets from 1 down to 0.  Fewer bytes never cost less work: where another cut keeps no more and
    computes less again, it stands in that one's place."""
    curve: list[tuple[float, Cut]] = []
    least: Cut | None = None
    for tenths in range(11):
        cut = minimum_cut(values, tenths / 10)
        if least is None or values.work(cut) < values.work(least):
            least = cut
        curve.append((tenths / 10, least))
    return curve[::-1]


def _cut(values: Values, once: Mapping[fx.Node, str]) -> Cut:
    import networkx

    network, scale = networkx.DiGraph(), 2 * len(values.nodes) + 1
    network.add_nodes_from(("source", "sink"))
    for node in values.candidates:
        if node.op == "placeholder" or node in once:
            network.add_edge("source", f"{node.name}_in", capacity=math.inf)
        network.add_edge(f"{node.name}_in", f"{node.name}_out", capacity=_capacity(node, values, scale))
        for reader in values.readers(node):
            network.add_edge(f"{node.name}_out", f"{reader.name}_in", capacity=math.inf)
        if values.wanted(node):
            network.add_edge(f"{node.name}_out", "sink", capacity=math.inf)
    try:
        _, (reached, _) = networkx.minimum_cut(network, "source", "sink")
    except networkx.NetworkXUnbounded:
        raise CompilerBug("the backward needs a value that can be neither saved nor computed again") from None
    saved = [n for n in values.candidates if f"{n.name}_in" in reached and f"{n.name}_out" not in reached]
    return Cut(tuple(sorted(saved, key=is_tape)), once)


def _capacity(node: fx.Node, values: Values, scale: int) -> float:
    """Bytes times `scale`, plus what writing them costs and a preference among equals; infinite where `node` cannot
    be saved."""
    if is_tape(node):
        return 1
    if tensor_of(node) is None or is_view(node) or node.op == "get_attr" or node.name in values.overwritten:
        return math.inf
    if node.name in values.exposed:
        return bytes_of(node) * scale * (1 + WRITING) + 3  # a copy, for somebody may write to it
    if node.op == "placeholder" or node in values.written:
        return bytes_of(node) * scale + (node.op != "placeholder")
    return bytes_of(node) * scale * (1 + WRITING) + 2


# ---- what may be computed again ------------------------------------------------------------


def _why_once(node: fx.Node, values: Values) -> str | None:
    """The reason not to compute a value of the forward again in the backward, where there is one."""
    if node.op != "call_function" or node not in values.forward or is_view(node) or node.target is operator.getitem:
        return None
    if is_random(node):
        return "a random operator, which would draw other numbers the second time"
    if operator_of(node) is not None:
        return f"PyTorch's autograd keeps what the gradient of {operator_of(node)} needs"
    if not is_pure(node):
        return "an operator with side effects"
    if _packet(node) in _PRODUCTS:
        return "a matrix product, convolution or attention, expensive to compute again"
    if not is_cheap(node):
        return f"{node.target} is not known to be cheap to compute again"
    if _packet(node) in _REDUCTIONS and bytes_of(node) * 4 < sum(map(bytes_of, node.all_input_nodes)):
        return "a reduction, small to save, and computing it again reads all of its input"
    if reader := _unfused_reader(node, values):
        return f"{reader.name} in the backward reads it from memory, so it would have to be written again too"
    return None


def _unfused_reader(node: fx.Node, values: Values) -> fx.Node | None:
    """A reader in the backward, direct or through views, that `node` cannot be fused into."""
    work = [node]
    while work:
        current = work.pop()
        for user in current.users:
            if user in values.backward and user not in values.forward and not _fusible(current, user):
                return user
            if is_view(user):
                work.append(user)
    return None


def is_cheap(node: fx.Node) -> bool:
    """Its result costs little to compute again and can be computed inside its reader's kernel."""
    if node.target is operator.getitem or is_view(node) or _packet(node) in _CHEAP | _REDUCTIONS:
        return True
    return torch.Tag.pointwise in getattr(node.target, "tags", ())


def _fusible(maker: fx.Node, reader: fx.Node) -> bool:
    return _packet(reader) is aten.cat or (is_cheap(reader) and (is_cheap(maker) or is_random(maker)))


def _cost_of_computing(node: fx.Node) -> tuple[int, float]:
    """The order in which a memory budget makes concessions: by kind, then by time for each byte saved."""
    kind = 3 if _packet(node) in _PRODUCTS else 2 if not is_cheap(node) else 1 if _packet(node) in _REDUCTIONS else 0
    return kind, nanoseconds(node) / max(bytes_of(node), 1)


# ---- about nodes ---------------------------------------------------------------------------


def descendants(start: Iterable[fx.Node]) -> set[fx.Node]:
    """`start` and all that is computed from it."""
    return _closure(start, lambda node: [u for u in node.users if u.op != "output"])


def ancestors(start: Iterable[fx.Node]) -> set[fx.Node]:
    """`start` and all that it is computed from."""
    return _closure(start, lambda node: node.all_input_nodes)


def _closure(start: Iterable[fx.Node], step: Callable[[fx.Node], list[fx.Node]]) -> set[fx.Node]:
    seen = set(start)
    work = list(seen)
    while work:
        for node in step(work.pop()):
            if node not in seen:
                seen.add(node)
                work.append(node)
    return seen


def _with_elements(nodes: Set[fx.Node]) -> set[fx.Node]:
    """`nodes` and all results of those that have several: they are made whether used or not."""
    return {*nodes, *(u for n in nodes for u in n.users if u.target is operator.getitem)}


def _packet(node: fx.Node) -> Any:
    return getattr(node.target, "overloadpacket", None)
