"""The time that guards add to a call, measured in the tree that the hook runs, with the values of the call.

The tree as a whole is timed as it is.  Its parts are steps to values with the checks on them; equal parts cost the
same.  What parts of a kind cost is the difference of two copies of the tree (PyTorch's own `clone_manager`): some parts
of the kind with the steps that lead there, and those steps alone.  These costs say how the parts divide the tree's
time, which is more than their sum if the tree is larger than the processor's caches.  A part without a check of its
own, such as the step to a module's dict, costs the checks below it in equal parts.  So the costs of all checks add up
to the tree's, and none is larger.

Nothing here depends on who built the tree: it measures ours, and stock's.
"""

from __future__ import annotations

import functools
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from compiler_core.guards import GuardSpec, GuardTree
from compiler_core.records import Compile
from compiler_core.tools.in_turn import in_turn
from compiler_core.tools.usual_guard_costs import KIND_NS
from compiler_core.torch_private import C_guards as cpp

_ROUNDS = 3
_ROUND_NS = 20_000
"""How long a round takes at least; a tree that takes longer is checked once a round."""
_SAMPLE = 16
"""The most parts of a kind that are measured."""


@dataclass
class Check:
    """One check of a tree, in the order in which PyTorch prints them."""

    kind: str
    parts: list[str]
    """PyTorch's texts of what is checked."""
    repeated: bool = False
    """Whether it is one of several places of a check on several values, and not the first."""
    ns: float = 0.0

    def printed_ns(self) -> list[float]:
        """Returns the cost of each line with which PyTorch prints the check."""
        lines = 1 if self.repeated else len(self.parts)
        return [self.ns / lines] * lines


@dataclass
class _Node:
    """A part of the tree: a step to a value, and the checks on it."""

    manager: Any
    parent: _Node | None
    access: str
    checks: list[Check] = field(default_factory=list)
    ns: float = 0.0
    is_skipped: bool = False
    """Whether it is below a part that is checked by the versions of dicts alone while those are unchanged."""

    kind: tuple[str, ...] = ()
    """What is equal for parts of equal cost: the step's kind, and those of its checks."""


def measured_checks(root: Any, f_locals: Mapping[str, Any]) -> list[Check] | None:
    """Returns the checks of a tree with what each adds to a call with these values; together, what the tree adds.

    Must be called in the state of PyTorch in which the guards hold, such as grad mode; returns None if they do not,
    since the time until the first guard that fails says nothing.
    """
    if not root.check(f_locals):
        return None
    nodes = _nodes(root)
    epilogue = [Check(_name(leaf), leaf.verbose_code_parts()) for leaf in root.get_epilogue_lambda_guards()]
    nodes[0].checks += epilogue  # these run at the end, and are printed there
    total = _difference(root, cpp.RootGuardManager(), f_locals)
    _measure_parts(root, nodes, f_locals)
    _scale(nodes, total)
    _divide_among_checks(nodes)
    del nodes[0].checks[len(nodes[0].checks) - len(epilogue) :]
    return [check for node in nodes for check in node.checks] + epilogue


def record_guard_costs(
    compile_: Compile, guards: Sequence[GuardSpec], tree: GuardTree, f_locals: Mapping[str, Any]
) -> None:
    """Measures the tree of a compile of ours, and writes the cost of each of its guards to the record."""
    checks = measured_checks(tree.root, f_locals)
    if checks is None:
        return
    costs = guard_costs(guards, checks, tree.covered)
    compile_.guards_ns = sum(costs) or sum(check.ns for check in checks)
    kept = [guard for guard in compile_.guards if not guard.dropped]
    for guard, cost in zip(kept, costs, strict=True):
        guard.cost_ns = cost


def guard_costs(
    guards: Sequence[GuardSpec], checks: Sequence[Check], covered: Mapping[str, Sequence[str]]
) -> list[float]:
    """Returns nanoseconds a call for each guard of a tree of ours; they add up to the cost of its checks.

    Args:
        guards: the guards of the tree.
        checks: what `measured_checks` returned.
        covered: for the text of a check that stands for several guards, their texts (`GuardTree.covered`).
    """
    texts = [guard.text for guard in guards]
    with_text: dict[str, list[int]] = defaultdict(list)
    for i, text in enumerate(texts):
        with_text[text].append(i)
    costs = [0.0] * len(guards)
    for check in checks:
        places = [i for part in check.parts for text in covered.get(part, (part,)) for i in with_text.get(text, ())]
        for i in places:
            costs[i] += check.ns / len(places)
    total, claimed = sum(check.ns for check in checks), sum(costs)
    if not claimed:
        return [total / len(guards) for _ in guards]
    return [round(cost * total / claimed, 1) for cost in costs]  # checks that belong to no guard are divided, too


def _name(leaf: Any) -> str:
    return type(leaf).__name__


