"""What the user changes in a compile: passes of graphs, rules of lowering and fusion, and edited texts.

    captured   after capture: the graph of the Python program, whose operations are functions and methods of PyTorch
    joint      before the partition: forward and backward as one graph of ATen operators
    forward    after the partition, before the loops: the forward graph
    backward   likewise, the backward graph

A pass gets a copy of the graph.  It returns another graph module, or None if it changed the copy.  The result must have
the same inputs, and outputs of the same shapes, dtypes and devices; but for captured graphs, new nodes must call ATen
operators that write to none of their arguments.  If the pass raises, or its result breaks these rules, the graph before
it is used and a warning says why.

A changed graph is recorded with links to the graph before: new nodes are linked to the nodes that are gone at the same
place, that is between the same neighbours.

    lowering   one operator: a function that computes an element
    fusion     two loop nests: a function that decides whether they become one kernel

Lowering and fusion run once without the rules and once with them, and the record has the difference.  A rule that
raises, or whose result is not that of a rule, is reported and left out; fusions that would be wrong are never made."""

from __future__ import annotations

import difflib
import re
import traceback
import typing
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from compiler_core.codegen.source import KernelSource
from compiler_core.codegen.wrapper.writer import Wrapper
from compiler_core.config import GraphPass, Options, PassPoint
from compiler_core.errors import GraphPassError, GraphPassWarning, UsageError
from compiler_core.hook.failures import only_recorded, report_failure
from compiler_core.loops import ir
from compiler_core.loops.fuse.rewriter import Decision, FusionRequests, FusionResult, node_names
from compiler_core.loops.lower import NotLowered
from compiler_core.loops.lower.body import COMPUTE_TYPE, Body, Element, UserRule
from compiler_core.loops.lower.pointwise import load_as, promoted_types
from compiler_core.loops.schedule.script import Schedule
from compiler_core.records import Compile, Stage
from compiler_core.support.fx_graphs import copy_graph, differs, record_graph
from compiler_core.support.size_expr import Int
from compiler_core.support.torch_state import kept_random_state
from compiler_core.tools.changes.edited_texts import (
    apply_edits,
    edited_schedules,
    with_edited_loops,
    with_edited_wrapper,
)
from compiler_core.tools.changes.pass_checks import checked, new_nodes
from compiler_core.torch_private import ELEMENTWISE_TYPE_PROMOTION_KIND as Promotion
from compiler_core.torch_private import OpOverload

NOT_APPLIED = "The graph before the pass is used: the results are right."
_STAGES: dict[PassPoint, Stage] = {
    "captured": "capture",
    "joint": "joint",
    "forward": "partition",
    "backward": "partition",
}
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


