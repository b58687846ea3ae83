"""Cutting the joint graph into a forward and a backward graph, and the account of it.

What to save is decided in `mincut.py`; here the two graphs are made, the law that joins them is
checked, and every value of the forward gets its entry in the record: saved, recomputed or neither,
and why.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.fx as fx

from compiler_core.autograd.joint import JointGraph, output_nodes
from compiler_core.autograd.mincut import Cut, Values, budget_curve, minimum_cut
from compiler_core.autograd.op_cost import bytes_of, nanoseconds, tensor_of
from compiler_core.autograd.passes.simplify import remove_dead
from compiler_core.autograd.trace.ownership import view_again
from compiler_core.errors import CompilerBug
from compiler_core.records import BudgetPoint, Compile, ItemId, Partition, Value
from compiler_core.support import fx_symbols
from compiler_core.support.fx_graphs import graph_module, record_graph
from compiler_core.support.fx_symbols import Origin
from compiler_core.support.opaque_ops import is_tape
from compiler_core.support.operator_facts import is_random, is_view, view_base, view_source


@dataclass(frozen=True)
class Partitioned:
    """The forward returns the joint graph's forward outputs, then `saved`, then `tapes`; the backward takes
    these two, then the symbols, then the tangents, and returns a gradient or None for each primal."""

    joint: JointGraph
    forward: fx.GraphModule
    backward: fx.GraphModule | None
    saved: tuple[str, ...]
    tapes: tuple[str, ...]
    """Saved too, and no tensors: what autograd keeps of operators that stay whole."""
    watched: tuple[str, ...]
    """Primals and outputs that eager PyTorch saves and the backward does without: autograd is to see that nobody writes
    to them, as it does in eager."""
    symbols: tuple[str, ...]
    """The symbols on which the backward's sizes depend; see `JointGraph.origins`."""
    saved_bytes: int


def partition(
    joint: JointGraph, compile_: Compile, memory_budget: float = 1.0, memory_curve: bool = False
) -> Partitioned:
    """Cut `joint` so that the backward keeps the fewest bytes; with a `memory_budget` below 1, at
    most that share of them where computing again can bring it there.  With `memory_curve` the record
    also says what other budgets would give.

    Where no gradient is wanted, the joint graph is the forward.
    """
    if not joint.has_backward:
        return Partitioned(joint, joint.gm, None, (), (), (), (), 0)
    with compile_.step("partition"):
        values = Values(joint)
        cut = minimum_cut(values, memory_budget)
        numbers = _symbols(joint, values)
        forward, backward = _forward(joint, values, cut), _backward(joint, values, cut, numbers)
        saved = tuple(_saved_name(joint, n) for n in cut.saved if not is_tape(n))
        tapes = tuple(n.name for n in cut.saved if is_tape(n))
        parts = Partitioned(joint, forward, backward, saved, tapes, _watched(joint, cut), tuple(numbers), cut.bytes)
        check(parts)
        record_graph(compile_, "forward", "forward", forward)
        record_graph(compile_, "backward", "backward", backward)
        compile_.partition = _Account(values, cut, backward).partition(forward)
        if memory_curve:
            compile_.partition.curve = [_point(budget, other, values) for budget, other in budget_curve(values)]
    return parts


def _watched(joint: JointGraph, cut: Cut) -> tuple[str, ...]:
    saved, written = {n.name for n in cut.saved}, {joint.primals[m.primal] for m in joint.mutations}
    nodes = {n.name: n for n in joint.gm.graph.nodes}
    return tuple(name for name in joint.guarded if name not in written and view_base(nodes[name]).name not in saved)


# ---- the two graphs ------------------------------------------------------------------------


def _forward(joint: JointGraph, values: Values, cut: Cut) -> fx.GraphModule:
    graph = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    for node in values.nodes:
        if node not in values.after_tangents:
            copied[node] = _copy(graph, node, copied)
    results = output_nodes(joint.gm.graph)[: len(joint.outputs)]
    outputs = [copied[n] for n in results]
    for node in cut.saved:
        if node.name in joint.exposed:
            outputs.append(_kept_copy(graph, joint, node, copied[node]))
            continue
        outputs.append(copied[node])
        if node not in results and node.op != "placeholder":
            copied[node].meta["role"] = "saved"
    graph.output(outputs)
    remove_dead(graph)
    return _module(joint, graph)


def _saved_name(joint: JointGraph, node: fx.Node) -> str:
    return f"{node.name}_copy" if node.name in joint.exposed else node.name


def _saved_value(joint: JointGraph, node: fx.Node) -> Any:
    """What is saved of `node`."""
    return node.meta["val"].clone() if node.name in joint.exposed else node.meta["val"]


def _kept_copy(graph: fx.Graph, joint: JointGraph, node: fx.Node, copied: fx.Node) -> fx.Node:
    """A copy of an input or output, which somebody may write to before the backward."""
    clone: Any = torch.ops.aten.clone.default
    made = graph.create_node("call_function", clone, (copied,), name=_saved_name(joint, node))
    made.meta = _meta(node) | {"role": "saved", "val": _saved_value(joint, node)}
    return made


