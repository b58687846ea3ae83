"""Chooses the values to save for the backward: a minimum cut of the joint graph, by bytes.

The flow network contains the values that the backward can use and that depend on no tangent.  Each value is an edge
``in -> out`` whose capacity is the cost of saving it.  Uses are edges of infinite capacity.  The source feeds the
values that cannot or should not be recomputed; the backward is the sink.  The minimum cut is the cheapest set of values
to save from which the backward can compute all it needs.  (PyTorch's ``torch/_functorch/partitioners.py`` uses the same
method.)

    cost of saving       its bytes, and a little more for a value that the forward would not write to memory otherwise;
                         of equal costs an input is best, since it exists anyway;
                         of an input or output that eager PyTorch does not save, a copy is saved
    a view               is not saved: its base is, and the view is made again; but an `as_strided` view can show memory
                         that a copy of its base lacks, so a copy of the view is saved
    recomputed           pointwise operators, views and other cheap ones that fuse into their readers
    never recomputed     random operators; also, an input that the graph overwrites cannot be saved
    in a checkpoint      (`torch.utils.checkpoint`) nothing is saved but random numbers; its results are not recomputed
    recomputed only if   matrix products and the like; reductions to less than a quarter; values that would be written
    the budget asks      to memory anyway, since an operator of the backward that does not fuse reads them

With a memory budget below 1, values of the last kind are recomputed too, cheapest first (each is a *concession*), until
the saved bytes are at most that share of the bytes of the plain cut.
"""

from __future__ import annotations

import bisect
import functools
import math
import operator
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.fx as fx
from torch.utils.flop_counter import flop_registry

from compiler_core.autograd.joint import JointGraph, output_nodes
from compiler_core.errors import CompilerBug
from compiler_core.support.fx_graphs import ancestors, descendants, tensor_bytes
from compiler_core.support.fx_symbols import has_symbols, hint, is_symbolic
from compiler_core.support.interrupts import immediate_signals, safe_point
from compiler_core.support.node_facts import (
    has_effects,
    is_collective,
    is_computed_again,
    is_pure,
    is_random,
    is_view,
    view_base,
)
from compiler_core.support.opaque_ops import is_tape, opaque_operator
from compiler_core.support.operators import Fact, facts, is_pointwise
from compiler_core.support.tensors import tensors_in

_READS_NOTHING = Fact.READS_METADATA | Fact.CHEAP
"""Of operators that read no element of their input: it need not be in memory for them.  Others of `READS_METADATA` are
not fused."""
WRITE_COST = 1 / 128
"""The cost of writing a value, as a share of its bytes: small, but more than a mean's share of its input."""
CHECKPOINT_COST = 1_000_000
"""The cost of a byte inside a checkpoint: it is saved only where nothing else is possible."""


