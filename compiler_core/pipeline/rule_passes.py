"""Applies the user's rules of lowering and fusion: passes with ``at="lowering"`` or ``at="fusion"``.

Lowering and fusion run once without the rules and once with them, and the record has the difference.  A rule that
raises, or whose result is not that of a rule, is reported and left out; fusions that would be wrong are never made.
"""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from compiler_core.config import GraphPass, Options
from compiler_core.errors import GraphPassError, UsageError
from compiler_core.hook.failures import report_failure
from compiler_core.loops import ir
from compiler_core.loops.fuse.rewriter import Decision, FusionRequests, FusionResult, node_names
from compiler_core.loops.lower import NotLowered, lower
from compiler_core.loops.lower.body import COMPUTE_TYPE, Body, Element, UserRule
from compiler_core.loops.lower.pointwise import load_as, promoted_types
from compiler_core.pipeline.graph_passes import why_failed
from compiler_core.records import Compile, Stage
from compiler_core.support.size_expr import Int
from compiler_core.torch_private import ELEMENTWISE_TYPE_PROMOTION_KIND as Promotion
from compiler_core.torch_private import OpOverload

RULE_POINTS = ("lowering", "fusion")
_UNNAMED = re.compile(r"\bv\d+\b")
NOT_USED = "The compiler decides without the rule: the results are right."
NO_VALUE = "it returned {}; a lowering rule returns a value, such as that of body.op(...)"
CHANGED, SAME, FAILED = "changed the program", "changed nothing", "failed"


@dataclass(frozen=True)
class LoopNest:
    """What a fusion rule knows of a loop nest."""

    graph: str
    """``forward`` or ``backward``."""
    name: str
    nodes: frozenset[str]
    """The names of the graph nodes that it computes."""
    outer: tuple[Int, ...]
    """The sizes of its outer indices."""
    inner: tuple[Int, ...]
    """The sizes that it reduces over, if any."""
    reads: tuple[str, ...]
    writes: tuple[str, ...]


class UserRules:
    """The rules of one compile for one of its graphs."""

    def __init__(self, which: str, compile_: Compile, options: Options) -> None:
        self._which, self._compile, self._options = which, compile_, options
        self._failed: set[str] = set()

    def lower(self, gm: fx.GraphModule, languages: ir.Languages) -> ir.Program:
        """Lowers a graph with the rules."""
        replayed = self._options.mode != "default"
        program, rules = lower(gm, self._which, languages, replayed), {}
        for each in self._at("lowering"):
            with self._compile.step("lower", f"pass {each.name}") as event:
                rules[each.operator] = UserRule(_pointwise(each.function), self._reporter(each, "lower"))
                changed = lower(gm, self._which, languages, replayed, rules)
                event.detail = self._record_change(each, program, changed)
            program = changed
        return program

    def fuse(self, fuse: Callable[[FusionRequests], FusionResult]) -> FusionResult:
        """Returns the result of `fuse` with the rules; `fuse` takes the requests of the user."""
        requests = FusionRequests(self._options.keep_apart, self._options.force_fuse)
        result = fuse(requests)
        for each in self._at("fusion"):
            with self._compile.step("fuse", f"pass {each.name}") as event:
                requests = FusionRequests(requests.keep_apart, requests.force_fuse, self._deciding(each, requests.rule))
                changed = fuse(requests)
                event.detail = self._record_change(each, result.program, changed.program)
            result = changed
        return result

    def _at(self, point: str) -> list[GraphPass]:
        return [each for each in self._options.passes if each.at == point]

    def _record_change(self, rule: GraphPass, before: ir.Program, after: ir.Program) -> str:
        """Records the difference of two programs, if there is one; returns what the rule did."""
        if rule.name in self._failed:
            return FAILED
        old, new = program_lines(before), program_lines(after)
        if old == new:
            return SAME
        lines = difflib.unified_diff(old, new, f"before {rule.name}", f"after {rule.name}", lineterm="")
        self._compile.artifact("passes", f"pass.{rule.name}.{self._which}", "text", "\n".join(lines) + "\n", [])
        return CHANGED

    def _reporter(self, rule: GraphPass, stage: Stage) -> Callable[[Exception], None]:
        """Returns a function that reports the first error of a rule."""

        def failed(error: Exception) -> None:
            if rule.name in self._failed or isinstance(error, NotLowered):
                return
            self._failed.add(rule.name)
            failure = GraphPassError(f"{rule.name}: {why_failed(error, rule)}")
            if any(known.message == str(failure) for known in self._compile.failures):  # in the forward
                return
            failure.__cause__ = error
            report_failure(self._compile, stage, failure, meaning=NOT_USED, strict=self._options.strict)

        return failed

    def _deciding(self, rule: GraphPass, earlier: Any) -> Callable[[ir.Loops, ir.Loops], Decision | None]:
        """Returns a function that asks `earlier` rules and then this one about two loop nests."""
        failed = self._reporter(rule, "fuse")

        def decide(first: ir.Loops, second: ir.Loops) -> Decision | None:
            answer = earlier(first, second) if earlier else None
            if answer is None and rule.name not in self._failed:
                try:
                    answer = checked_decision(rule.function(self._shown(first), self._shown(second)))
                except Exception as error:
                    failed(error)
            return answer

        return decide

    def _shown(self, loops: ir.Loops) -> LoopNest:
        nodes, accesses = frozenset(node_names(loops)), (tuple(loops.reads), tuple(loops.writes))
        return LoopNest(self._which, loops.name, nodes, loops.outer, loops.inner, *accesses)


