"""Finds the first operation of a call whose value a compiler computes otherwise than plain PyTorch.

A captured graph is compiled again so that it returns the value of each of its operations.  The first one, in the order
of the graph, that differs by more than rounding is wrong although what it reads is right; a graph that ends there
confirms it.  Where a fault needs that a value is not returned, as in a fused kernel, graphs end at each in turn.

The backward is looked at in the same way: zeros are added to what each operation reads, whose gradients are those that
the backward of the operation returns.  The last operation with a wrong one, which the backward computes first, is
named.
"""

from __future__ import annotations

import functools
import linecache
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx as fx

from compiler_core.api.compile import compile as compile_
from compiler_core.errors import UsageError
from compiler_core.records.capture import library_of
from compiler_core.support.fx_graphs import node_text
from compiler_core.tools.accuracy import InFloat64, is_large, relative_error, worst_element
from compiler_core.tools.editing.kernel_trial import tolerance
from compiler_core.tools.questions.queries import WRONG
from compiler_core.tools.recording import record
from compiler_core.tools.reproduce.break_reproducer import Engine
from compiler_core.tools.reproduce.reproducer import compiled_graph
from compiler_core.torch_private import dynamo_config, inductor_config, tree_leaves

_INEXACT = (
    "\n  In float64 it is {}: plain PyTorch's error is large, too, so the precision of the program is too low here"
)
_FRAME = re.compile(r'^ *File "(.+)", line (\d+), in |^(\S.*):(\d+) in ', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first operation of a call whose value differs."""

    operation: str
    """As the captured graph has it: ``z = y.tanh()``."""
    filename: str
    lineno: int
    """The user's line; 0 if it is not known."""
    line: str
    index: list[int]
    """The element with the greatest difference."""
    value: str
    """What the compiled code computes there, and what plain PyTorch does (`expected`)."""
    expected: str
    error: float | None
    """The greatest difference, relative to the greatest expected value; None: only one has a NaN or an infinity."""
    gradient_of: str = ""
    """If it is the backward of the operation that differs: what it reads of which the gradient does."""
    changed_input: str = ""
    """If it is not the result of the operation that differs: the input of the graph that it changes."""
    exact: str = ""
    """What it is in float64, if plain PyTorch's error is large, too: the program loses precision, as where it subtracts
    nearly equal numbers, and the compiler may be right."""

    def __str__(self) -> str:
        of = f"the gradient of {self.gradient_of}: " if self.gradient_of else ""
        of = f"the input {self.changed_input} afterwards: " if self.changed_input else of
        at = f" at {self.index}" if self.index else ""
        error = "not finite" if self.error is None else f"{self.error:.1e} of the largest element"
        where = f"{self.filename}:{self.lineno}: {self.line}" if self.lineno else "(the line is not known)"
        values = f"{of}{self.value} in place of {self.expected}{at}"
        exact = _INEXACT.format(self.exact) if self.exact else ""
        return f"{where}\n  {self.operation}\n  {values}; the difference is {error}{exact}"


def first_difference(
    fn: Callable[..., Any], *args: Any, engine: Engine = "torch", backend: str | Callable[..., Any] | None = None
) -> FirstDifference | None:
    """Returns the first operation of a call whose value differs from plain PyTorch's by more than rounding.

    If there is none, the first one of the backward, in its order; None if there is none there either.  Random numbers
    are PyTorch's.

    Args:
        fn: the function or module, not compiled.
        args: its arguments.
        engine: ``torch``: stock `torch.compile`; ``core``: this compiler.
        backend: as for `torch.compile` and `compile`; None for the engine's own.

    Raises:
        UsageError: results differ, but no operation by itself does, or compiled code raised.

    Example::

        print(compiler_core.first_difference(model, x))
    """
    graphs = KeptGraphs()
    with record():
        (compile_ if engine == "core" else torch.compile)(fn, backend=graphs.backend(backend), dynamic=False)(*args)
    return first_difference_of(graphs, engine)


class KeptGraphs:
    """The captured graphs of calls, which run as plain PyTorch, with copies of their first inputs."""

    def __init__(self) -> None:
        self.found: list[tuple[fx.GraphModule, list[Any], Any]] = []
        """Each with the backend that it is for; None: the engine's own."""

    def backend(self, of: Any = None) -> Callable[..., Any]:
        """Returns a backend for `torch.compile` or `compile` that keeps what is captured; `of`: the one to look at."""

        def keeps_graph(gm: fx.GraphModule, _: Any) -> Callable[..., Any]:
            kept: list[fx.GraphModule] = []

            def run(*inputs: Any) -> Any:
                if not kept:
                    kept.append(gm)
                    self.found.append((gm, list(map(_copy, inputs)), of))
                return gm.forward(*inputs)

            return run

        return keeps_graph


def first_difference_of(graphs: KeptGraphs, engine: Engine) -> FirstDifference | None:
    """Returns what `first_difference` does, for the graphs of calls that were made.

    Raises:
        UsageError: results differ, but no operation by itself does, or compiled code raised.
    """
    # a float argument is the item of a tensor in a captured graph: the graph has to stay whole
    with inductor_config.patch(fallback_random=True), dynamo_config.patch(capture_scalar_outputs=True):
        for gm, inputs, backend in graphs.found:
            runner = functools.partial(_values, inputs=inputs, engine=engine, backend=backend)
            try:
                with torch.no_grad():
                    found = _in_graph(gm, runner)
                if found is None and any(map(_is_differentiated, inputs)):
                    with torch.enable_grad():
                        found = _in_backward(gm, inputs, engine, backend)
            except _CompiledRaisedError as error:
                with torch.no_grad():
                    raise UsageError(f"{error}{_first_raising(gm, runner)}") from error.__cause__
            if found is not None:
                return found
    return None


class _CompiledRaisedError(Exception):
    """A graph raised when it was compiled or ran compiled."""


@contextmanager
def _running(is_compiled: bool) -> Iterator[None]:
    """Context manager around the call of a graph."""
    try:
        yield
    except Exception as error:
        if not is_compiled:
            raise
        text = " ".join(str(error).strip().partition("\n\n")[0].split())
        raise _CompiledRaisedError(f"the compiled graph raised {type(error).__name__}: {text}") from error


def _first_raising(gm: fx.GraphModule, values: _Values) -> str:
    """Returns the first operation up to which the graph raises, as an addition to a message; empty if it is none."""
    for node in _operations(gm):
        try:
            values(_ending_at(gm, [node]), True)
        except _CompiledRaisedError:
            filename, lineno, line = _users_line(node)
            where = f" ({filename}:{lineno}: {line})" if lineno else ""
            return f"; the first operation with which it does is `{node_text(node)}`{where}"
    return ""


def _operations(gm: fx.GraphModule) -> list[fx.Node]:
    return [node for node in gm.graph.nodes if node.op.startswith(("call_", "get_attr"))]


def _copy(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


def _is_differentiated(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


_Values = Callable[..., list[list[Any]]]
"""Runs a graph, compiled or not; returns for each result the tensors in it, and at last the inputs afterwards."""


def _in_graph(gm: fx.GraphModule, values: _Values) -> FirstDifference | None:
    nodes = _operations(gm)
    whole = _ending_at(gm, nodes)
    *results, inputs = values(whole, True)
    *expected, right_inputs = values(whole, False)
    differing = [n for n, found, right in zip(nodes, results, expected, strict=True) if _differ([found], [right])]
    is_right = not differing and not _differ([inputs], [right_inputs])
    if is_right and not _differ(values(gm, True), values(gm, False)):
        return None
    # a later operation may have changed the value in place, so each is looked at as the last one, too
    for node in [*differing, *(each for each in nodes if each not in differing)]:
        if found := _at(node, _ending_at(gm, [node]), values):
            return found
    raise UsageError("results of the graph differ, but no operation by itself does")


def _at(node: fx.Node, gm: fx.GraphModule, values: _Values) -> FirstDifference | None:
    """Returns the difference in an operation, which a graph ends at."""
    (found, inputs), (right, right_inputs) = values(gm, True), values(gm, False)
    for at, (value, expected) in enumerate(zip(found, right, strict=True)):
        if _differ([[value]], [[expected]]):
            difference = _difference(node, value, expected)
            if _differ(values(gm, False, seed=1)[:1], [right]):
                return difference  # random numbers are others in float64
            return replace(difference, exact=_exact(value, expected, values(gm, False, in_float64=True)[0][at]))
    names = [each.name for each in gm.graph.find_nodes(op="placeholder")]
    for name, value, expected in zip(names, inputs, right_inputs, strict=True):
        if isinstance(value, torch.Tensor) and _differ([[value]], [[expected]]):
            return replace(_difference(node, value, expected), changed_input=name)
    return None


def _exact(value: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor) -> str:
    """Returns the exact value of the element with the greatest difference; empty if plain PyTorch's error is small, or
    that of the compiled code is much greater."""
    errors = [relative_error(each, exact) for each in (value, expected) if each.shape == exact.shape]
    if not is_large(errors[-1] if errors else 0.0, expected) or len(errors) < 2:
        return ""
    if None not in errors and errors[0] > WRONG * errors[1]:  # type: ignore[operator]
        return ""
    index, _, _ = worst_element(value, expected)
    return f"{float(exact[tuple(index)]):.9g}" if index or not exact.dim() else ""


def _difference(node: fx.Node, value: torch.Tensor, expected: torch.Tensor) -> FirstDifference:
    is_alike = value.shape == expected.shape
    index, one, other = worst_element(value, expected) if is_alike else ([], _type(value), _type(expected))
    error = relative_error(value, expected) if is_alike else None
    return FirstDifference(node_text(node), *_users_line(node), index, one, other, error)


def _users_line(node: fx.Node) -> tuple[str, int, str]:
    """Returns file, number and text of the innermost line of a node's stack, in stock's form or ours, that is not a
    library's; the number is 0 if none is known."""
    stack = str(node.meta.get("stack_trace") or "")
    frames = [(name or other, int(number or own)) for name, number, other, own in _FRAME.findall(stack)]
    own_frames = [each for each in frames if not library_of(each[0])]
    filename, lineno = (own_frames or frames or [("", 0)])[-1]
    return filename, lineno, linecache.getline(filename, lineno).strip()


def _type(value: torch.Tensor) -> str:
    return f"{value.dtype}{list(value.shape)}"


def _differ(found: list[list[Any]], right: list[list[Any]]) -> bool:
    for value, expected in zip(_flat(found), _flat(right), strict=True):
        if not isinstance(value, torch.Tensor):  # an input that is a number
            continue
        if value.shape != expected.shape or value.dtype != expected.dtype:
            return True
        error = relative_error(value, expected)
        if error is None or error > tolerance(expected.dtype):
            return True
    return False


def _flat(values: list[list[Any]]) -> list[Any]:
    return [each for group in values for each in group]


def _ending_at(gm: fx.GraphModule, nodes: Sequence[fx.Node]) -> fx.GraphModule:
    """Returns the graph up to the last of some nodes, which returns their values."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in gm.graph.nodes:
        if node.op != "output":
            copies[node] = graph.node_copy(node, copies.__getitem__)
        if node in nodes[-1:]:
            break
    inputs = [node for node in gm.graph.nodes if node.op == "placeholder" and node not in copies]
    for node in inputs:  # a graph has all of its inputs, also those that are read later
        copies[node] = graph.node_copy(node)
    graph.output(tuple(copies[node] for node in nodes))
    return fx.GraphModule(gm, graph)


def _values(
    gm: fx.GraphModule,
    is_compiled: bool,
    inputs: Sequence[Any],
    engine: Engine,
    backend: Any,
    in_float64: bool = False,
    seed: int = 0,
) -> list[list[Any]]:
    call = compiled_graph(gm, engine, backend) if is_compiled else gm
    torch.manual_seed(seed)
    given = [each.clone() if isinstance(each, torch.Tensor) else each for each in inputs]
    with _running(is_compiled), InFloat64() if in_float64 else nullcontext():  # type: ignore[no-untyped-call]
        returned = call(*given)
    results = [[each for each in tree_leaves(result) if isinstance(each, torch.Tensor)] for result in returned]
    return [*results, given]


# ---- the backward ------------------------------------------------------------------------------


class _Differentiated(fx.Interpreter):
    """Runs a graph, and keeps the zeros for each value that has a gradient."""

    def __init__(self, gm: fx.GraphModule) -> None:
        super().__init__(gm)
        self.zeros: dict[fx.Node, torch.Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if _is_differentiated(value):
            self.zeros[n] = torch.zeros_like(value)
        return value


def _in_backward(gm: fx.GraphModule, inputs: Sequence[Any], engine: Engine, backend: Any) -> FirstDifference | None:
    edges, probed, zeros = _probed(gm, inputs)

    def gradients(of: fx.GraphModule, given: Sequence[Any], is_compiled: bool) -> list[torch.Tensor]:
        with _running(is_compiled):
            return _gradients(compiled_graph(of, engine, backend) if is_compiled else of, given)

    with_zeros = [*inputs, *zeros]
    found, right = (gradients(probed, with_zeros, each)[-len(zeros) or None :] for each in (True, False))
    for (node, read), value, expected in reversed(list(zip(edges, found, right, strict=False))):
        if _differ([[value]], [[expected]]):
            return replace(_difference(node, value, expected), gradient_of=read.name)
    if _differ([gradients(gm, inputs, True)], [gradients(gm, inputs, False)]):
        raise UsageError("gradients of the graph differ, but those of no operation by itself do")
    return None


def _probed(
    gm: fx.GraphModule, inputs: Sequence[Any]
) -> tuple[list[tuple[fx.Node, fx.Node]], fx.GraphModule, list[torch.Tensor]]:
    """Returns each operation with each value that it reads and that has a gradient; the graph in which zeros, which are
    further inputs, are added to these values; and the zeros, in the order of the operations.

    There are none in a graph that changes values in place, since other memory would be changed.
    """
    torch.manual_seed(0)
    interpreter = _Differentiated(gm)
    interpreter.run(*(each.clone() if isinstance(each, torch.Tensor) else each for each in inputs))
    calls = [node for node in gm.graph.nodes if node.op.startswith("call_")]
    is_changed = any(_changes_in_place(node) for node in calls)
    edges = [(node, read) for node in calls for read in node.all_input_nodes if read in interpreter.zeros]
    edges = [] if is_changed else edges
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in gm.graph.find_nodes(op="placeholder"):
        copies[node] = graph.node_copy(node)
    probes = {edge: graph.placeholder(f"zeros_{number}") for number, edge in enumerate(edges)}
    for node in gm.graph.nodes:
        if node in copies:
            continue
        read = {each: graph.call_function(torch.add, (copies[each], probes[node, each]))
                if (node, each) in probes else copies[each] for each in node.all_input_nodes}  # fmt: skip
        copies[node] = graph.node_copy(node, read.__getitem__)
    zeros = [interpreter.zeros[read].detach().clone().requires_grad_() for _, read in edges]
    return edges, fx.GraphModule(gm, graph), zeros


def _changes_in_place(node: fx.Node) -> bool:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    is_method = name.endswith("_") and not name.endswith("__")
    return is_method or "out" in node.kwargs or node.target in _IN_PLACE


_IN_PLACE = {operator.setitem, operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ipow}


def _gradients(call: Any, inputs: Sequence[Any]) -> list[torch.Tensor]:
    """Returns the gradients of the inputs that have one, for the same random gradients of the results."""
    leaves = [_copy(each) for each in inputs]
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf")  # Dynamo reads it
        results = call(*(each.clone() if _is_differentiated(each) else each for each in leaves))  # may be written to
    generator = torch.Generator().manual_seed(0)
    total = torch.zeros(())
    for result in filter(_is_differentiated, tree_leaves(results)):
        weights = torch.randn(result.shape, generator=generator).to(result.device, result.dtype)
        total = total + (result * weights).sum().real.to("cpu", torch.float32)
    wanted = list(filter(_is_differentiated, leaves))
    if not total.requires_grad:
        return [torch.zeros_like(each) for each in wanted]
    found = torch.autograd.grad(total, wanted, allow_unused=True)
    return [torch.zeros_like(each) if one is None else one for one, each in zip(found, wanted, strict=True)]