class JointValues:
    """The values of a joint graph, grouped by the half of the run that needs them."""

    def __init__(self, joint: JointGraph) -> None:
        self.nodes: list[fx.Node] = list(joint.gm.graph.nodes)[:-1]
        self.outputs: set[fx.Node] = set(output_nodes(joint.gm.graph)[: len(joint.outputs)])
        self.gradients: set[fx.Node] = {n for n in joint.gradients if n is not None}
        self.overwritten = {joint.primals[m.primal] for m in joint.mutations}
        self.unsaved_by_eager = joint.unsaved_by_eager
        of_gradients = [n for n in self.nodes if n.meta.get("of_gradients")]
        self.depends_on_tangents = descendants([*of_gradients, *(n for n in self.nodes if n.name in joint.tangents)])
        effects = {n for n in self.nodes if is_random(n) or has_effects(n)} - self.depends_on_tangents
        self.forward = _with_tuple_elements(ancestors(self.outputs | effects))
        self.backward = ancestors(self.gradients.union(of_gradients))
        self.backward_only = self.backward & self.depends_on_tangents
        usable = [n for n in self.nodes if n in self.backward and n not in self.depends_on_tangents]
        self.candidates = [n for n in usable if not is_symbolic(n.meta.get("val"))]
        """The values that the backward can use and that depend on no tangent.  Numbers are not among them: all that the
        backward needs are passed to it."""

    @functools.cached_property
    def written_to_memory(self) -> set[fx.Node]:
        """The values that the forward writes to memory, saved or not.

        These are its outputs, and the inputs of operators that do not fuse with the operator that makes the input, or
        that depend on it through such an operator as well (both branches of a residual).
        """
        written = set(self.outputs)
        bits = {node: 1 << number for number, node in enumerate(self.nodes)}
        # bit sets of the nodes that a node depends on: all, and those that it depends on through a use without fusion
        dependencies: dict[fx.Node, tuple[int, int]] = {}
        for node in (n for n in self.nodes if n in self.forward):
            needed, needed_unfused = bits[node], 0
            for source in node.all_input_nodes if _READS_NOTHING not in facts(node.target) else ():
                source_needed, source_unfused = dependencies[source]
                needed |= source_needed
                needed_unfused |= source_unfused if _fusible(source, node) else source_needed
            dependencies[node] = needed, needed_unfused
            written.update(s for s in node.all_input_nodes if needed_unfused & bits[s])
        return written | set(map(view_base, written))

    @functools.cached_property
    def results_of_checkpoints(self) -> set[fx.Node]:
        """The values of checkpoints that the backward uses outside of them, and the memory of those that are views."""
        found: set[fx.Node] = set()
        for node in reversed(self.nodes):
            number = node.meta.get("checkpoint")
            users = (u for u in node.users if u in self.backward) if number is not None else ()
            if any(u.meta.get("checkpoint") != number or (is_view(u) and u in found) for u in users):
                found.add(node)
        return found

    def is_needed(self, node: fx.Node) -> bool:
        """Returns whether the backward needs `node` as a gradient, or for a value that depends on a tangent."""
        return node in self.gradients or not self.backward_only.isdisjoint(node.users)

    def recomputable_readers(self, node: fx.Node) -> list[fx.Node]:
        """Returns the nodes that the backward could recompute from `node`."""
        used = (u for u in node.users if u in self.backward and u not in self.depends_on_tangents)
        return [u for u in used if not is_symbolic(u.meta.get("val"))]


@dataclass(frozen=True)
class Cut:
    """The values to save, in the order of the joint graph, tapes after tensors."""

    saved: tuple[fx.Node, ...]
    not_recomputed: Mapping[fx.Node, str]
    """The values that this cut does not allow to be recomputed, and why."""

    @property
    def bytes(self) -> int:
        return sum(map(bytes_of, self.saved))


def minimum_cut(values: JointValues, budget: float = 1.0) -> Cut:
    """Returns the cut of the fewest bytes; for a `budget` below 1, the one with the fewest concessions that fits into
    it."""
    reasons = {n: why for n in values.candidates if (why := _reason_not_to_recompute(n, values))}
    concessions = sorted((n for n in reasons if is_pure(n)), key=_concession_order)

    def cut_with_concessions(count: int) -> Cut:
        conceded = set(concessions[:count])
        return _cut(values, {n: why for n, why in reasons.items() if n not in conceded})

    plain = cut_with_concessions(0)
    if budget >= 1:
        return plain
    # more concessions never give a larger cut, so bisection finds the first one that fits
    allowed = int(max(budget, 0.0) * plain.bytes)
    counts = range(len(concessions))
    return cut_with_concessions(
        bisect.bisect_left(counts, -allowed, key=lambda count: -cut_with_concessions(count).bytes)
    )