def _symbols(joint: JointGraph, values: Values) -> dict[str, Origin]:
    """The symbols that the backward's values speak of."""
    used = (n for n in values.nodes if n in values.backward or n.name in joint.tangents)
    return joint.origins(fx_symbols.names(n.meta.get("val") for n in used))


def _backward(joint: JointGraph, values: Values, cut: Cut, numbers: Mapping[str, Origin]) -> fx.GraphModule:
    """Operations in the joint graph's order; what is computed again comes just before its reader."""
    graph = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    for node in cut.saved:
        copied[node] = graph.placeholder(_saved_name(joint, node))
        copied[node].meta = _meta(node) | {"role": "saved", "val": _saved_value(joint, node)}
    for name, origin in numbers.items():
        made = graph.placeholder(name)
        made.meta = {"val": origin.value, "origin": (origin.placeholder.meta["item"],), "rule": "partition"}
        copied |= {n: made for n in values.nodes if n.name == name or (n is origin.placeholder and not origin.method)}
    for node in joint.gm.graph.find_nodes(op="placeholder"):
        if node.name in joint.tangents:
            copied[node] = _copy(graph, node, copied)
    for node in values.nodes:
        if node in values.backward_only or node in values.gradients:
            _copy_with_sources(graph, node, copied)
    graph.output([None if n is None else copied[n] for n in joint.gradients])
    inner = (n for n in cut.saved if n.op != "placeholder" and n not in values.outputs)
    _apart_from_saved(graph, {copied[n] for n in (*inner, *(n for n in cut.saved if n.name in joint.exposed))})
    return _module(joint, graph)


def _apart_from_saved(graph: fx.Graph, kept: Set[fx.Node]) -> None:
    """A gradient that needs no tangent may be a saved value itself; another backward must not find there what was
    written to the gradient."""
    gradients = [n and (view_again(graph, n) if view_base(n) in kept else n) for n in output_nodes(graph)]
    graph.output_node().args = (gradients,)


def _copy_with_sources(graph: fx.Graph, node: fx.Node, copied: dict[fx.Node, fx.Node]) -> None:
    work = [node]
    while work:
        missing = [n for n in work[-1].all_input_nodes if n not in copied]
        if missing and work[-1] not in copied:
            work.extend(reversed(missing))
        elif (ready := work.pop()) not in copied:
            copied[ready] = _copy(graph, ready, copied)


def _copy(graph: fx.Graph, node: fx.Node, copied: Mapping[fx.Node, fx.Node]) -> fx.Node:
    made = graph.node_copy(node, copied.__getitem__)
    made.meta = _meta(node)
    if is_view(node) and view_source(made).meta["val"] is not view_source(node).meta["val"]:
        made.meta["val"] = _view_of_copy(made)
    return made


def _view_of_copy(view: fx.Node) -> Any:
    """The value of a view of a saved copy, whose strides need not be those of what was copied."""
    target: Any = view.target
    args, kwargs = fx.map_arg((view.args, view.kwargs), lambda n: n.meta["val"])
    return target(*args, **kwargs)


def _meta(node: fx.Node) -> dict[str, Any]:
    kept = {k: node.meta[k] for k in ("val", "module", "role") if k in node.meta}
    return kept | {"origin": (node.meta["item"],), "rule": "partition"}


def _module(joint: JointGraph, graph: fx.Graph) -> fx.GraphModule:
    graph.lint()
    return graph_module(joint.gm, graph)


def check(parts: Partitioned) -> None:
    """The law of the cut: what the forward hands over is what the backward takes, in order and kind."""
    assert parts.backward is not None
    given = output_nodes(parts.forward.graph)[len(parts.joint.outputs) :]
    placeholders = list(parts.backward.graph.find_nodes(op="placeholder"))
    count = len(parts.saved) + len(parts.tapes)
    taken, tangents = placeholders[:count], placeholders[count + len(parts.symbols) :]
    if list(map(_kind, given)) != list(map(_kind, taken)):
        raise CompilerBug(f"the forward saves {[*map(_kind, given)]} but the backward takes {[*map(_kind, taken)]}")
    if tuple(n.name for n in given) != parts.saved + parts.tapes:
        raise CompilerBug(f"the forward saves {[n.name for n in given]}, not {parts.saved + parts.tapes}")
    if tuple(n.name for n in tangents) != parts.joint.tangents:
        raise CompilerBug(f"the backward takes {[n.name for n in tangents]}, not {parts.joint.tangents}")
    if len(output_nodes(parts.backward.graph)) != len(parts.joint.primals):
        raise CompilerBug("the backward does not return one gradient for each primal")


def _kind(node: fx.Node) -> tuple[str, tuple[int, ...], Any]:
    value = node.meta["val"]
    return (node.name, (), None) if is_tape(node) else (node.name, tuple(value.shape), value.dtype)


def _point(budget: float, cut: Cut, values: Values) -> BudgetPoint:
    return BudgetPoint(budget, cut.bytes, round(values.work(cut)), [node.meta["item"] for node in cut.saved])


# ---- the account ---------------------------------------------------------------------------


