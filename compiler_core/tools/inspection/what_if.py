"""Compiles a call again with something changed, and compares both compiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from compiler_core.api.compile import compile as compile_
from compiler_core.config import GraphPass
from compiler_core.errors import UsageError
from compiler_core.loops.fuse.rewriter import Decision
from compiler_core.records import Compile, Guard, Kernel, Record
from compiler_core.records.differences import Comparison
from compiler_core.tools.changes.user_changes import CHANGED, LoopNest
from compiler_core.tools.editing.kernel_trial import Trial
from compiler_core.tools.editing.stock_edits import without_number
from compiler_core.tools.editing.wrapper_trial import is_inductor, try_wrapper
from compiler_core.tools.measure import measure
from compiler_core.tools.questions.compare import compare
from compiler_core.tools.recording import record
from compiler_core.tools.testing import difference
from compiler_core.torch_private import stock_mark_dynamic

TOLERANCE = 1e-5


def what_if(
    fn: Callable[..., Any],
    *args: Any,
    before: Mapping[str, Any] | None = None,
    drop_guard: str | None = None,
    mark_dynamic: Sequence[tuple[torch.Tensor, int]] = (),
    split: Sequence[str] = (),
    join: Sequence[tuple[str, str]] = (),
    **changes: Any,
) -> Comparison:
    """Compiles a call, compiles it again with something changed, and returns the comparison of both.

    `Comparison.changes()` has what changed, line by line; `Comparison.values` says whether the results differ.  The
    call runs twice.

    Args:
        fn: the function or module.
        args: its arguments.
        before: the options of the first compile, as for `compile`.
        drop_guard: the source whose guards are left out, such as ``L['x']``.
        mark_dynamic: tensors and dimensions whose size is symbolic.
        split: kernels of the first compile whose operations become a kernel each, such as ``forward_0``.
        join: pairs of kernels that become one where that is possible.  With `split` or `join`, kernels are timed.
        changes: the options that change: ``memory_budget=0.5``, ``keep_apart=[("mul", "tanh")]``, ``dynamic=True``,
            ``backend="aot_eager"``, ``target="sm_90"``, ``block_sizes={"forward_0": {"i": 256}}`` ...

    Returns:
        The totals of both compiles, and their differences at each of the user's lines.

    Raises:
        UsageError: an option is wrong, or there is no guard of that source, or no kernel of that name.

    Example::

        print(compiler_core.what_if(f, x, memory_budget=0.5).changes())
    """
    options = dict(before or {})
    first, right = _compiled("before", fn, args, options)
    options |= changes
    check_kernels(first, changes.get("block_sizes", ()))
    rules = fusion_rules(first, split, join)
    options["passes"] = (*options.get("passes", ()), *rules)
    if drop_guard is not None:
        sources = {guard.source for each in first.compiles for guard in each.guards}
        if drop_guard not in sources:
            raise UsageError(f"there is no guard of {drop_guard}; there are those of {', '.join(sorted(sources))}")
        options["guard_filter"] = without_guards_of(drop_guard)
    try:
        for tensor, dim in mark_dynamic:
            stock_mark_dynamic(tensor, dim)
        second, found = _compiled("after", fn, args, options)
    finally:
        for tensor, _ in mark_dynamic:
            remove_marks(tensor)
    if rules or ("block_sizes" in changes and torch.cuda.is_available()):  # C++ kernels have none
        measure(first)
        measure(second)
    comparison = compare(first, second)
    comparison.notes += notes_of_rules(first, second, rules)
    how = difference(found, right, TOLERANCE)
    comparison.values = {"the result": how.removeprefix(": ")} if how else {}
    return comparison


def fusion_rules(record: Record, split: Sequence[str], join: Sequence[tuple[str, str]]) -> tuple[GraphPass, ...]:
    """Returns rules of fusion that split kernels of a record into their operations, and join pairs of kernels.

    Raises:
        UsageError: there is no such kernel of the compiler, or one to split has a single operation.
    """
    rules = []
    for name in split:
        graph, nodes = _kernel(record, name)
        if len(nodes) < 2:
            raise UsageError(f"{name} has one operation, so there is nothing to split")
        rules.append(GraphPass(_PairRule(graph, nodes, nodes, "keep_apart"), "fusion", f"split_{name}"))
    for first, second in join:
        (graph, one), (other_graph, other) = _kernel(record, first), _kernel(record, second)
        if graph != other_graph:
            raise UsageError(f"{first} and {second} are in different graphs")
        rules.append(GraphPass(_PairRule(graph, one, other, "force_fuse"), "fusion", f"join_{first}_{second}"))
    return tuple(rules)


def check_kernels(record: Record, names: Iterable[str]) -> None:
    """Raises UsageError unless the record has kernels of our compiler with these names."""
    for name in names:
        _kernel(record, name)


@dataclass(frozen=True)
class _PairRule:
    """A rule of fusion: the decision on loop nests of which one has nodes of `one` and the other nodes of `other`."""

    graph: str
    one: frozenset[str]
    other: frozenset[str]
    decision: Decision

    def __call__(self, first: LoopNest, second: LoopNest) -> Decision | None:
        if first.graph != self.graph:
            return None
        sides = ((first.nodes, second.nodes), (second.nodes, first.nodes))
        return self.decision if any(a & self.one and b & self.other for a, b in sides) else None


def notes_of_rules(before: Record, after: Record, rules: Sequence[GraphPass]) -> list[str]:
    """Returns a note for each of the rules that changed nothing; of stock also the times of the graphs they changed."""
    if not rules:
        return []
    trials = list(_changed_wrappers(before, after))
    useful = {event.name for c in after.compiles for event in c.events if event.detail == CHANGED}
    idle = [each.name for each in rules if not trials and f"pass {each.name}" not in useful]
    notes = [f"{name} changed nothing: {NOT_POSSIBLE}" for name in idle]
    return notes + [f"{trial.name}, on random inputs: {trial.times or trial.fault}" for trial in trials]


NOT_POSSIBLE = "a kernel of both is not possible, or there is one already"


def _changed_wrappers(before: Record, after: Record) -> Iterator[Trial]:
    """Runs each output code of Inductor that differs from the one before it beside that one."""
    for old, new in zip(before.compiles, after.compiles, strict=False):
        now = {artifact.name: artifact.text for artifact in new.artifacts}
        for wrapper in (each for each in old.artifacts if each.name in now and is_inductor(each.text)):
            text = now[wrapper.name]
            if wrapper.pane == "wrapper" and without_number(text) != without_number(wrapper.text):
                yield try_wrapper(old, wrapper, wrapper.text, text)


def _kernel(record: Record, name: str) -> tuple[str, frozenset[str]]:
    """Returns the graph of a kernel, and the names of the nodes that it computes."""
    names: list[str] = []
    for each in record.compiles:
        for kernel in (kernel for kernel in each.kernels if kernel.language != "extern"):
            names.append(kernel.name)
            if kernel.name == name:
                return kernel.graph, _nodes_of(each, kernel)
    raise UsageError(f"there is no kernel {name}; there are {', '.join(names) or 'none'}")


def _nodes_of(compile_: Compile, kernel: Kernel) -> frozenset[str]:
    """Returns the names of the nodes that a kernel computes, in the graph that is lowered."""
    made = f"{compile_.id}:{kernel.graph}.loops#{kernel.name}"  # ours; a kernel of Inductor's is made of graph nodes
    graphs = tuple(f"{compile_.id}:{kernel.graph}{stage}#" for stage in ("", ".post_grad"))
    sources = [item for edge in compile_.edges if edge.made in (made, kernel.item) for item in edge.sources]
    return frozenset(item.rpartition("#")[2] for item in sources if item.startswith(graphs))


def without_guards_of(source: str) -> Callable[[list[Guard]], list[bool]]:
    """Returns a filter that leaves out the guards of a source."""
    return lambda guards: [guard.source != source for guard in guards]


def remove_marks(tensor: torch.Tensor) -> None:
    """Removes the marks of symbolic sizes from a tensor."""
    for name in [name for name in vars(tensor) if name.startswith(("_dynamo_", "_specialize_on", "_has_dynamo"))]:
        delattr(tensor, name)


def _compiled(title: str, fn: Any, args: Sequence[Any], options: Mapping[str, Any]) -> tuple[Record, Any]:
    with record(title) as found:
        return found, compile_(fn, **options)(*args)