def _cut(values: JointValues, not_recomputed: Mapping[fx.Node, str]) -> Cut:
    import networkx

    network, scale = networkx.DiGraph(), 2 * len(values.nodes) + 1
    network.add_nodes_from(("source", "sink"))
    for node in values.candidates:
        safe_point()
        if node.op == "placeholder" or node in not_recomputed:
            network.add_edge("source", f"{node.name}_in", capacity=math.inf)
        network.add_edge(f"{node.name}_in", f"{node.name}_out", capacity=_capacity(node, values, scale))
        for reader in values.recomputable_readers(node):
            network.add_edge(f"{node.name}_out", f"{reader.name}_in", capacity=math.inf)
        if values.is_needed(node):
            network.add_edge(f"{node.name}_out", "sink", capacity=math.inf)
    try:
        with immediate_signals():  # it is plain Python, and takes seconds for a large graph
            _, (reached, _) = networkx.minimum_cut(network, "source", "sink")
    except networkx.NetworkXUnbounded:
        raise CompilerBug("the backward needs a value that can be neither saved nor recomputed") from None
    saved = [n for n in values.candidates if f"{n.name}_in" in reached and f"{n.name}_out" not in reached]
    return Cut(tuple(sorted(saved, key=is_tape)), not_recomputed)


def _capacity(node: fx.Node, values: JointValues, scale: int) -> float:
    """Returns bytes times `scale`, plus the cost of writing them and a preference among equals; infinite if `node`
    cannot be saved."""
    if is_tape(node):
        return 1
    if tensor_of(node) is None or node.op == "get_attr" or node.name in values.overwritten:
        return math.inf
    if is_view(node) and node.name not in values.unsaved_by_eager:
        return math.inf
    if is_computed_again(node) and node not in values.results_of_checkpoints:
        return bytes_of(node) * scale * CHECKPOINT_COST
    if node.name in values.unsaved_by_eager:
        return bytes_of(node) * scale * (1 + WRITE_COST) + 3  # a copy, since the program may write to it
    if node.op == "placeholder" or node in values.written_to_memory:
        return bytes_of(node) * scale + (node.op != "placeholder")
    return bytes_of(node) * scale * (1 + WRITE_COST) + 2


# ---- what may be recomputed ----------------------------------------------------------------


def _reason_not_to_recompute(node: fx.Node, values: JointValues) -> str | None:
    """Returns why a value of the forward should not be recomputed in the backward, or None."""
    if is_view(node) and node.name in values.unsaved_by_eager:
        return "a view of memory that a copy of its base lacks"
    if node.op != "call_function" or node not in values.forward or is_view(node) or node.target is operator.getitem:
        return None
    if is_random(node):
        return "a random operator, which would draw other numbers the second time"
    if opaque_operator(node) is not None:
        return f"PyTorch's autograd keeps what the gradient of {opaque_operator(node)} needs"
    if is_collective(node):
        return "a collective, which the other ranks do not repeat"
    if not is_pure(node):
        return "an operator with side effects, or a custom one, which may have some"
    if node in values.results_of_checkpoints:
        return "a result of a checkpoint, which the backward uses outside of it"
    if is_computed_again(node):
        return None
    if node.meta.get("checkpoint") is not None:
        return "the policy of its checkpoint keeps it"
    if Fact.EXPENSIVE in facts(node.target):
        return "a matrix product, convolution or attention, expensive to compute again"
    if not is_cheap(node):
        return f"{node.target} is not known to be cheap to compute again"
    if Fact.REDUCTION in facts(node.target) and bytes_of(node) * 4 < sum(map(bytes_of, node.all_input_nodes)):
        return "a reduction, small to save, and computing it again reads all of its input"
    if reader := _unfused_reader(node, values):
        return f"{reader.name} in the backward reads it from memory, so it would have to be written again too"
    return None


def _unfused_reader(node: fx.Node, values: JointValues) -> fx.Node | None:
    """Returns a reader in the backward, direct or through views, that `node` cannot be fused into."""
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
    """Returns whether a result costs little to recompute and can be computed inside its reader's kernel."""
    if node.target is operator.getitem or is_view(node) or is_pointwise(node.target):
        return True
    return bool(facts(node.target) & (Fact.CHEAP | Fact.REDUCTION))


def _fusible(maker: fx.Node, reader: fx.Node) -> bool:
    is_cat = getattr(reader.target, "overloadpacket", None) is torch.ops.aten.cat
    return is_cat or (is_cheap(reader) and (is_cheap(maker) or is_random(maker)))


