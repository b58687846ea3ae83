"""Measures the errors of compiled values, compared with eager PyTorch in float64.

Each graph's program is loaded from the record (`replay`) and runs once with random inputs, the backward with the values
that the forward saved.  The graph itself runs on the same inputs node by node, in float64 and in its own types.  All
values that kernels write to memory are compared; of stock's kernels, the values that the program returns.  Each graph
is compared separately, so errors of its inputs do not count.  Random numbers are drawn by the program, and the graph
uses the same ones.  If a kernel does not write them to memory, the graph uses the first values that are computed from
them and written to memory.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import torch

from compiler_core.errors import UsageError
from compiler_core.records import Accuracy, Artifact, Compile, Graph, ItemId, Kernel, Record
from compiler_core.support.fx_graphs import is_random_name
from compiler_core.tools import replay
from compiler_core.tools.measure import preserved_state
from compiler_core.tools.questions.queries import SMALL_ERROR, SMALL_ERRORS
from compiler_core.torch_private import TorchDispatchMode, tree_map

NARROW_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
MAX_PERMUTED = 4
"""Dimensions of a value that are tried in any order."""
Values = dict[str, Any]
"""Values of nodes by name."""


def check_accuracy(record: Record) -> None:
    """Compares the values that a record's kernels compute with eager PyTorch in float64.

    Sets `Compile.accuracy`: for each node that a kernel writes to memory its error (see `relative_error`), and the
    error of eager PyTorch in the graph's own types.  A graph that cannot run on this machine gets a note in the record
    with the reason.

    Args:
        record: a record made in this process.

    Raises:
        UsageError: the record was read from a file; checking it would run code from that file.

    Example::

        compiler_core.check_accuracy(record)
        print(max(each.error or 0 for each in record.compiles[0].accuracy))
    """
    replay.check_made_here(record)
    with preserved_state():
        for compile_ in record.compiles:
            compile_.accuracy.clear()
            saved: Values = {}
            for wrapper in replay.wrappers(compile_):
                with replay.note_failures(record, f"{compile_.id}: the values of {wrapper.name} were not compared"):
                    saved = _check_graph(compile_, wrapper, saved)


def _check_graph(compile_: Compile, wrapper: Artifact, saved: Values) -> Values:
    """Compares one graph; returns its results, which the backward takes.  `saved`: the results of the forward."""
    graph = _graph_of(compile_, wrapper)
    assert graph.graph is not None
    function, seen = _GraphFunction(graph.text), Values()
    keep_values = _value_keeper(compile_, wrapper, function.nodes, seen)
    program = replay.load(compile_, wrapper, lambda kernel: None, keep_values, pass_locals=True)
    for position, name in enumerate(function.parameters):
        program.inputs[position] = saved.get(name, program.inputs[position])
    inputs = tree_map(_cloned, dict(zip(function.parameters, program.inputs, strict=True)))
    try:
        results = {name: value for name, value in zip(function.results, program.run(), strict=True) if name}
    finally:
        program.release()
    seen.update((name, value) for name, value in results.items() if name in function.nodes)
    drawn, unknown = _random_values(graph.graph, seen)
    if unknown and compile_._record:
        compile_._record.notes.append(
            f"{compile_.id}: {len(unknown)} nodes of {wrapper.name} were not compared: they depend on random numbers "
            "that are drawn within a kernel and not written to memory"
        )
    exact, eager = function(inputs, drawn, in_float64=True), function(inputs, drawn, in_float64=False)
    for name in (node.key for node in graph.graph.nodes if "empty" not in node.target):  # whose values are arbitrary
        if isinstance(value := seen.get(name), torch.Tensor) and name not in drawn and name not in unknown:
            views = list(_views(value, exact[name]))
            if views:
                errors = [relative_error(view, exact[name]) for view in views]
                view, error = min(
                    zip(views, errors, strict=True), key=lambda each: math.inf if each[1] is None else each[1]
                )
                of_eager, element = relative_error(eager[name], exact[name]), worst_element(view, exact[name])
                first = _first_large(graph, name, seen, eager, exact) if is_large(of_eager, eager[name]) else None
                compile_.accuracy.append(Accuracy(graph.item(name), error, of_eager, *element, first=first))
    return results


def _first_large(graph: Artifact, name: str, seen: Values, eager: Values, exact: Values) -> ItemId | None:
    """Returns the first node at which eager's error is large, of those that a value is computed from within a kernel;
    None if it is that of the value.  `seen`: the values that kernels write to memory."""
    assert graph.graph is not None
    inside, waiting = {name}, [name]
    while waiting:
        reader = waiting.pop()
        for source in (source for source, other in graph.graph.edges if other == reader):
            if source not in seen and source not in inside:
                inside.add(source)
                waiting.append(source)
    for node in (each.key for each in graph.graph.nodes if each.key in inside):
        value = eager.get(node)
        if isinstance(value, torch.Tensor) and is_large(relative_error(value, exact[node]), value):
            return None if node == name else graph.item(node)
    return None


def is_large(error: float | None, value: torch.Tensor) -> bool:
    """Whether the error of a value is large for its type; None: it is not finite."""
    return error is None or error > SMALL_ERRORS.get(str(value.dtype).removeprefix("torch."), SMALL_ERROR)


def _random_values(graph: Graph, seen: Values) -> tuple[Values, set[str]]:
    """Returns the values of the program that replace those of the graph, and the nodes whose values are unknown.

    The first are random numbers, and values computed from random numbers that a kernel draws and does not write to
    memory; the nodes between are unknown.
    """
    inputs: dict[str, list[str]] = {}
    for source, reader in graph.edges:
        inputs.setdefault(reader, []).append(source)
    drawn, unknown = Values(), set[str]()
    for node in graph.nodes:
        if node.op == "placeholder":  # a saved random number is an input of the backward, of the same name
            continue
        is_random = is_random_name(node.target) or "inductor_rand" in node.target
        if not is_random and unknown.isdisjoint(inputs.get(node.key, ())):
            continue
        value = seen.get(node.key)
        if isinstance(value, torch.Tensor) and _has_shape(value, node.shape or []):
            drawn[node.key] = value
        else:
            unknown.add(node.key)
    return drawn, unknown - {"output"}


def _has_shape(value: torch.Tensor, shape: list[int | str]) -> bool:
    """Whether a value has a node's shape; a symbolic size may be any number."""
    return len(shape) == value.dim() and all(
        isinstance(want, str) or want == size for want, size in zip(shape, value.shape, strict=True)
    )


