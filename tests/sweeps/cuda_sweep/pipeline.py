"""Compiles a program from its graph to Triton kernels, for tensors on a GPU that need not be present.

It runs the compiler's code from the joint graph to the texts of wrapper and autograd function; only the last step,
loading kernels onto a device, is left out or done by Triton's interpreter on the CPU.
"""

from __future__ import annotations

import operator
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch
import torch.fx as fx
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from compiler_core.autograd import autograd_function
from compiler_core.autograd.joint import JointRefused
from compiler_core.capture.tensors.fake_tensors import FakeMode, muted_fake_log
from compiler_core.codegen.wrapper import memory_plan
from compiler_core.codegen.wrapper.executable import Executable
from compiler_core.config import Options
from compiler_core.loops import ir
from compiler_core.pipeline import graph as graph_stages
from compiler_core.records import Compile, Record

Tensors = Sequence[torch.Tensor]


@dataclass(frozen=True)
class Graph:
    """The kernels of a forward or backward."""

    program: ir.Program
    kernels: str
    wrapper: str


@dataclass
class Lowered:
    """The result for a program: its graphs, or the reason why there are none."""

    graphs: list[Graph]
    refused: str = ""
    """The reason for which PyTorch runs it, as the record would state it."""
    failed: str = ""
    """The failure with a traceback."""


# ---- the captured graph --------------------------------------------------------------------


class Capture(TorchFunctionMode):
    """Records each call of a function of torch in a graph, as the compiler's capture does."""

    def __init__(self, inputs: Tensors) -> None:
        super().__init__()
        self.graph = fx.Graph()
        self._nodes: dict[int, fx.Node] = {}
        self._alive: list[torch.Tensor] = []
        for number, tensor in enumerate(inputs):
            self._made(tensor, self.graph.placeholder(f"x{number}"))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        writes = func is torch.Tensor.__setitem__
        if writes or any(isinstance(t, torch.Tensor) for t in tree_leaves(out)):
            given = fx.node.map_aggregate((tuple(args), dict(kwargs or {})), self._node)
            self._call(func, given, out)
        return out

    def _call(self, func: Any, given: Any, out: Any) -> None:
        (args, kwargs), name = given, getattr(func, "__name__", "")
        if name == "__setitem__":
            self.graph.call_function(operator.setitem, args)
            return
        if name == "__get__":
            node = self.graph.call_function(getattr, (args[0], func.__self__.__name__))
        elif getattr(torch.Tensor, name, None) is func:
            node = self.graph.call_method(name, args, kwargs)
        else:
            node = self.graph.call_function(func, args, kwargs)
        if isinstance(out, torch.Tensor):
            self._made(out, node)
            return
        for number, tensor in enumerate(out):
            if isinstance(tensor, torch.Tensor):
                self._made(tensor, self.graph.call_function(operator.getitem, (node, number)))

    def _made(self, tensor: torch.Tensor, node: fx.Node) -> None:
        node.meta["val"] = tensor
        self._nodes[id(tensor)] = node
        self._alive.append(tensor)

    def _node(self, value: Any) -> Any:
        return self._nodes[id(value)] if isinstance(value, torch.Tensor) else value

    def finished(self, results: Any) -> fx.GraphModule:
        self.graph.output(tuple(self._node(t) for t in tree_leaves(results) if isinstance(t, torch.Tensor)))
        return fx.GraphModule(torch.nn.Module(), self.graph)


def captured(function: Callable[..., Any], inputs: Tensors) -> fx.GraphModule:
    """Returns the graph of ``function(*inputs)``."""
    capture = Capture(inputs)
    with capture:
        results = function(*inputs)
    return capture.finished(results)


# ---- kernels -------------------------------------------------------------------------------


def lowered(function: Callable[..., Any], make: Callable[[], Tensors]) -> Lowered:
    """Returns the kernels of `function` for the fake GPU tensors that `make` returns."""
    result = Lowered([])
    programs: list[ir.Program] = []

    def load(executable: Executable, constants: Any) -> Any:
        result.graphs.append(Graph(programs[-1], executable.kernels.get("triton", ""), executable.text))
        return _Unloaded(executable, constants)

    with noting(programs), mock.patch.object(graph_stages, "load", load):
        _compile(function, make, result)
    return result


def runnable(function: Callable[..., Any], make: Callable[[], Tensors]) -> tuple[Callable[..., Any] | None, Lowered]:
    """Returns the same kernels for Triton's interpreter: lowered for a GPU, run with CPU tensors."""
    result = Lowered([])
    as_taken, match_layout = memory_plan.with_result_layouts, autograd_function.match_layout
    source = {
        "match_layout": lambda tangent, shape, stride, dtype, _: match_layout(tangent, shape, stride, dtype, "cpu")
    }
    with (
        mock.patch.object(memory_plan, "with_result_layouts", lambda program: on_the_cpu(as_taken(program))),
        mock.patch.dict(autograd_function._SOURCE_GLOBALS, source),
    ):
        return _compile(function, make, result), result


def _compile(function: Callable[..., Any], make: Callable[[], Tensors], result: Lowered) -> Callable[..., Any] | None:
    mode = FakeMode(allow_non_fake_inputs=True)
    try:
        with mode, muted_fake_log():
            inputs = make()
            gm = captured(function, inputs)
    except Exception as error:
        result.refused = f"eager raises {type(error).__name__}: {error}"
        return None
    options = Options(backend="triton", strict=True)
    compile_ = _new_compile()
    try:
        part = lambda graph, which: graph_stages.compile_kernels(graph, which, compile_, options)  # noqa: E731
        return graph_stages.compile_differentiable(gm, inputs, compile_, options, part)
    except JointRefused as error:
        result.refused = str(error)
    except Exception:
        result.failed = traceback.format_exc(limit=-6)
    return None


def _new_compile() -> Compile:
    record = Record()
    return record.compile(record.frame("program", "program.py", 1, "root"))


@contextmanager
def noting(programs: list[ir.Program]) -> Iterator[None]:
    """Context manager that adds each printed program to `programs`."""
    schedule_kernels = graph_stages.schedule_loops

    def noted(program: ir.Program) -> ir.Program:
        programs.append(schedule_kernels(program))
        for step in programs[-1].steps:
            if isinstance(step, ir.Loops):
                ir.check(step)
        return programs[-1]

    with mock.patch.object(graph_stages, "schedule_loops", noted):
        yield


class _Unloaded:
    """A placeholder for a graph's function, which cannot be run without the device."""

    def __init__(self, executable: Executable, constants: Any) -> None:
        # without a Python function there are no statements that could be inlined
        self.executable, self.constants = replace(executable, inline_body=None), constants

    def __call__(self, inputs: list[Any]) -> list[Any]:
        raise AssertionError("kernels for a GPU that is not there")


def on_the_cpu(program: ir.Program) -> ir.Program:
    """Returns `program` with all GPU buffers on the CPU, in kernels for the interpreter."""
    cpu = torch.device("cpu")
    buffers = {name: replace(b, device=cpu) for name, b in program.buffers.items()}
    here = lambda value: cpu if isinstance(value, torch.device) else value  # noqa: E731
    steps = [
        replace(s, args=_mapped(s.args, here), kwargs=_mapped(s.kwargs, here)) if isinstance(s, ir.Call) else s
        for s in program.steps
    ]
    return replace(program, buffers=buffers, steps=tuple(steps), languages={"cpu": "triton"})


def _mapped(values: Any, function: Callable[[Any], Any]) -> Any:
    return fx.node.map_aggregate(values, function)
