"""Runs the user's rules of lowering and fusion in stock torch.compile.

    lowering    replaces Inductor's lowering of the operator
    fusion      is asked by Inductor's scheduler (`InductorChoices`)

Inductor writes a chain of pointwise operators as one loop nest when it lowers them, so a fusion rule sees only what is
left to its scheduler.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from compiler_core.config import GraphPass
from compiler_core.errors import GraphPassError, GraphPassWarning
from compiler_core.pipeline.graph_passes import why_failed
from compiler_core.pipeline.rule_passes import NO_VALUE, NOT_USED, RULE_POINTS, LoopNest, checked_decision, operator_of


@contextmanager
def stock_rules(passes: Sequence[GraphPass]) -> Iterator[None]:
    """Within the block, what stock torch.compile compiles with Inductor follows the rules among `passes`."""
    lowering, fusion = ([each for each in passes if each.at == at] for at in RULE_POINTS)
    from torch._inductor.virtualized import V

    with ExitStack() as stack:
        for each in lowering:
            stack.enter_context(_lowered_by(each))
        if fusion:
            stack.enter_context(V.set_choices_handler(_choices(fusion)))
        yield


class _Reporter:
    """Warns of the first error of a rule."""

    def __init__(self, rule: GraphPass) -> None:
        self._rule, self.has_failed = rule, False

    def failed(self, error: Exception) -> None:
        if not self.has_failed:
            message = f"A graph pass was not applied: {self._rule.name}: {why_failed(error)}\n  {NOT_USED}"
            warnings.warn(message, GraphPassWarning, stacklevel=2)
        self.has_failed = True


# ---------------------------------------------------------------- lowering


class StockBody:
    """What a lowering rule gets as `body`: it applies Inductor's operations."""

    def op(self, op: str, *args: Any) -> Any:
        """Applies an operation; numbers are converted to the type of the loop nest."""
        from torch._inductor.ops_handler import OpsHandler
        from torch._inductor.virtualized import ops

        name = {"and": "logical_and", "or": "logical_or", "not": "logical_not", "div": "truediv"}.get(op, op)
        known = getattr(OpsHandler, name, None)
        if known is None:
            raise GraphPassError(f"Inductor has no operation {op}")
        if len(inspect.signature(known).parameters) - 1 != len(args):
            raise GraphPassError(f"{op} does not take {len(args)} arguments")
        return getattr(ops, name)(*(self._value(each) for each in args))

    def _value(self, value: Any) -> Any:
        from torch._inductor.virtualized import ops

        return ops.constant(value, torch.float32) if isinstance(value, (int, float)) else value


@contextmanager
def _lowered_by(rule: GraphPass) -> Iterator[None]:
    """Within the block, Inductor lowers an operator by a rule, and by its own if the rule fails."""
    from torch._inductor import lowering

    table: dict[Any, Any] = lowering.lowerings
    target = operator_of(rule.operator)
    before, reporter = table.get(target), _Reporter(rule)
    make_fallback: Any = lowering.fallback_handler
    usual = make_fallback(target) if before is None else before

    def by_rule(*args: Any, **kwargs: Any) -> Any:
        def compute(*elements: Any) -> Any:
            result = rule.function(StockBody(), *elements, **kwargs)
            if result is None or isinstance(result, (int, float)):
                raise GraphPassError(NO_VALUE.format(type(result).__name__))
            return result

        made: Any = lowering.make_pointwise(compute)(*args)
        made.data.data.inner_fn_str()  # runs the rule
        return made

    lowered = lowering.register_lowering(target, broadcast=True)(by_rule)

    def with_fallback(*args: Any, **kwargs: Any) -> Any:
        try:
            return lowered(*args, **kwargs)
        except Exception as error:
            reporter.failed(error)
            return usual(*args, **kwargs)

    table[target] = with_fallback
    try:
        yield
    finally:
        if before is None:
            del table[target]
        else:
            table[target] = before


# ---------------------------------------------------------------- fusion


def _choices(rules: Sequence[GraphPass]) -> Any:
    """Returns Inductor's choices, changed by fusion rules."""
    from torch._inductor.choices import InductorChoices

    reporters = {rule.name: _Reporter(rule) for rule in rules}

    def decision(first: Any, second: Any) -> str | None:
        for rule in rules:
            try:
                answer = None if reporters[rule.name].has_failed else rule.function(_nest(first), _nest(second))
                if checked_decision(answer):
                    return str(answer)
            except Exception as error:
                reporters[rule.name].failed(error)
        return None

    def decided(usual: Callable[..., bool]) -> Any:
        def can_fuse(scheduler: Any, first: Any, second: Any, score: int) -> bool:
            asked = decision(first, second)
            return usual(scheduler, first, second, score) if asked is None else asked == "force_fuse"

        return staticmethod(can_fuse)

    names = ("can_fuse", "can_fuse_vertical", "can_fuse_horizontal")
    changed = {name: decided(getattr(InductorChoices, name)) for name in names}
    return type("ChoicesOfRules", (InductorChoices,), changed)()


def _nest(node: Any) -> LoopNest:
    """Returns what a rule may know of a node of Inductor's scheduler."""
    from torch._inductor.virtualized import V

    nodes = {origin.name for each in node.get_nodes() if each.node for origin in each.node.get_origins()}
    outer, inner = (tuple(each) if isinstance(each, (tuple, list)) else (each,) for each in node.group[1])
    reads = tuple(dep.name for dep in node.read_writes.reads)
    graph = "backward" if V.graph.is_backward else "forward"
    return LoopNest(graph, node.get_name(), frozenset(nodes), outer, inner, reads, tuple(node.get_buffer_names()))
