"""Runs the user's rules of lowering and fusion in stock torch.compile.

    lowering    replaces Inductor's lowering of the operator
    fusion      is asked twice: when a node is lowered that reads a value which is not in memory yet, since Inductor
                would compute that value in the node's own loop nest; and by Inductor's scheduler (`InductorChoices`)

`keep_apart` writes such a value to memory (`realize`, as Inductor does where many nodes read it).  The scheduler
asks about two loop nests only after it has found that they can be fused.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch

from compiler_core.config import GraphPass
from compiler_core.errors import GraphPassError
from compiler_core.tools.changes.user_changes import (
    NO_VALUE,
    NOT_USED,
    RULE_POINTS,
    LoopNest,
    checked_decision,
    operator_of,
    warn_of_pass,
    why_failed,
)


@contextmanager
def stock_rules(passes: Sequence[GraphPass]) -> Iterator[None]:
    """Within the block, what stock torch.compile compiles with Inductor follows the rules among `passes`."""
    inductor_lowering, fusion = ([each for each in passes if each.at == at] for at in RULE_POINTS)
    from compiler_core.torch_private import inductor_config as config
    from compiler_core.torch_private import inductor_V

    with ExitStack() as stack:
        for each in inductor_lowering:
            stack.enter_context(_lowered_by(each))
        if fusion:
            rules = _FusionRules(fusion)
            stack.enter_context(inductor_V.set_choices_handler(_choices(rules)))
            stack.enter_context(_kept_apart_when_lowered(rules))
            patch: Any = config.patch
            stack.enter_context(patch(aggressive_fusion=True))  # loop nests without common buffers are asked about, too
        yield


class _Reporter:
    """Warns of the first error of a rule."""

    def __init__(self, rule: GraphPass) -> None:
        self._rule, self.has_failed = rule, False

    def failed(self, error: Exception) -> None:
        if not self.has_failed:
            message = f"A graph pass was not applied: {self._rule.name}: {why_failed(error, self._rule)}\n  {NOT_USED}"
            warn_of_pass(message, self._rule)
        self.has_failed = True


# ---------------------------------------------------------------- lowering


class StockBody:
    """What a lowering rule gets as `body`: it applies Inductor's operations."""

    def op(self, op: str, *args: Any) -> Any:
        """Applies an operation; numbers are converted to the type of the loop nest."""
        from compiler_core.torch_private import OpsHandler, inductor_ops

        name = {"and": "logical_and", "or": "logical_or", "not": "logical_not", "div": "truediv"}.get(op, op)
        known = getattr(OpsHandler, name, None)
        if known is None:
            raise GraphPassError(f"Inductor has no operation {op}")
        if len(inspect.signature(known).parameters) - 1 != len(args):
            raise GraphPassError(f"{op} does not take {len(args)} arguments")
        return getattr(inductor_ops, name)(*(self._value(each) for each in args))

    def _value(self, value: Any) -> Any:
        from compiler_core.torch_private import inductor_ops

        return inductor_ops.constant(value, torch.float32) if isinstance(value, (int, float)) else value


@contextmanager
def _lowered_by(rule: GraphPass) -> Iterator[None]:
    """Within the block, Inductor lowers an operator by a rule, and by its own if the rule fails."""
    from compiler_core.torch_private import inductor_lowering

    table: dict[Any, Any] = inductor_lowering.lowerings
    target = operator_of(rule.operator)
    before, reporter = table.get(target), _Reporter(rule)
    make_fallback: Any = inductor_lowering.fallback_handler
    usual = make_fallback(target) if before is None else before

    def by_rule(*args: Any, **kwargs: Any) -> Any:
        def compute(*elements: Any) -> Any:
            result = rule.function(StockBody(), *elements, **kwargs)
            if result is None or isinstance(result, (int, float)):
                raise GraphPassError(NO_VALUE.format(type(result).__name__))
            return result

        made: Any = inductor_lowering.make_pointwise(compute)(*args)
        made.data.data.inner_fn_str()  # runs the rule
        return made

    lowered = inductor_lowering.register_lowering(target, broadcast=True)(by_rule)

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