def _nodes(root: Any) -> list[_Node]:
    """Returns the parts of a tree in the order in which PyTorch prints them, the root first."""
    nodes: list[_Node] = []
    printed: dict[int, Any] = {}
    work: list[tuple[Any, _Node | None, str]] = [(root, None, "")]
    while work:
        manager, parent, access = work.pop()
        node = _Node(manager, parent, access)
        node.is_skipped = parent is not None and (parent.is_skipped or _compares_versions(parent.manager))
        for leaf in manager.get_leaf_guards():
            repeated = id(leaf) in printed
            if isinstance(leaf, cpp.RelationalGuard):
                printed[id(leaf)] = leaf
            node.checks.append(Check(_name(leaf), leaf.verbose_code_parts(), repeated))
        node.kind = (access, *(check.kind for check in node.checks))
        nodes.append(node)
        children: list[tuple[Any, _Node | None, str]] = []
        if isinstance(manager, cpp.DictGuardManager):
            for _, pair in sorted(manager.get_key_value_managers().items()):
                children += [(each, node, name) for each, name in zip(pair, ("key", "value"), strict=True) if each]
        accessors = map(_name, manager.get_accessors())
        children += [(child, node, name) for name, child in zip(accessors, manager.get_child_managers(), strict=True)]
        work += reversed(children)
    return nodes


def _compares_versions(manager: Any) -> bool:
    """Whether stock's tree skips what is below while the versions of all dicts there are unchanged."""
    names = ("is_tag_safe_root", "is_recursive_dict_tag_matching_disabled")  # some versions of PyTorch lack them
    is_root, disabled = (getattr(manager, name, lambda: False)() for name in names)
    return is_root and not disabled


def _measure_parts(root: Any, nodes: Sequence[_Node], f_locals: Mapping[str, Any]) -> None:
    """Sets the time of each part to that of its kind."""
    kinds: dict[tuple[str, ...], list[_Node]] = defaultdict(list)
    for node in nodes[1:]:
        kinds[node.kind].append(node)
    for same in kinds.values():
        sample = same[:: max(1, len(same) // _SAMPLE)][:_SAMPLE]
        steps = {id(nodes[0].manager)}
        for node in sample:
            above = node.parent
            while above is not None and id(above.manager) not in steps:
                steps.add(id(above.manager))
                above = above.parent
        whole = steps.union(id(node.manager) for node in sample)
        if len(whole) == len(steps):  # each is on the way to another
            continue
        saved = _difference(_copy(root, whole), _copy(root, steps), f_locals) / (len(whole) - len(steps))
        for node in same:
            node.ns = saved
    nodes[0].ns = _difference(_copy(root, {id(nodes[0].manager)}), cpp.RootGuardManager(), f_locals)


def _copy(root: Any, kept: Collection[int]) -> Any:
    return root.clone_manager(lambda manager: id(manager) in kept)


def _difference(more: Any, less: Any, f_locals: Mapping[str, Any]) -> float:
    """Returns how many nanoseconds longer it takes to check `more` than `less`.

    The shortest of a few rounds counts, since what disturbs a round only makes it longer.
    """
    times = []
    for root in (more, less):
        root.check(f_locals)  # a copy has no versions of dicts before its first check
        times.append(_round_ns(root, 1, f_locals))
    calls = max(1, int(_ROUND_NS / max(times)))
    rounds = [functools.partial(_round_ns, root, calls, f_locals) for root in (more, less)]
    shortest = [min(found) for found in in_turn(rounds, 0.0, least=_ROUNDS, most=_ROUNDS)]
    return max(shortest[0] - shortest[1], 1.0)


def _round_ns(root: Any, calls: int, f_locals: Mapping[str, Any]) -> float:
    check, start = root.check, time.perf_counter_ns()
    for _ in range(calls):
        check(f_locals)
    return (time.perf_counter_ns() - start) / calls


def _scale(nodes: Sequence[_Node], total: float) -> None:
    """Makes the times of the parts add up to the tree's.

    A copy of a tree never skips parts by versions, so their times in it say only how they divide what the others leave.
    """
    skipped = [node for node in nodes if node.is_skipped]
    checked = [node for node in nodes if not node.is_skipped]
    sums = {id(part): sum(node.ns for node in part) for part in (skipped, checked)}
    left = total if not skipped else min(sums[id(checked)], total)
    for part, time_of_part in ((checked, left), (skipped, total - left)):
        for node in part:
            node.ns = node.ns * time_of_part / sums[id(part)] if sums[id(part)] else time_of_part / len(part)


def _divide_among_checks(nodes: Sequence[_Node]) -> None:
    """Divides the time of each part among its checks; that of a part without checks goes to those below it."""
    below: Counter[int] = Counter()
    for node in reversed(nodes):
        below[id(node)] += len(node.checks)
        below[id(node.parent)] += below[id(node)]
    inherited: dict[int, float] = {}
    unclaimed = 0.0
    for node in nodes:
        each = inherited.get(id(node.parent), 0.0)
        if not node.checks and below[id(node)]:
            each += node.ns / below[id(node)]
        elif not node.checks:
            unclaimed += node.ns
        inherited[id(node)] = each
        weights = [_weight(check) for check in node.checks]
        weight_of_all = sum(weights)
        for check, weight in zip(node.checks, weights, strict=True):
            check.ns = node.ns * weight / weight_of_all + each
    checks = [check for node in nodes for check in node.checks]
    for check in checks:
        check.ns += unclaimed / len(checks)


def _weight(check: Check) -> float:
    """Returns what a check usually costs; one Python function has all conditions on sizes, each of them a part."""
    return KIND_NS.get(check.kind, KIND_NS["ID_MATCH"]) * (len(check.parts) if check.kind == "LAMBDA_GUARD" else 1)
