"""The report of a partition for the record: what is saved, recomputed or neither, and why."""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterator, Sequence
from typing import Literal

import torch.fx as fx

from compiler_core.autograd.mincut import Cut, JointValues
from compiler_core.autograd.op_cost import bytes_of, estimated_ns, tensor_of
from compiler_core.records import BudgetPoint, ItemId, Partition, ValueDecision
from compiler_core.support.opaque_ops import is_tape
from compiler_core.support.operator_facts import is_random, is_view, view_base


def budget_point(budget: float, cut: Cut, values: JointValues) -> BudgetPoint:
    """Returns the entry for one memory budget in the record."""
    return BudgetPoint(budget, cut.bytes, round(values.recompute_time(cut)), [node.meta["item"] for node in cut.saved])


class PartitionReport:
    """Explains the decision about each value for the record."""

    def __init__(self, values: JointValues, cut: Cut, backward: fx.GraphModule) -> None:
        self.values, self.cut = values, cut
        self.saved = set(cut.saved)
        again = {n.name for n in backward.graph.nodes if n.op in ("call_function", "get_attr")}
        self.recomputed = {n for n in values.nodes if n.name in again}

    def partition(self, forward: fx.GraphModule) -> Partition:
        nodes = {n.name: n for n in self.values.nodes}
        shown = [n for n in forward.graph.nodes if tensor_of(n) is not None and n.name in nodes]  # all but copies
        values = [self._value(nodes[n.name], n.meta["item"]) for n in shown]
        default = self._default_saved()
        work = round(self.values.recompute_time(self.cut))
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
        needed = self.values.recomputed_for(node.all_input_nodes, self.saved) | {node}
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
    return f"{bytes_of(node):,} bytes"


def _join_names(names: Sequence[str]) -> str:
    shown = list(names[:3]) + ([f"{len(names) - 3} more"] if len(names) > 3 else [])
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