class _FusionRules:
    """The fusion rules of one block; those that failed are not asked again."""

    def __init__(self, rules: Sequence[GraphPass]) -> None:
        self._rules = [(rule, _Reporter(rule)) for rule in rules]

    def decision(self, nests: Callable[[], tuple[LoopNest, LoopNest]]) -> str | None:
        """Returns the first answer of a rule that is not None; `nests` returns what it is asked about."""
        for rule, reporter in self._rules:
            try:
                answer = None if reporter.has_failed else checked_decision(rule.function(*nests()))
                if answer:
                    return answer
            except Exception as error:
                reporter.failed(error)
        return None


def _choices(rules: _FusionRules) -> Any:
    """Returns Inductor's choices, changed by fusion rules."""
    from compiler_core.torch_private import InductorChoices
    from compiler_core.torch_private import inductor_config as config

    patch: Any = config.patch

    def decided(usual: Callable[..., bool]) -> Any:
        def can_fuse(scheduler: Any, first: Any, second: Any, score: int) -> bool:
            asked = rules.decision(lambda: (_scheduled_nest(first), _scheduled_nest(second)))
            if asked is not None:
                return asked == "force_fuse"
            with patch(aggressive_fusion=False):
                return usual(scheduler, first, second, score)

        return staticmethod(can_fuse)

    names = ("can_fuse", "can_fuse_vertical", "can_fuse_horizontal")
    changed = {name: decided(getattr(InductorChoices, name)) for name in names}
    return type("ChoicesOfRules", (InductorChoices,), changed)()


@contextmanager
def _kept_apart_when_lowered(rules: _FusionRules) -> Iterator[None]:
    """Within the block, a value is written to memory before a node is lowered from which a rule keeps it apart."""
    from compiler_core.torch_private import GraphLowering, inductor_ir

    usual = GraphLowering.run_node

    def run_node(graph: Any, node: torch.fx.Node) -> object:
        for argument in node.all_input_nodes if node.op == "call_function" else ():
            box = graph.env.get(argument)
            loops = _not_in_memory(box)
            pair = functools.partial(_lowered_nests, graph, argument, loops, node)
            if loops is not None and rules.decision(pair) == "keep_apart":
                box.realize()
        return usual(graph, node)

    def _not_in_memory(value: Any) -> Any:
        while isinstance(value, (inductor_ir.TensorBox, inductor_ir.StorageBox, inductor_ir.BaseView)):
            value = value.data
        return value if isinstance(value, inductor_ir.Loops) else None

    with mock.patch.object(GraphLowering, "run_node", run_node):
        yield


def _scheduled_nest(node: Any) -> LoopNest:
    """Returns what a rule may know of a node of Inductor's scheduler."""
    from compiler_core.torch_private import inductor_V

    nodes = {origin.name for each in node.get_nodes() if each.node for origin in each.node.get_origins()}
    outer, inner = (tuple(each) if isinstance(each, (tuple, list)) else (each,) for each in node.group[1])
    reads = tuple(dep.name for dep in node.read_writes.reads)
    return LoopNest(
        _direction(inductor_V.graph),
        node.get_name(),
        frozenset(nodes),
        outer,
        inner,
        reads,
        tuple(node.get_buffer_names()),
    )


def _lowered_nests(graph: Any, argument: torch.fx.Node, loops: Any, node: torch.fx.Node) -> tuple[LoopNest, LoopNest]:
    """Returns what a rule may know of a value that is not in memory yet, and of the node that reads it."""
    direction, value = _direction(graph), node.meta.get("val")
    nodes = frozenset(origin.name for origin in loops.origins)
    inner = tuple(loops.get_reduction_size()) if loops.get_reduction_type() else ()
    reads = tuple(loops.get_read_names())
    first = LoopNest(direction, argument.name, nodes, tuple(loops.get_size()), inner, reads, (argument.name,))
    outer = tuple(value.shape) if isinstance(value, torch.Tensor) else ()
    reads = tuple(each.name for each in node.all_input_nodes)
    return first, LoopNest(direction, node.name, frozenset({node.name}), outer, (), reads, (node.name,))


def _direction(graph: Any) -> str:
    return "backward" if graph.is_backward else "forward"
