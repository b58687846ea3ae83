"""How exact the compiled values are, beside eager PyTorch in float64.

Each graph's program is made again from the record (`replay`) and runs once with random inputs, the backward with what
the forward saved; the graph itself runs with the same inputs node by node, in float64 and in its own types.  Whatever a
kernel leaves in memory is compared; of stock's kernels, what they return.  A graph is compared by itself: the error of
its inputs is not its own.  What draws random numbers draws them in the program, and the graph takes them from there.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from compiler_core.api import replay
from compiler_core.api.measure import undisturbed
from compiler_core.errors import UsageError
from compiler_core.records import Accuracy, Artifact, Compile, Kernel, Record
from compiler_core.support.fx_graphs import draws_random

NARROW = (torch.float32, torch.float16, torch.bfloat16)
Values = dict[str, Any]


def check_accuracy(record: Record) -> None:
    """Compare what a record's kernels compute with eager PyTorch in float64: `Compile.accuracy`.

    Refused as `measure` is; a note says of what could not run here, and why.
    """
    replay.refuse_strangers(record)
    with undisturbed():
        for compile_ in record.compiles:
            compile_.accuracy.clear()
            saved: Values = {}
            for wrapper in replay.wrappers(compile_):
                with replay.noting(record, f"{compile_.id}: the values of {wrapper.name} were not compared"):
                    saved = _check(compile_, wrapper, saved)


def _check(compile_: Compile, wrapper: Artifact, saved: Values) -> Values:
    """Compare one graph; the values that it returns, for the backward."""
    which = wrapper.name.partition(".")[0]
    names = (f"{which}.post_grad", which)  # stock's last graph; ours
    graph = next((a for name in names for a in compile_.artifacts if a.name == name and a.graph), None)
    if graph is None or graph.graph is None:
        raise UsageError(f"the record has no {which} graph of {compile_.id}")
    function, seen = _Function(graph.text), Values()
    keep = _keep(compile_, wrapper, function.nodes, seen)
    program = replay.load(compile_, wrapper, lambda kernel: None, keep, values=True)
    for at, name in enumerate(function.parameters):
        program.inputs[at] = saved.get(name, program.inputs[at])
    given = tree_map(_copied, dict(zip(function.parameters, program.inputs, strict=True)))
    try:
        returned = {n: value for n, value in zip(function.results, program.run(), strict=True) if n}
    finally:
        program.let_go()
    seen.update((n, value) for n, value in returned.items() if n in function.nodes)
    if unseen := [n.key for n in graph.graph.nodes if draws_random(n.target) and n.key not in seen]:
        raise UsageError(f"{unseen[0]} draws random numbers within a kernel, where nobody sees them")
    drawn = {n.key: seen[n.key] for n in graph.graph.nodes if n.key in seen and draws_random(n.target)}
    exact, eager = function(given, drawn, in_float64=True), function(given, drawn, in_float64=False)
    for name in (n.key for n in graph.graph.nodes if "empty" not in n.target):  # that is nobody's value
        if isinstance(value := seen.get(name), torch.Tensor) and name not in drawn:
            errors = error_of(value, exact[name]), error_of(eager[name], exact[name])
            compile_.accuracy.append(Accuracy(graph.item(name), *errors))
    return returned


def error_of(value: torch.Tensor, exact: torch.Tensor) -> float | None:
    """The greatest error as a share of the greatest exact value; of other than floats, the share of wrong elements.
    None: a NaN or an infinity where there should be none, or another."""
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


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _keep(compile_: Compile, wrapper: Artifact, nodes: set[str], seen: Values) -> replay.End:
    """Notes the nodes that each kernel's line names, as they are after it: later kernels may use the same memory."""
    lines = wrapper.text.split("\n")
    kernels = replay.kernels_of(compile_, wrapper)
    named = {kernel.key: nodes.intersection(re.findall(r"\w+", lines[at - 1])) for at, kernel in kernels.items()}

    def end(kernel: Kernel, values: Mapping[str, Any]) -> None:
        for name in named[kernel.key] & values.keys():
            seen[name] = tree_map(_copied, values[name])

    return end


class _Function:
    """A graph's text, to be run node by node."""

    def __init__(self, text: str) -> None:
        if "inductor_random" in text:
            raise UsageError("it draws random numbers within its kernels, where nobody sees them")
        module = ast.parse(text)
        function = next(node for node in ast.walk(module) if isinstance(node, ast.FunctionDef))
        above = [s for s in module.body if not isinstance(s, ast.FunctionDef | ast.ClassDef)]
        self._scope: dict[str, Any] = {"torch": torch, "device": torch.device, "inf": math.inf, "nan": math.nan}
        exec(compile(ast.Module(above, []), "<graph>", "exec"), self._scope)
        self.parameters = [a.arg for a in function.args.args if a.arg != "self"]
        if " = self." in text:
            raise UsageError("the graph has constants that are too large for the record")
        *statements, last = function.body
        self._statements = [s for s in statements if not _lets_go(s)]
        self.nodes = {_target(statement) for statement in self._statements}
        returned = last.value if isinstance(last, ast.Return) else None
        results = returned.elts if isinstance(returned, ast.Tuple | ast.List) else []
        self.results = [each.id if isinstance(each, ast.Name) else "" for each in results]

    def __call__(self, given: Values, drawn: Values, *, in_float64: bool) -> Values:
        """The value of each node; of those in `drawn` it is that."""
        values: Values = tree_map(_copied, given)
        if in_float64:
            values, drawn = tree_map(_widened, (values, drawn))
        mode: Any = _InFloat64() if in_float64 else nullcontext()  # type: ignore[no-untyped-call]
        with torch.no_grad(), mode:
            for statement in self._statements:
                if (name := _target(statement)) in drawn:
                    values[name] = drawn[name]
                else:
                    exec(compile(ast.Module([statement], []), "<graph>", "exec"), self._scope, values)
        return values


def _lets_go(statement: ast.stmt) -> bool:
    """Whether it is stock's ``name = None``, after a node's last use."""
    return isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)


def _target(statement: ast.stmt) -> str:
    """The node that a line of a graph's text makes."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
    return target.id if isinstance(target, ast.Name) else ""


class _InFloat64(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """All floats are of float64, whatever type they are asked to have."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map(_widened, (args, kwargs or {}))
        return tree_map(_widened, func(*args, **kwargs))


def _widened(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return torch.float64 if value in NARROW else value
    return value.double() if isinstance(value, torch.Tensor) and value.dtype in NARROW else value
