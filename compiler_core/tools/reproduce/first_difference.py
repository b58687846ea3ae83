"""Finds the first operation of a call whose value a compiler computes otherwise than plain PyTorch.

A captured graph is compiled again so that it returns the value of each of its operations.  The first one, in the order
of the graph, that differs by more than rounding is wrong although what it reads is right; a graph that ends there
confirms it.  Where a fault needs that a value is not returned, as in a fused kernel, graphs end at each in turn.
"""

from __future__ import annotations

import functools
import linecache
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from compiler_core.errors import UsageError
from compiler_core.records.capture import library_of
from compiler_core.tools.accuracy import relative_error, worst_element
from compiler_core.tools.editing.kernel_trial import tolerance
from compiler_core.tools.reproduce.break_reproducer import Engine
from compiler_core.tools.reproduce.reproducer import captured_graphs, compiled_graph
from compiler_core.torch_private import inductor_config, tree_leaves

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

    def __str__(self) -> str:
        at = f" at {self.index}" if self.index else ""
        error = "not finite" if self.error is None else f"{self.error:.1e} of the largest element"
        where = f"{self.filename}:{self.lineno}: {self.line}" if self.lineno else "(the line is not known)"
        return f"{where}\n  {self.operation}\n  {self.value} in place of {self.expected}{at}; the difference is {error}"


def first_difference(
    fn: Callable[..., Any], *args: Any, engine: Engine = "torch", backend: str | Callable[..., Any] | None = None
) -> FirstDifference | None:
    """Returns the first operation of a call whose value differs from plain PyTorch's by more than rounding.

    None if there is no such operation.  Random numbers are PyTorch's.  The backward is not looked at.

    Args:
        fn: the function or module, not compiled.
        args: its arguments.
        engine: ``torch``: stock `torch.compile`; ``core``: this compiler.
        backend: as for `torch.compile` and `compile`; None for the engine's own.

    Raises:
        UsageError: results differ, but no operation by itself does.

    Example::

        print(compiler_core.first_difference(model, x))
    """
    with torch.no_grad(), inductor_config.patch(fallback_random=True):
        for gm, inputs in captured_graphs(fn, args, engine):
            found = _in_graph(gm, functools.partial(_values, inputs=inputs, engine=engine, backend=backend))
            if found is not None:
                return found
    return None


_Values = Callable[[fx.GraphModule, bool], list[list[Any]]]
"""Runs a graph, compiled or not; returns for each result the tensors in it."""


def _in_graph(gm: fx.GraphModule, values: _Values) -> FirstDifference | None:
    nodes = [node for node in gm.graph.nodes if node.op.startswith(("call_", "get_attr"))]
    whole = _ending_at(gm, nodes)
    differing = [n for n, found, right in zip(nodes, values(whole, True), values(whole, False), strict=True)
                 if _differ([found], [right])]  # fmt: skip
    if not differing and not _differ(values(gm, True), values(gm, False)):
        return None
    # a later operation may have changed the value in place, so each is looked at as the last one, too
    for node in [*differing, *(each for each in nodes if each not in differing)]:
        if found := _at(node, _ending_at(gm, [node]), values):
            return found
    raise UsageError("results of the graph differ, but no operation by itself does")


def _at(node: fx.Node, gm: fx.GraphModule, values: _Values) -> FirstDifference | None:
    """Returns the difference in an operation, which a graph ends at."""
    (found,), (right,) = values(gm, True), values(gm, False)
    for value, expected in zip(found, right, strict=True):
        if _differ([[value]], [[expected]]):
            return _difference(node, value, expected)
    return None


def _difference(node: fx.Node, value: torch.Tensor, expected: torch.Tensor) -> FirstDifference:
    filename, lineno = _users_line(str(node.meta.get("stack_trace") or ""))
    line = linecache.getline(filename, lineno).strip()
    is_alike = value.shape == expected.shape
    index, one, other = worst_element(value, expected) if is_alike else ([], _type(value), _type(expected))
    error = relative_error(value, expected) if is_alike else None
    return FirstDifference(str(node.format_node()), filename, lineno, line, index, one, other, error)


def _users_line(stack: str) -> tuple[str, int]:
    """Returns the innermost line that is not a library's, of a stack as stock writes it, or as we do."""
    frames = [(name or other, int(number or own)) for name, number, other, own in _FRAME.findall(stack)]
    own_frames = [each for each in frames if not library_of(each[0])]
    return (own_frames or frames or [("", 0)])[-1]


def _type(value: torch.Tensor) -> str:
    return f"{value.dtype}{list(value.shape)}"


def _differ(found: list[list[Any]], right: list[list[Any]]) -> bool:
    for value, expected in zip(_flat(found), _flat(right), strict=True):
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
    gm: fx.GraphModule, is_compiled: bool, inputs: Sequence[Any], engine: Engine, backend: Any
) -> list[list[Any]]:
    call = compiled_graph(gm, engine, backend) if is_compiled else gm
    torch.manual_seed(0)
    given = [each.clone() if isinstance(each, torch.Tensor) else each for each in inputs]
    return [[each for each in tree_leaves(result) if isinstance(each, torch.Tensor)] for result in call(*given)]