def checked_decision(answer: Any) -> Decision | None:
    """Returns the answer of a fusion rule; raises GraphPassError if a fusion rule may not give it."""
    known = typing.get_args(Decision)
    if answer is not None and answer not in known:
        raise GraphPassError(f"it returned {answer!r}; a fusion rule returns {', '.join(map(repr, known))} or None")
    return typing.cast("Decision | None", answer)


def operator_of(name: str) -> OpOverload:
    """Returns the operator that a name such as ``aten.tanh.default`` means.

    Raises:
        UsageError: there is none.
    """
    found: Any = torch.ops
    try:
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError:
        found = None
    if not isinstance(found, OpOverload):
        raise UsageError(f"there is no operator {name}; the name of one is such as aten.tanh.default")
    return found


def _pointwise(function: Callable[..., Any]) -> Callable[..., None]:
    """Returns the lowering rule that stores what a user's function returns for the elements of the arguments."""

    def rule(body: Body, *args: Any, **kwargs: Any) -> None:
        if body.has_several_results:
            raise GraphPassError("the operator has several results; a lowering rule returns one")
        kind = body.out.dtype
        if kind is torch.bool:
            kind = promoted_types(Promotion.DEFAULT, args)[0]
        elements = [load_as(body, each, COMPUTE_TYPE.get(kind, kind)) for each in args]
        result = function(body, *elements, **kwargs)
        if not isinstance(result, Element):
            raise GraphPassError(NO_VALUE.format(type(result).__name__))
        body.store(result)

    return rule


def program_lines(program: ir.Program) -> list[str]:
    """Returns a program as text: loops as in the record, and a line for each call of PyTorch.

    Unnamed values are numbered in each loop nest, so that a change of one does not change the others.
    """
    lines: list[str] = []
    for step in program.steps:
        if isinstance(step, ir.Loops):
            lines += _renumbered(step.text()).splitlines()
        else:
            lines.append(f"{step.name}: call {step.target}")
    return lines


def _renumbered(text: str) -> str:
    numbers = {name: f"v{n}" for n, name in enumerate(dict.fromkeys(_UNNAMED.findall(text)))}
    return _UNNAMED.sub(lambda match: numbers[match[0]], text)
