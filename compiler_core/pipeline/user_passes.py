"""Runs the user's passes: functions that change a graph, and rules of lowering and fusion.

    captured   after capture: the graph of the Python program, whose operations are functions and methods of PyTorch
    joint      before the partition: forward and backward as one graph of ATen operators
    forward    after the partition, before the loops: the forward graph
    backward   likewise, the backward graph

A pass gets a copy of the graph.  It returns another graph module, or None if it changed the copy.  The result must have
the same inputs, and outputs of the same shapes, dtypes and devices; but for captured graphs, new nodes must call ATen
operators that write to none of their arguments.  If the pass raises, or its result breaks these rules, the graph before
it is used and a warning says why.

    lowering   one operator: a function that computes an element
    fusion     two loop nests: a function that decides whether they become one kernel

Lowering and fusion run once without the rules and once with them, and the record has the difference.  A rule that
raises, or whose result is not that of a rule, is reported and left out; fusions that would be wrong are never made."""

from __future__ import annotations

import contextlib
import difflib
import operator
import re
import traceback
import typing
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from compiler_core.backends.user_changes import differs, new_nodes, record_change
from compiler_core.config import GraphPass, Options, PassPoint
from compiler_core.errors import GraphPassError, GraphPassWarning, UsageError
from compiler_core.hook.failures import only_recorded, report_failure
from compiler_core.loops import ir
from compiler_core.loops.fuse.rewriter import Decision, FusionRequests, FusionResult, node_names
from compiler_core.loops.lower import NotLowered, lower
from compiler_core.loops.lower.body import COMPUTE_TYPE, Body, Element, UserRule
from compiler_core.loops.lower.pointwise import load_as, promoted_types
from compiler_core.records import Compile, Stage
from compiler_core.support.fx_graphs import copy_graph, record_graph
from compiler_core.support.size_expr import Int
from compiler_core.support.tensors import tensors_in
from compiler_core.torch_private import ELEMENTWISE_TYPE_PROMOTION_KIND as Promotion
from compiler_core.torch_private import FakeTensor, OpOverload, OpOverloadPacket, jit_resolve_packet, tree_leaves

NOT_APPLIED = "The graph before the pass is used: the results are right."
_STAGES: dict[PassPoint, Stage] = {
    "captured": "capture",
    "joint": "joint",
    "forward": "partition",
    "backward": "partition",
}


def run_passes(gm: fx.GraphModule, at: PassPoint, compile_: Compile, options: Options) -> fx.GraphModule:
    """Returns `gm` after all passes of `options` that run at this point, each of which is recorded if it changed it."""
    is_recorded = at != "joint"  # that one is recorded at the end, once simplified
    for each in options.passes:
        changed = _run_pass(gm, each, compile_, options.strict) if each.at == at else gm
        if changed is gm:
            continue
        if not is_recorded:
            with only_recorded(compile_, _STAGES[at], f"the graph before {each.name}", options.strict):
                record_graph(compile_, "passes", f"before.{each.name}", gm)
            is_recorded = True
        record_change(compile_, gm, changed, f"pass.{each.name}")
        gm = changed
    return gm


def _run_pass(gm: fx.GraphModule, graph_pass: GraphPass, compile_: Compile, strict: bool) -> fx.GraphModule:
    """Returns the graph after a pass, or `gm` itself if the pass failed or changed nothing."""
    stage = _STAGES[graph_pass.at]
    copied = copy_graph(gm)
    try:
        with compile_.step(stage, f"pass {graph_pass.name}") as event:
            result = graph_pass.function(copied)
            changed = checked(copied if result is None else result, gm, graph_pass.at)
            same = not differs(changed, gm)
            event.detail = "changed nothing" if same else "changed the graph"
    except Exception as error:
        failure = GraphPassError(f"{graph_pass.name}: {why_failed(error, graph_pass)}")
        failure.__cause__ = error
        report_failure(compile_, stage, failure, meaning=NOT_APPLIED, strict=strict)
        return gm
    return gm if same else changed


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


# ---------------------------------------------------------------- the rules


def checked(result: Any, before: fx.GraphModule, at: PassPoint) -> fx.GraphModule:
    """Returns the result of a pass with the values of its nodes; raises GraphPassError if it breaks a rule."""
    if not isinstance(result, fx.GraphModule):
        raise GraphPassError(f"it returned {type(result).__name__}, not a GraphModule or None")
    try:
        result.graph.lint()
    except RuntimeError as error:
        raise GraphPassError(f"the graph is not well formed: {error}") from error
    _check_inputs(result.graph, before.graph)
    new = new_nodes(result.graph, before.graph)
    for node in new:
        _check_call(node, at)
    _compute_values(result, new)
    _check_outputs(result.graph, before.graph, at)
    result.recompile()
    return result