class UserChanges:
    """The changes of one compile.  The stages call each method with what they made, and go on with what it returns."""

    def __init__(self, compile_: Compile, options: Options) -> None:
        self._compile, self._options = compile_, options
        self._failed: set[str] = set()

    def graph(self, gm: fx.GraphModule, at: PassPoint) -> fx.GraphModule:
        """Returns `gm` after all passes that run at this point, each of which is recorded if it changed it."""
        is_recorded = at != "joint"  # that one is recorded at the end, once simplified
        for each in self._at(at):
            changed = self._run_pass(gm, each)
            if changed is gm:
                continue
            if not is_recorded:
                with only_recorded(self._compile, _STAGES[at], f"the graph before {each.name}", self._options.strict):
                    record_graph(self._compile, "passes", f"before.{each.name}", gm)
                is_recorded = True
            record_change(self._compile, gm, changed, f"pass.{each.name}")
            gm = changed
        return gm

    def _run_pass(self, gm: fx.GraphModule, graph_pass: GraphPass) -> fx.GraphModule:
        """Returns the graph after a pass, or `gm` itself if the pass failed or changed nothing."""
        stage = _STAGES[graph_pass.at]
        copied = copy_graph(gm)
        try:
            with self._compile.step(stage, f"pass {graph_pass.name}") as event, kept_random_state():
                result = graph_pass.function(copied)
                changed = checked(copied if result is None else result, gm, graph_pass.at)
                same = not differs(changed, gm)
                event.detail = SAME if same else "changed the graph"
        except Exception as error:
            self._report(error, graph_pass, stage, NOT_APPLIED)
            return gm
        return gm if same else changed

    def lowered(
        self, program: ir.Program, which: str, lower: Callable[[dict[str, UserRule]], ir.Program]
    ) -> ir.Program:
        """Returns the program that `lower` makes of a graph with the rules; `program` is made without them."""
        rules: dict[str, UserRule] = {}
        for each in self._at("lowering"):
            with self._compile.step("lower", f"pass {each.name}") as event, kept_random_state():
                rules[each.operator] = UserRule(_pointwise(each.function), self._reporter(each, "lower"))
                changed = lower(rules)
                event.detail = self._record_rule(each, which, program, changed)
            program = changed
        return program

    def fused(
        self, result: FusionResult, which: str, requests: FusionRequests, fuse: Callable[[FusionRequests], FusionResult]
    ) -> FusionResult:
        """Returns the result of `fuse` with the rules besides `requests`; `result` is that without them."""
        for each in self._at("fusion"):
            with self._compile.step("fuse", f"pass {each.name}") as event, kept_random_state():
                decide = self._deciding(each, which, requests.rule)
                requests = FusionRequests(requests.keep_apart, requests.force_fuse, decide)
                changed = fuse(requests)
                event.detail = self._record_rule(each, which, result.program, changed.program)
            result = changed
        return result

    def loops(self, program: ir.Program) -> ir.Program:
        """Returns the program with the edited loop nests; raises UsageError if one cannot replace the original."""
        return with_edited_loops(program, self._options.edits)

    def schedules(self, program: ir.Program) -> dict[str, Schedule]:
        """Returns the schedules that the user wrote, by kernel; raises UsageError if one is not legal."""
        return edited_schedules(program, self._options.edits)

    def kernels(self, code: KernelSource) -> KernelSource:
        """Returns the source with the edited kernels."""
        return apply_edits(code, self._options.edits)

    def wrapper(self, wrapper: Wrapper) -> Wrapper:
        """Returns the wrapper, or its edited text."""
        return with_edited_wrapper(wrapper, self._options.edits)

    def _at(self, point: str) -> list[GraphPass]:
        return [each for each in self._options.passes if each.at == point]

    def _record_rule(self, rule: GraphPass, which: str, before: ir.Program, after: ir.Program) -> str:
        """Records the difference of two programs, if there is one; returns what the rule did."""
        if rule.name in self._failed:
            return FAILED
        old, new = program_lines(before), program_lines(after)
        if old == new:
            return SAME
        lines = difflib.unified_diff(old, new, f"before {rule.name}", f"after {rule.name}", lineterm="")
        self._compile.artifact("passes", f"pass.{rule.name}.{which}", "text", "\n".join(lines) + "\n", [])
        return CHANGED

    def _reporter(self, rule: GraphPass, stage: Stage) -> Callable[[Exception], None]:
        """Returns a function that reports the first error of a rule."""

        def failed(error: Exception) -> None:
            if rule.name in self._failed or isinstance(error, NotLowered):
                return
            self._failed.add(rule.name)
            self._report(error, rule, stage, NOT_USED)

        return failed

    def _report(self, error: Exception, graph_pass: GraphPass, stage: Stage, meaning: str) -> None:
        failure = GraphPassError(f"{graph_pass.name}: {why_failed(error, graph_pass)}")
        failure.__cause__ = error
        is_known = graph_pass.at in RULE_POINTS and any(f.message == str(failure) for f in self._compile.failures)
        if not is_known:  # of a rule, in the forward
            report_failure(self._compile, stage, failure, meaning=meaning, strict=self._options.strict)

    def _deciding(self, rule: GraphPass, which: str, earlier: Any) -> Callable[[ir.Loops, ir.Loops], Decision | None]:
        """Returns a function that asks `earlier` rules and then this one about two loop nests."""
        failed = self._reporter(rule, "fuse")

        def shown(loops: ir.Loops) -> LoopNest:
            nodes, accesses = frozenset(node_names(loops)), (tuple(loops.reads), tuple(loops.writes))
            return LoopNest(which, loops.name, nodes, loops.outer, loops.inner, *accesses)

        def decide(first: ir.Loops, second: ir.Loops) -> Decision | None:
            answer = earlier(first, second) if earlier else None
            if answer is None and rule.name not in self._failed:
                try:
                    answer = checked_decision(rule.function(shown(first), shown(second)))
                except Exception as error:
                    failed(error)
            return answer

        return decide