def _graph_of(compile_: Compile, wrapper: Artifact) -> Artifact:
    """Returns the graph that the wrapper's kernels compute; UsageError if the record lacks it."""
    direction = wrapper.name.partition(".")[0]
    for name in (f"{direction}.post_grad", direction):  # stock's last graph; ours
        for artifact in compile_.artifacts:
            if artifact.name == name and artifact.graph:
                return artifact
    raise UsageError(f"the record has no {direction} graph of {compile_.id}")


def relative_error(value: torch.Tensor, exact: torch.Tensor) -> float | None:
    """Returns the greatest error of `value`, divided by the greatest absolute value of `exact`.

    For types other than floats: the share of elements that differ.  None: `value` has a NaN or an infinity where
    `exact` has none, or the other way round.
    """
    if not exact.is_floating_point():
        return float((value != exact).double().mean()) if exact.numel() else 0.0
    value, exact = value.double(), exact.double()
    finite = exact.isfinite() & value.isfinite()
    same = (value == exact) | (value.isnan() & exact.isnan())
    if not bool((finite | same).all()):
        return None
    if not bool(finite.any()):
        return 0.0
    error, scale = float((value - exact)[finite].abs().max()), float(exact[finite].abs().max()) or 1.0
    return error / scale if math.isfinite(error / scale) else None


def worst_element(value: torch.Tensor, exact: torch.Tensor) -> tuple[list[int], str, str]:
    """Returns the index of the element with the greatest error, and the element of both; empty if none differs."""
    if not exact.numel() or exact.is_complex():
        return [], "", ""
    value, exact = value.double(), exact.double()
    same = (value == exact) | (value.isnan() & exact.isnan())
    error = torch.where(same, 0.0, (value - exact).abs()).nan_to_num(math.inf)
    at = int(error.argmax())
    if bool(same.flatten()[at]):
        return [], "", ""
    index = [int(each) for each in torch.unravel_index(torch.tensor(at), exact.shape)]
    return index, *(f"{float(each.flatten()[at]):.9g}" for each in (value, exact))  # type: ignore[return-value]


