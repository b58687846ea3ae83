"""Times the operations of a captured graph in eager PyTorch, forward and backward.

The text of the graph runs on random inputs of the recorded shapes, as the user's program would, with autograd.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import torch

from compiler_core.errors import UsageError
from compiler_core.records import Artifact, Compile, EagerTime
from compiler_core.support.tensors import tensors_in
from compiler_core.tools import replay
from compiler_core.tools.example_inputs import INTEGER_DTYPES, random_tensor
from compiler_core.tools.timing.device_timer import WHOLE, Clock, time_parts

_POSITIONS = (0, 1, 2, 4, 8, 16)
"""Values of integer inputs, which are tried until the graph runs."""
_NAME = re.compile(r"[A-Za-z_]\w*")


def time_operations(graph: EagerGraph, compile_: Compile, *, cuda: bool) -> None:
    """Sets `Compile.eager_times`, no more in all than the whole graph takes, which was timed.

    Args:
        graph: the captured graph of `compile_`.
        compile_: a compile.
        cuda: whether the operations run on a GPU.
    """
    times: dict[str, EagerTime] = {}
    for part, ns in time_parts(graph.run_timed, cuda=cuda).items():
        which, node, _ = cast(tuple[str, str, int], part)
        time = times.setdefault(node, EagerTime(graph.artifact.item(node), 0.0, 0.0))
        setattr(time, f"{which}_ns", getattr(time, f"{which}_ns") + ns)
    compile_.eager_times = list(times.values())
    for whole in compile_.graph_times:
        if whole.form == "eager":
            fields = [f"{whole.graph}_ns"] if graph.has_backward else ["forward_ns", "backward_ns"]
            _scale(compile_.eager_times, fields, whole.ns)


def _scale(times: list[EagerTime], fields: list[str], limit: float) -> None:
    """Scales times down so that they add up to no more than the whole: they include the clock's own calls."""
    total = sum(getattr(each, field) for each in times for field in fields)
    if total > limit:
        for each in times:
            for field in fields:
                setattr(each, field, getattr(each, field) * limit / total)