def why_failed(error: Exception, graph_pass: GraphPass) -> str:
    """Returns the text of the error of a pass; unless we raised it, with its type and the line of the pass."""
    if isinstance(error, GraphPassError):
        return str(error)
    text = f"{type(error).__name__}: {error}"
    filename = getattr(getattr(graph_pass.function, "__code__", None), "co_filename", None)
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == filename]
    return f"{text}  (line {own[-1].lineno} of the pass: {own[-1].line})" if own and own[-1].line else text


def warn_of_pass(message: str, graph_pass: GraphPass) -> None:
    """Warns at the line where the function of a pass is defined."""
    code = getattr(graph_pass.function, "__code__", None)
    where = (code.co_filename, code.co_firstlineno) if code else ("<graph pass>", 1)
    warnings.warn_explicit(message, GraphPassWarning, *where)


def record_change(compile_: Compile, before: fx.GraphModule, after: fx.GraphModule, name: str) -> None:
    """Records `after` as an artifact called `name`, with links to the nodes of `before`."""
    compile_.changes.append(name)
    with only_recorded(compile_, "backend", f"the graph after {name}"):
        _link(after.graph, before.graph, name)
        record_graph(compile_, "passes", name, after)


def _link(after: fx.Graph, before: fx.Graph, name: str) -> None:
    """Links the nodes of both graphs: equal ones, and new ones to those that were removed at the same place."""
    kept = {n.name: n for n in before.nodes}
    new = set(new_nodes(after, before)) - {n for n in after.nodes if n.name in kept}
    removed = set(before.nodes) - {kept[n.name] for n in after.nodes if n.name in kept}
    places = [(group, _neighbours(group)) for group in _connected(removed)]
    for node in after.nodes:
        if node.name in kept:
            node.meta = {**node.meta, **_origin([kept[node.name]], name)}
    for group in _connected(new):
        around = _neighbours(group)
        best = max(places, key=lambda place: len(place[1] & around), default=(set(), set()))
        for node in group:
            node.meta.update(_origin(best[0] if best[1] & around else (), name))


def _origin(nodes: Iterable[fx.Node], name: str) -> dict[str, Any]:
    items = tuple(sorted(n.meta["item"] for n in nodes if "item" in n.meta))
    return {"origin": items, "rule": name}


def _connected(nodes: set[fx.Node]) -> list[set[fx.Node]]:
    """Returns the connected groups of `nodes`."""
    groups, left = [], set(nodes)
    while left:
        group, todo = set(), [left.pop()]
        while todo:
            node = todo.pop()
            group.add(node)
            near = left.intersection((*node.all_input_nodes, *node.users))
            left -= near
            todo += near
        groups.append(group)
    return groups


def _neighbours(group: set[fx.Node]) -> set[str]:
    """Returns the names of the nodes around a group."""
    return {n.name for node in group for n in (*node.all_input_nodes, *node.users)} - {n.name for n in group}


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