def _check_inputs(after: fx.Graph, before: fx.Graph) -> None:
    names = [", ".join(n.name for n in graph.find_nodes(op="placeholder")) for graph in (before, after)]
    if names[0] != names[1]:
        raise GraphPassError(f"the inputs must stay {names[0] or 'none'}; they are {names[1] or 'none'} now")


def _check_call(node: fx.Node, at: PassPoint) -> None:
    """Checks the operation of a new node; names the overload that a packet such as ``torch.ops.aten.add`` means."""
    if node.op == "call_module":
        raise GraphPassError(f"{node.name} calls a module; call its function of torch.nn.functional")
    if at == "captured" or node.op == "get_attr" or node.target is operator.getitem:
        return
    target: Any = node.target
    if isinstance(target, OpOverloadPacket):
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
        node.target = target = getattr(target, jit_resolve_packet(target._qualified_op_name, *args, **kwargs))
    if not isinstance(target, OpOverload):
        name = getattr(target, "__name__", target)
        raise GraphPassError(f"{node.name} calls {name}; in this graph, call operators of torch.ops.aten")
    if target._schema.is_mutable:
        raise GraphPassError(f"{node.name} calls {target}, which writes to its argument; call the one that does not")


def _compute_values(gm: fx.GraphModule, new: Sequence[fx.Node]) -> None:
    """Computes ``meta["val"]`` of new nodes, and of those that depend on them, with fake tensors."""
    values = [value for n in gm.graph.nodes for value in tensors_in(n.meta.get("val"))]
    fake_mode = next((value.fake_mode for value in values if isinstance(value, FakeTensor)), None)
    affected = set(new)
    for node in gm.graph.nodes:
        if node in affected or (node.op.startswith("call") and affected.intersection(node.all_input_nodes)):
            affected.add(node)
            try:
                with fake_mode or contextlib.nullcontext():
                    node.meta["val"] = _value(gm, node, fake_mode)
            except Exception as error:
                raise GraphPassError(f"{node.name} cannot run: {type(error).__name__}: {error}") from error


def _value(gm: fx.GraphModule, node: fx.Node, fake_mode: Any) -> Any:
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    if node.op == "get_attr":
        value = operator.attrgetter(str(node.target))(gm)
        return fake_mode.from_tensor(value) if fake_mode and isinstance(value, torch.Tensor) else value
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    return node.target(*args, **kwargs)  # type: ignore[operator]


def _check_outputs(after: fx.Graph, before: fx.Graph, at: PassPoint) -> None:
    olds, news = _flat_outputs(before), _flat_outputs(after)
    if len(olds) != len(news):
        raise GraphPassError(f"the graph must return {len(olds)} values; it returns {len(news)} now")
    is_half = at in ("forward", "backward")
    for number, (old, new) in enumerate(zip(olds, news, strict=True)):
        kinds = [_kind(each, with_strides=is_half) for each in (old, new)]
        if kinds[0] != kinds[1]:
            raise GraphPassError(f"output {number} must stay {kinds[0]}; it is {kinds[1]} now")
    for old, new in zip(olds, news, strict=True):
        if is_half and isinstance(new, fx.Node) and new is not old:
            new.meta["role"] = old.meta.get("role")
            if at == "forward" and new.name != old.name:  # the backward takes saved values by their names
                _take_name(new, old.name, is_free=new.op != "placeholder" and news.count(new) == 1)


def _flat_outputs(graph: fx.Graph) -> list[Any]:
    return list(tree_leaves(graph.output_node().args[0]))


def _kind(output: Any, with_strides: bool) -> str:
    value = output.meta.get("val") if isinstance(output, fx.Node) else output
    if not isinstance(value, torch.Tensor):
        return f"a {type(value).__name__}" if isinstance(output, fx.Node) else repr(value)
    strides = f" with strides {list(value.stride())}" if with_strides else ""
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)} on {value.device}{strides}"


def _take_name(node: fx.Node, name: str, is_free: bool) -> None:
    """Renames an output of the forward to the name of the one that it replaces."""
    taken = next((n for n in node.graph.nodes if n.name == name), None)
    if not is_free or (taken is not None and taken.users):
        raise GraphPassError(f"output {name} must remain a separate node, not {node.name}")
    if taken is not None:
        node.graph.erase_node(taken)
    node.name = name


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