def _concession_order(node: fx.Node) -> tuple[int, float]:
    """The sort key of concessions to a memory budget: by kind, then by time for each byte that is not saved."""
    if Fact.EXPENSIVE in facts(node.target):
        kind = 3
    elif not is_cheap(node):
        kind = 2
    else:
        kind = 1 if Fact.REDUCTION in facts(node.target) else 0
    return kind, estimated_ns(node) / max(bytes_of(node), 1)


# ---- about nodes ---------------------------------------------------------------------------


def _with_tuple_elements(nodes: Set[fx.Node]) -> set[fx.Node]:
    """Returns `nodes` and all results of those with several: each is computed, used or not."""
    return {*nodes, *(u for n in nodes for u in n.users if u.target is operator.getitem)}


# ---- costs ---------------------------------------------------------------------------------
# The time is a roofline estimate: the bytes that the operation reads and writes, or its floating-point operations
# (counted by PyTorch's ``flop_counter``), whichever takes longer on a device of that kind.


class Rates(NamedTuple):
    """What a device does in a nanosecond."""

    bytes: float
    operations: float


RATES = {"cpu": Rates(10.0, 50.0), "cuda": Rates(3000.0, 50_000.0)}
"""One core of a server CPU; a data-centre GPU in float32."""


def bytes_of(node: fx.Node) -> int:
    """Returns the bytes of the tensors in a node's value."""
    return sum(map(tensor_bytes, tensors_in(node.meta.get("val"))))


def tensor_of(node: fx.Node) -> torch.Tensor | None:
    """Returns a node's value if it is a tensor, else None."""
    value = node.meta.get("val")
    return value if isinstance(value, torch.Tensor) else None


def estimated_ns(node: fx.Node) -> float:
    """Returns the time to compute a node, in nanoseconds, from inputs that are in memory."""
    moved = bytes_of(node) + sum(map(bytes_of, node.all_input_nodes))
    tensor = next((t for n in (node, *node.all_input_nodes) if (t := tensor_of(n)) is not None), None)
    rates = RATES.get(tensor.device.type if tensor is not None else "cpu", RATES["cpu"])
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
    operations = count_operations(node.target, args, kwargs, node.meta.get("val")) or 0
    return max(moved / rates.bytes, operations / rates.operations)


_COUNTED_AS: dict[Any, Any] = {torch.ops.aten._addmm_activation: torch.ops.aten.addmm}


def count_operations(target: Any, args: Any, kwargs: Any, value: Any) -> int | None:
    """Returns the multiplications and additions of an operator; None if PyTorch does not count them.

    PyTorch's formulas assert what they were written for, and raise for some calls that its kernels take.  They compare
    sizes, too, which would make the compile depend on the answers: they get the numbers that symbolic sizes stand for.
    """
    packet = getattr(target, "overloadpacket", None)
    count = flop_registry.get(_COUNTED_AS.get(packet, packet))
    if count is None:
        return None
    try:
        args, kwargs, value = fx.node.map_aggregate((args, kwargs, value), _without_symbols)
        return int(count(*_with_all_heads(packet, args), **kwargs, out_val=value))
    except Exception:
        return None


def _without_symbols(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and has_symbols(value):
        return torch.empty(tuple(map(hint, value.shape)), dtype=value.dtype, device="meta")
    return hint(value)


def _with_all_heads(packet: Any, args: Any) -> Any:
    """Returns the arguments of attention with as many heads of keys and values as of queries; others unchanged.

    Grouped heads are read by several heads of the queries, so they do the same work, but the formulas of PyTorch 2.11
    to 2.13 do not take them in all operators.
    """
    name = str(packet)
    if "scaled_dot_product" not in name:
        return args
    query = 1 if name.endswith("_backward") else 0
    changed = list(args)
    for at in (query + 1, query + 2):
        batch, _, *inner = changed[at].shape
        changed[at] = torch.empty((batch, changed[query].shape[1], *inner), device="meta")
    return changed