def _views(value: torch.Tensor, exact: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yields the ways to read a stored value as its node.

    Later transposes and reshapes are part of how a kernel stores its result, so the value in memory may be a view of
    the node: with other dimensions of size 1, or with its dimensions in another order.
    """
    if value.numel() != exact.numel():
        return
    shape = [size for size in exact.shape if size != 1]
    squeezed = value.squeeze()
    if squeezed.dim() != len(shape):  # dimensions were merged or split
        yield value.reshape(exact.shape)
        return
    for order in itertools.permutations(range(len(shape))) if len(shape) <= MAX_PERMUTED else [range(len(shape))]:
        if [squeezed.shape[i] for i in order] == shape:
            yield squeezed.permute(tuple(order)).reshape(exact.shape)


def _cloned(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _value_keeper(compile_: Compile, wrapper: Artifact, nodes: set[str], seen: Values) -> replay.AfterKernel:
    """Returns a callback that copies to `seen` the nodes named in a kernel's line, as they are after the kernel.

    Later kernels may reuse their memory, and a kernel may write a node over one that it reads.
    """
    lines = wrapper.text.split("\n")
    kernels = replay.kernels_of(compile_, wrapper)
    named = {kernel.key: nodes.intersection(re.findall(r"\w+", lines[at - 1])) for at, kernel in kernels.items()}
    taken = {buffer.name: buffer.takes for plan in compile_.memory for buffer in plan.buffers if buffer.takes}
    named = {key: names - {taken.get(name) for name in names} for key, names in named.items()}

    def keep_values(kernel: Kernel, values: Mapping[str, Any]) -> None:
        for name in named[kernel.key] & values.keys():
            seen[name] = tree_map(_cloned, values[name])

    return keep_values


class _GraphFunction:
    """The text of a graph, parsed so that it can be run node by node."""

    def __init__(self, text: str) -> None:
        if " = self." in text:
            raise UsageError("the graph has constants that are too large for the record")
        module = ast.parse(text)
        function = next(node for node in ast.walk(module) if isinstance(node, ast.FunctionDef))
        preamble = [s for s in module.body if not isinstance(s, ast.FunctionDef | ast.ClassDef)]
        self._namespace: dict[str, Any] = {"torch": torch, "device": torch.device, "inf": math.inf, "nan": math.nan}
        exec(compile(ast.Module(preamble, []), "<graph>", "exec"), self._namespace)
        self.parameters = [a.arg for a in function.args.args if a.arg != "self"]
        *statements, last = function.body
        self._statements = [s for s in statements if not replay.is_deletion(s)]
        self.nodes = {replay.assigned_name(statement) for statement in self._statements}
        returned = last.value if isinstance(last, ast.Return) else None
        results = returned.elts if isinstance(returned, ast.Tuple | ast.List) else []
        self.results = [each.id if isinstance(each, ast.Name) else "" for each in results]

    def __call__(self, inputs: Values, drawn: Values, *, in_float64: bool) -> Values:
        """Runs the graph and returns the value of each node; the nodes in `drawn` get those values instead."""
        values: Values = tree_map(_cloned, inputs)
        mode: Any = nullcontext()
        if in_float64:
            values, drawn = tree_map(_widened, (values, drawn))
            mode = InFloat64()  # type: ignore[no-untyped-call]
        with torch.no_grad(), mode:
            for statement in self._statements:
                name = replay.assigned_name(statement)
                if name in drawn:
                    values[name] = drawn[name]
                else:
                    exec(compile(ast.Module([statement], []), "<graph>", "exec"), self._namespace, values)
        return values


class InFloat64(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Makes all floating-point tensors float64, also where an operation requests a narrower type."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map(_widened, (args, kwargs or {}))
        return tree_map(_widened, func(*args, **kwargs))


def _widened(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return torch.float64 if value in NARROW_FLOATS else value
    return value.double() if isinstance(value, torch.Tensor) and value.dtype in NARROW_FLOATS else value