class EagerGraph:
    """The captured graph of a compile, which can run eagerly; UsageError if it cannot run from its text."""

    def __init__(self, compile_: Compile) -> None:
        self.artifact = compile_.find("captured")
        text, function = self._source()
        self._symbols = {symbol.key: symbol.value for symbol in compile_.symbols}
        self._nodes: dict[int, str] = {}
        inside = dict(_backwards(function))
        for statement in function.body:
            # a backward in the graph is timed by the operations whose gradients it computes
            if (name := replay.assigned_name(statement)) and statement not in inside:
                self._nodes[statement.lineno] = name
        names = [argument.arg for argument in function.args.args]
        leaves = {names.index(name) for each in inside.values() for name in each if name in names}
        self._inputs = self._make_inputs(function, leaves or set(_with_gradients(compile_)))
        self._has_gradients = any(isinstance(x, torch.Tensor) and x.requires_grad for x in self._inputs)
        self.has_backward = self._has_gradients and not inside
        """Whether the backward is outside of the graph."""
        self._namespaces: list[dict[str, Any]] = []
        self._plain = self._load(text, function.name, False)
        self._instrumented = self._load(text, function.name, True)
        self._clock = Clock()
        self._hooked: set[Any] = set()
        self._hooks: list[Any] = []
        self._find_valid_indices()

    def release(self) -> None:
        """Breaks the reference cycles that keep its inputs alive."""
        self._inputs.clear()
        for namespace in self._namespaces:
            namespace.clear()

    def _source(self) -> tuple[str, ast.FunctionDef]:
        """Returns the graph as one function, and the same parsed.

        Stock's graphs are methods of a class, and have ``name = None`` after the last use of a value.
        """
        if " = self." in self.artifact.text:
            raise UsageError("the graph has constants that are too large for the record")
        tree = ast.parse(self.artifact.text)
        function = next((node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)), None)
        if function is None:
            raise UsageError("the record has no runnable text of the graph")
        function.args.args = [each for each in function.args.args if each.arg != "self"]
        function.body = [statement for statement in function.body if not replay.is_deletion(statement)]
        preamble = [each for each in tree.body if not isinstance(each, ast.FunctionDef | ast.ClassDef)]
        text = ast.unparse(ast.Module([*preamble, function], []))
        parsed = ast.parse(text).body[-1]
        assert isinstance(parsed, ast.FunctionDef)
        return text, parsed

    def _load(self, text: str, name: str, instrumented: bool) -> Callable[..., Any]:
        tree = replay.instrument(text, self._nodes if instrumented else {}, pass_locals=True)
        namespace: dict[str, Any] = {
            "torch": torch, "device": torch.device, "inf": math.inf, "nan": math.nan,
            "_begin": self._begin, "_end": self._end, "_kernels": self._nodes,
        }  # fmt: skip
        self._namespaces.append(namespace)
        exec(compile(tree, "<captured graph>", "exec"), namespace)
        function: Callable[..., Any] = namespace[name]
        return function

    # ------------------------------------------------------------ inputs

    def _make_inputs(self, function: ast.FunctionDef, with_gradients: set[int]) -> list[Any]:
        assert self.artifact.graph is not None
        placeholders = [n for n in self.artifact.graph.nodes if n.op == "placeholder"]
        inputs: list[Any] = []
        for position, (argument, node) in enumerate(zip(function.args.args, placeholders, strict=True)):
            if node.shape is None or node.dtype is None:
                inputs.append(self._number(argument))
                continue
            shape = tuple(self._size(each) for each in node.shape)
            stride = torch.empty(shape, device="meta").stride()
            tensor = random_tensor(shape, stride, getattr(torch, node.dtype), node.device or "cpu")
            inputs.append(tensor.requires_grad_(position in with_gradients))
        return inputs

    def _number(self, argument: ast.arg) -> Any:
        annotation = argument.annotation.value if isinstance(argument.annotation, ast.Constant) else ""
        found = re.fullmatch(r"Sym\((.*)\)", str(annotation))
        if found is None:
            raise UsageError(f"its input {argument.arg} is neither a tensor nor a number")
        return self._size(found[1])

    def _size(self, size: int | str) -> int:
        """Returns a size; symbols have the values for which the graph was compiled."""
        if isinstance(size, int):
            return size
        if not all(name in self._symbols for name in _NAME.findall(size)):
            raise UsageError(f"the record has no value of {size}")
        text = _NAME.sub(lambda name: repr(int(self._symbols[name[0]])), size)
        return int(eval(compile(ast.parse(text, mode="eval"), "<size>", "eval"), {"__builtins__": {}}))

    def _find_valid_indices(self) -> None:
        """Fills the integer inputs with a value that is in range where the graph uses them as positions."""
        tensors = [x for x in self._inputs if isinstance(x, torch.Tensor) and x.dtype in INTEGER_DTYPES]
        for value in _POSITIONS:
            for tensor in tensors:
                tensor.fill_(value)
            try:
                self._run(self._plain)
            except IndexError:
                continue
            return

    # ------------------------------------------------------------ runs

    def _begin(self, node: str) -> None:
        self._clock.begin(("forward", node, 0))

    def _end(self, node: str, values: dict[str, Any]) -> None:
        self._clock.end(("forward", node, 0))
        if self._has_gradients:
            self._hook(node, tensors_in(values.get(node)))

    def _hook(self, node: str, tensors: Iterable[torch.Tensor]) -> None:
        """Times the autograd functions behind `tensors` that are not timed yet."""
        work, number = [t.grad_fn for t in tensors if t.grad_fn is not None], 0
        while work:
            function = work.pop()
            if function in self._hooked or function.name() == "torch::autograd::AccumulateGrad":
                continue
            self._hooked.add(function)
            part = ("backward", node, number)
            number += 1
            self._hooks.append(function.register_prehook(lambda _, part=part: self._clock.begin(part)))
            self._hooks.append(function.register_hook(lambda _, __, part=part: self._clock.end(part)))
            work.extend(next_ for next_, _ in function.next_functions if next_ is not None)

    def run_timed(self, clock: Clock) -> None:
        """Runs forward and backward once, and times each operation."""
        self._clock = clock
        try:
            results = self._run(self._instrumented)
            self._backward(results)
        finally:
            for hook in self._hooks:
                hook.remove()
            self._hooks.clear()
            self._hooked.clear()

    def run_whole(self, clock: Clock, which: str) -> None:
        """Runs forward and backward once, and times one of them as a whole."""
        if which == "backward":
            results = self._run(self._plain)
        synchronize(self._inputs)
        clock.begin(WHOLE)
        if which == "backward":
            self._backward(results)
        else:
            self._run(self._plain)
        synchronize(self._inputs)
        clock.end(WHOLE)

    def _run(self, function: Callable[..., Any]) -> list[torch.Tensor]:
        with torch.set_grad_enabled(self._has_gradients):
            return tensors_in(function(*self._inputs))

    def _backward(self, results: list[torch.Tensor]) -> None:
        if not self.has_backward:
            return
        ends = [each for each in results if each.requires_grad]
        starts = [x for x in self._inputs if isinstance(x, torch.Tensor) and x.requires_grad]
        if ends:
            torch.autograd.grad(ends, starts, [torch.ones_like(each) for each in ends], allow_unused=True)


def synchronize(values: Iterable[Any]) -> None:
    """Waits for the GPU if a tensor among `values` is on one."""
    if any(isinstance(each, torch.Tensor) and each.is_cuda for each in values):
        torch.cuda.synchronize()


def _backwards(function: ast.FunctionDef) -> Iterator[tuple[ast.stmt, list[str]]]:
    """Yields the statements of a graph that compute gradients, each with the names whose gradients it computes."""
    for statement in function.body:
        call = getattr(statement, "value", None)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "torch.autograd.grad":
            yield statement, [node.id for node in ast.walk(call.args[1]) if isinstance(node, ast.Name)]


def _with_gradients(compile_: Compile) -> Iterator[int]:
    """Yields the positions of the inputs that get a gradient; the gradients are the last results of the joint graph."""
    joint = next((a for a in compile_.artifacts if a.pane == "joint" and a.graph), None)
    if joint is None or joint.graph is None:
        return
    primals = sum(node.op == "placeholder" and not node.key.startswith("tangents") for node in joint.graph.nodes)
    for position, result in enumerate(_results(joint)[-primals:] if primals else []):
        if not (isinstance(result, ast.Constant) and result.value is None):
            yield position


def _results(artifact: Artifact) -> list[ast.expr]:
    returned = [node.value for node in ast.walk(ast.parse(artifact.text)) if isinstance(node, ast.Return)]
    value = returned[-1] if returned else None
    flat: list[ast.expr] = []
    for each in value.elts if isinstance(value, ast.List | ast.Tuple) else []:
        flat += each.elts if isinstance(each, ast.List | ast.Tuple) else [each]
    return flat
