"""Runs the user's graph passes in stock torch.compile, by the hooks that Inductor has for them.

    captured             pre_grad_custom_pass
    joint                joint_custom_post_pass
    forward, backward    post_grad_custom_post_pass, which gets both
    lowering, fusion     see `stock_rule_passes`

The rules are those of `changes/user_changes.py`, and a pass must change the graph in place.  It runs on a copy first:
if that fails, the graph stays as it is and a warning says why.  Inductor keeps no compiled graph on disk while passes
are set.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch.fx as fx

from compiler_core.config import GraphPass
from compiler_core.support.fx_graphs import copy_graph, differs
from compiler_core.tools.changes.pass_checks import checked
from compiler_core.tools.changes.user_changes import (
    CHANGED,
    FAILED,
    NOT_APPLIED,
    RULE_POINTS,
    SAME,
    warn_of_pass,
    why_failed,
)
from compiler_core.tools.stock.inductor_rules import stock_rules

_HOOKS = {
    "pre_grad_custom_pass": ("captured",),
    "joint_custom_post_pass": ("joint",),
    "post_grad_custom_post_pass": ("forward", "backward", *RULE_POINTS),
}


@contextmanager
def stock_passes(passes: Sequence[GraphPass]) -> Iterator[None]:
    """Within the block, what stock torch.compile compiles with Inductor goes through these passes.

    At its end, a warning names each pass that ran and changed no graph.
    """
    if not passes:
        yield
        return
    from compiler_core.torch_private import CustomGraphPass
    from compiler_core.torch_private import inductor_config as config

    outcomes: dict[str, set[str]] = {}

    class Hook(CustomGraphPass):
        """Runs the passes at one point of Inductor's."""

        def __init__(self, points: Sequence[str]) -> None:
            self._passes = [each for each in passes if each.at in points and each.at not in RULE_POINTS]

        def __call__(self, graph: fx.Graph) -> None:
            is_backward = any(n.name.startswith("tangents") for n in graph.find_nodes(op="placeholder"))
            for each in self._passes:
                if each.at in ("captured", "joint") or (each.at == "backward") == is_backward:
                    outcome = _run_pass(graph.owning_module, each)  # type: ignore[arg-type]
                    outcomes.setdefault(each.name, set()).add(outcome)

        def uuid(self) -> Any:
            return None  # no cache

    hooks = {name: Hook(points) for name, points in _HOOKS.items() if any(each.at in points for each in passes)}
    patch: Any = config.patch
    cache_log = logging.getLogger("torch._inductor.codecache")
    cache_log.addFilter(_says_more_than_no_cache)
    try:
        with patch(hooks), stock_rules(passes):
            yield
    finally:
        cache_log.removeFilter(_says_more_than_no_cache)
    for each in passes:
        if outcomes.get(each.name) == {SAME}:
            warn_of_pass(f"Graph pass {each.name}: it changed nothing in any {each.at} graph.", each)


def _says_more_than_no_cache(record: logging.LogRecord) -> bool:
    """Whether a message of Inductor's cache is not that a custom pass has no id, which is meant."""
    return "does not implement uuid()" not in record.getMessage()


def _run_pass(gm: fx.GraphModule, graph_pass: GraphPass) -> str:
    """Runs a pass on a copy of the graph and, if that succeeds, on the graph itself; returns what it did."""
    before, trial = _copy(gm), _copy(gm)
    try:
        result = graph_pass.function(trial)
        checked(trial if result is None else result, before, graph_pass.at)
        if result not in (None, trial):
            raise TypeError("for stock torch.compile, a pass must change the graph in place")
    except Exception as error:
        message = f"A graph pass was not applied: {graph_pass.name}: {why_failed(error, graph_pass)}\n  {NOT_APPLIED}"
        warn_of_pass(message, graph_pass)
        return FAILED
    if not differs(trial, before):
        return SAME
    graph_pass.function(gm)
    if graph_pass.at == "captured":  # traced again, which computes the values
        gm.recompile()
    else:
        checked(gm, before, graph_pass.at)
    return CHANGED


def _copy(gm: fx.GraphModule) -> fx.GraphModule:
    """Copies a graph; Dynamo's get their values where graphs of ATen operators have them."""
    copied = copy_graph(gm)
    for node in copied.graph.nodes:
        if "example_value" in node.meta:
            node.meta["val"] = node.meta["example_value"]
    return copied
