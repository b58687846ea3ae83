"""The report of a partition for the record: what is saved, recomputed or neither, and why.

For the record alone; `partition` asks for it by name, and compiles the same without it.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Literal

import torch.fx as fx

from compiler_core.autograd.mincut import Cut, JointValues, bytes_of, estimated_ns, minimum_cut, tensor_of
from compiler_core.records import BudgetPoint, ItemId, Partition, ValueDecision
from compiler_core.records.timings import bytes_text
from compiler_core.support.node_facts import is_computed_again, is_random, is_view, view_base
from compiler_core.support.opaque_ops import is_tape


def explain_partition(
    values: JointValues, cut: Cut, forward: fx.Graph, backward: fx.Graph, memory_curve: bool
) -> Partition:
    """Returns the partition for the record; with `memory_curve`, also what other memory budgets would give."""
    found = _PartitionReport(values, cut, backward).partition(forward)
    if memory_curve:
        found.curve = [
            BudgetPoint(
                budget, other.bytes, round(recompute_time(values, other)), [n.meta["item"] for n in other.saved]
            )
            for budget, other in budget_curve(values)
        ]
    return found


def budget_curve(values: JointValues) -> list[tuple[float, Cut]]:
    """Returns the cuts for budgets from 1 down to 0.

    A smaller budget never recomputes less: a cut is replaced by another one that saves no more bytes and recomputes
    less.
    """
    curve: list[tuple[float, Cut]] = []
    least: Cut | None = None
    for tenths in range(11):
        cut = minimum_cut(values, tenths / 10)
        if least is None or recompute_time(values, cut) < recompute_time(values, least):
            least = cut
        curve.append((tenths / 10, least))
    return curve[::-1]


def recompute_time(values: JointValues, cut: Cut) -> float:
    """Returns the nanoseconds that the backward spends on recomputing values of the forward."""
    again = _recomputed_for(values, values.backward_only | values.gradients, set(cut.saved))
    return sum(estimated_ns(n) for n in again if not is_view(n))


def _recomputed_for(values: JointValues, wanted: Iterable[fx.Node], kept: Set[fx.Node]) -> set[fx.Node]:
    """Returns the operations of the forward that have to run again to make `wanted` if only `kept` is available."""
    seen: set[fx.Node] = set()
    work = list(wanted)
    while work:
        node = work.pop()
        if node not in kept and node not in seen and node.op != "placeholder":
            seen.add(node)
            work.extend(node.all_input_nodes)
    return {n for n in seen if n in values.forward}


class _PartitionReport:
    """Explains the decision about each value."""

    def __init__(self, values: JointValues, cut: Cut, backward: fx.Graph) -> None:
        self.values, self.cut = values, cut
        self.saved = set(cut.saved)
        again = {n.name for n in backward.nodes if n.op in ("call_function", "get_attr")}
        self.recomputed = {n for n in values.nodes if n.name in again}

    def partition(self, forward: fx.Graph) -> Partition:
        nodes = {n.name: n for n in self.values.nodes}
        shown = [n for n in forward.nodes if tensor_of(n) is not None and n.name in nodes]  # all but copies
        values = [self._value(nodes[n.name], n.meta["item"]) for n in shown]
        default = self._default_saved()
        work = round(recompute_time(self.values, self.cut))
        saved = sum(not is_tape(n) for n in self.cut.saved)
        return Partition(values, saved, self.cut.bytes, len(default), sum(map(bytes_of, default)), work)

    def _value(self, node: fx.Node, item: ItemId) -> ValueDecision:
        edge = [f"{node.name}_in", f"{node.name}_out"] if node in self.saved else None
        return ValueDecision(
            item, self._decision(node), bytes_of(node), self._reason(node), edge, self._cost_to_drop(node)
        )

    def _cost_to_drop(self, node: fx.Node) -> int | None:
        """Returns the additional nanoseconds of the backward if this saved value were not saved; None if that is
        impossible."""
        if node not in self.saved or node.op == "placeholder":
            return None
        needed = _recomputed_for(self.values, node.all_input_nodes, self.saved) | {node}
        if any(is_random(n) or any(i.name in self.values.overwritten for i in n.all_input_nodes) for n in needed):
            return None
        return round(sum(estimated_ns(n) for n in needed - self.recomputed if not is_view(n)))

    def _decision(self, node: fx.Node) -> Literal["saved", "recomputed", "neither"]:
        if node in self.saved:
            return "saved"
        return "recomputed" if node in self.recomputed else "neither"

    def _reason(self, node: fx.Node) -> str:
        if node in self.saved:
            return self._why_saved(node)
        if node in self.recomputed:
            return self._why_recomputed(node)
        if node in self.values.backward:
            return "the backward needs it only to make values that are saved themselves"
        return "the backward does not need it"

    def _why_saved(self, node: fx.Node) -> str:
        size, use = _size(node), self._use(node)
        if node.name in self.values.unsaved_by_eager:
            kind = "an input" if node.op == "placeholder" else "a view" if is_view(node) else "an output"
            return f"{kind} that eager PyTorch does not save and that may be written to: a copy ({size}); {use}"
        if node.op == "placeholder":
            return f"an input, in memory already ({size}); {use}"
        for source in self._unsaved_sources(node):
            if why := self.cut.not_recomputed.get(source):
                return f"{why} ({size}); {use}" if source is node else f"made of {source.name}: {why} ({size}); {use}"
        return f"no cheaper set of values gives the backward all it needs ({size}); {use}"

    def _use(self, node: fx.Node) -> str:
        recomputed = [n.name for n in self.values.recomputable_readers(node) if n in self.recomputed]
        if recomputed:
            return f"the backward computes {_join_names(recomputed)} again from it"
        return "the backward reads it"

    def _why_recomputed(self, node: fx.Node) -> str:
        sources = self._saved_sources[node]
        origin = f"from {_join_names(sources)}, which {'is' if len(sources) == 1 else 'are'} saved" if sources else ""
        if not sources:
            return "made of constants alone"
        if is_computed_again(node) and node in self.values.forward:
            return f"in a checkpoint: computed again {origin}"
        if is_view(node):
            return f"a view, made again {origin}; its base is saved instead of the view"
        if node in self.values.forward and bytes_of(node):
            return f"computed again {origin}: saving it would keep {_size(node)} more"
        return f"computed in the backward {origin}"

    @functools.cached_property
    def _saved_sources(self) -> dict[fx.Node, tuple[str, ...]]:
        """For each value, the saved values that it is computed from, those that it reads directly first."""
        found: dict[fx.Node, tuple[str, ...]] = {}
        for node in self.values.nodes:
            inputs = node.all_input_nodes
            direct = [n.name for n in inputs if n in self.saved]
            behind = [name for n in inputs if n not in self.saved for name in found[n]]
            found[node] = tuple(dict.fromkeys((*direct, *behind)))
        return found

    def _unsaved_sources(self, node: fx.Node) -> Iterator[fx.Node]:
        """Yields `node` and the values that it is computed from, nearest first, up to saved values."""
        found = {node}
        work = collections.deque(found)
        while work:
            yield work[0]
            for source in work.popleft().all_input_nodes:
                if source not in self.saved and source not in found:
                    found.add(source)
                    work.append(source)

    def _default_saved(self) -> list[fx.Node]:
        """Returns what would be saved without a minimum cut: each value of the forward (for a view, its base) that an
        operation of the backward reads."""
        values = self.values
        read: dict[fx.Node, None] = {}
        for node in values.nodes:
            if node in values.depends_on_tangents or (node not in values.forward and node.op != "placeholder"):
                continue
            late = [u for u in node.users if u in values.backward and u not in values.forward]
            if (late or node in values.gradients) and tensor_of(node) is not None:
                read[view_base(node)] = None
        return [n for n in read if n.op != "get_attr" and tensor_of(n) is not None]


def _size(node: fx.Node) -> str:
    return bytes_text(bytes_of(node))


def _join_names(names: Sequence[str]) -> str:
    shown = list(names[:3]) + ([f"{len(names) - 3} more"] if len(names) > 3 else [])
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