class _Account:
    """Says what became of each value, in words."""

    def __init__(self, values: Values, cut: Cut, backward: fx.GraphModule) -> None:
        self.values, self.cut = values, cut
        self.saved = set(cut.saved)
        again = {n.name for n in backward.graph.nodes if n.op in ("call_function", "get_attr")}
        self.again = {n for n in values.nodes if n.name in again}

    def partition(self, forward: fx.GraphModule) -> Partition:
        nodes = {n.name: n for n in self.values.nodes}
        shown = [n for n in forward.graph.nodes if tensor_of(n) is not None and n.name in nodes]  # all but copies
        values = [self._value(nodes[n.name], n.meta["item"]) for n in shown]
        default = self._default_saved()
        work = round(self.values.work(self.cut))
        saved = sum(not is_tape(n) for n in self.cut.saved)
        return Partition(values, saved, self.cut.bytes, len(default), sum(map(bytes_of, default)), work)

    def _value(self, node: fx.Node, item: ItemId) -> Value:
        edge = [f"{node.name}_in", f"{node.name}_out"] if node in self.saved else None
        return Value(item, self._decision(node), bytes_of(node), self._reason(node), edge, self._to_drop(node))

    def _to_drop(self, node: fx.Node) -> int | None:
        """Nanoseconds that the backward would spend more, were a saved value not saved."""
        if node not in self.saved or node.op == "placeholder":
            return None
        needed = self.values.computed_again(node.all_input_nodes, self.saved) | {node}
        if any(is_random(n) or any(i.name in self.values.overwritten for i in n.all_input_nodes) for n in needed):
            return None
        return round(sum(nanoseconds(n) for n in needed - self.again if not is_view(n)))

    def _decision(self, node: fx.Node) -> Literal["saved", "recomputed", "neither"]:
        return "saved" if node in self.saved else "recomputed" if node in self.again else "neither"

    def _reason(self, node: fx.Node) -> str:
        if node in self.saved:
            return self._why_saved(node)
        if node in self.again:
            return self._why_again(node)
        if node in self.values.backward:
            return "the backward needs it only to make values that are saved themselves"
        return "the backward does not need it"

    def _why_saved(self, node: fx.Node) -> str:
        size, use = _size(node), self._use(node)
        if node.name in self.values.exposed:
            kind = "an input" if node.op == "placeholder" else "an output"
            return f"{kind} that eager PyTorch does not save and that may be written to: a copy ({size}); {use}"
        if node.op == "placeholder":
            return f"an input, in memory already ({size}); {use}"
        for source in self._unsaved_sources(node):
            if why := self.cut.once.get(source):
                return f"{why} ({size}); {use}" if source is node else f"made of {source.name}: {why} ({size}); {use}"
        return f"no cheaper set of values gives the backward all it needs ({size}); {use}"

    def _use(self, node: fx.Node) -> str:
        made = [n.name for n in self.values.readers(node) if n in self.again]
        if made:
            return f"the backward computes {_listed(made)} again from it"
        return "the backward reads it"

    def _why_again(self, node: fx.Node) -> str:
        sources = self._saved_sources[node]
        origin = f"from {_listed(sources)}, which {'is' if len(sources) == 1 else 'are'} saved" if sources else ""
        if not sources:
            return "made of constants alone"
        if is_view(node):
            return f"a view, made again {origin}; a view is never saved, its base is"
        if node in self.values.forward and bytes_of(node):
            return f"computed again {origin}: saving it would keep {_size(node)} more"
        return f"computed in the backward {origin}"

    @functools.cached_property
    def _saved_sources(self) -> dict[fx.Node, tuple[str, ...]]:
        """For each value, the saved ones that it is computed from, those that it reads itself first."""
        found: dict[fx.Node, tuple[str, ...]] = {}
        for node in self.values.nodes:
            inputs = node.all_input_nodes
            direct = [n.name for n in inputs if n in self.saved]
            behind = [name for n in inputs if n not in self.saved for name in found[n]]
            found[node] = tuple(dict.fromkeys((*direct, *behind)))
        return found

    def _unsaved_sources(self, node: fx.Node) -> Iterator[fx.Node]:
        """`node` and what it is computed from, nearest first, as far as saved values."""
        found = {node}
        work = collections.deque(found)
        while work:
            yield work[0]
            for source in work.popleft().all_input_nodes:
                if source not in self.saved and source not in found:
                    found.add(source)
                    work.append(source)

    def _default_saved(self) -> list[fx.Node]:
        """What the default saves: each value of the forward (of a view, its base) that an operation
        of the backward alone reads."""
        values = self.values
        read: dict[fx.Node, None] = {}
        for node in values.nodes:
            if node in values.after_tangents or (node not in values.forward and node.op != "placeholder"):
                continue
            late = [u for u in node.users if u in values.backward and u not in values.forward]
            if (late or node in values.gradients) and tensor_of(node) is not None:
                read[view_base(node)] = None
        return [n for n in read if n.op != "get_attr" and tensor_of(n) is not None]


def _size(node: fx.Node) -> str:
    return f"{bytes_of(node):,} bytes"


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:3]) + ([f"{len(names) - 3} more"] if len(names) > 3 else [])
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
