"""Compiles programs for a GPU that need not be present: the whole compiler takes each tensor for one on a GPU.

Capture sees fake CUDA tensors, with symbolic sizes where its policy says so, and everything runs up to the texts of
kernels, wrapper and autograd function.  The last step, loading kernels onto a device, is left out or done by Triton's
interpreter on the CPU.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import torch
import torch.fx as fx
from torch._subclasses.meta_utils import MetaTensorDescriber

import compiler_core
from compiler_core.autograd import autograd_function
from compiler_core.autograd.joint import JointRefused
from compiler_core.capture import graph_builder
from compiler_core.capture.tensors.fake_tensors import make_fake
from compiler_core.codegen.wrapper import memory_plan
from compiler_core.codegen.wrapper.executable import Executable
from compiler_core.config import Options
from compiler_core.errors import FullGraphError
from compiler_core.loops import ir
from compiler_core.pipeline import graph as graph_stages
from compiler_core.records import Compile
from compiler_core.support.fx_graphs import copy_graph

Tensors = Sequence[torch.Tensor]
Call = Callable[..., Any]
GPU, CPU = torch.device("cuda", 0), torch.device("cpu")


@dataclass(frozen=True)
class Graph:
    """The kernels of a forward or backward."""

    program: ir.Program
    kernels: str
    wrapper: str


@dataclass
class Lowered:
    """What became of a program: the graphs of all its compiles, or the reason why there are none."""

    graphs: list[Graph] = field(default_factory=list)
    refused: str = ""
    """The reason for which PyTorch runs it, as the record would state it."""
    failed: str = ""
    """The failure with a traceback."""


class _Ended(BaseException):
    """Ends the call of a program once its graph is compiled."""


def lowered(function: Call, make: Callable[[], Tensors], dynamic: bool | None) -> Lowered:
    """Returns the kernels of `function` for a GPU and tensors like those of `make`, which may have no memory."""

    def end(*_: Any) -> Call:
        raise _Ended

    try:
        inputs = make()
    except Exception as error:
        return Lowered(refused=f"eager raises {type(error).__name__}: {error}")
    with _compiles_for_a_gpu(end) as result, _unloaded(result), suppress(_Ended):
        try:
            compiler_core.compile(function, fullgraph=True, dynamic=dynamic, strict=True)(*inputs)
        except FullGraphError as error:
            result.refused = str(error).splitlines()[0]
        except Exception:
            result.failed = traceback.format_exc(limit=-6)
    return result


def lowered_calls(function: Call, calls: Sequence[Callable[[], Tensors]], dynamic: bool | None) -> Lowered:
    """Returns the kernels of all compiles in which `calls`, with tensors on the CPU, result.

    PyTorch runs the graphs, on the CPU.
    """
    with _compiles_for_a_gpu(lambda call, gm: _on_the_cpu(gm)) as result, _unloaded(result):
        compiled = compiler_core.compile(function, dynamic=dynamic, strict=True)
        try:
            for make in calls:
                compiled(*make())
        except Exception:
            result.failed = result.failed or traceback.format_exc(limit=-6)
    return result


@contextmanager
def interpreted() -> Iterator[Lowered]:
    """Context manager in which graphs are compiled for a GPU and run by Triton's interpreter, with CPU tensors."""
    as_taken, match_layout = memory_plan.with_result_layouts, autograd_function.match_layout
    source = {
        "match_layout": lambda tangent, shape, stride, dtype, _: match_layout(tangent, shape, stride, dtype, "cpu")
    }
    with (
        _compiles_for_a_gpu(lambda call, gm: call or _on_the_cpu(gm)) as result,
        mock.patch.object(memory_plan, "with_result_layouts", lambda program: on_the_cpu(as_taken(program))),
        mock.patch.dict(autograd_function._SOURCE_GLOBALS, source),
    ):
        yield result


# ---- what the compiler does differently ----------------------------------------------------


@contextmanager
def _compiles_for_a_gpu(after: Callable[[Call | None, fx.GraphModule], Call]) -> Iterator[Lowered]:
    """Context manager in which all tensors are taken for tensors on a GPU.

    `after` gets the function that a graph was compiled to, or None, and the graph, and returns what runs in its place.
    """
    result = Lowered()
    describe = MetaTensorDescriber.describe_tensor

    def make_fake_on_gpu(*args: Any) -> torch.Tensor:
        described = lambda *a, **k: replace(describe(*a, **k), device=GPU)  # noqa: E731
        with mock.patch.object(MetaTensorDescriber, "describe_tensor", described):
            return make_fake(*args)

    def run_stages(gm: fx.GraphModule, inputs: Tensors, compile_: Compile, options: Options) -> Call:
        kernels = functools.partial(graph_stages.compile_kernels, options=options)
        call = None
        try:
            call = graph_stages.compile_differentiable(gm, inputs, compile_, options, kernels)
        except JointRefused as error:
            result.refused = str(error)
        except Exception:
            result.failed = traceback.format_exc(limit=-6)
        return after(call, gm)

    with (
        mock.patch.object(graph_builder, "make_fake", make_fake_on_gpu),
        mock.patch.object(graph_stages, "_run_backend", run_stages),
        compiler_core.record(),
    ):
        yield result


@contextmanager
def _unloaded(result: Lowered) -> Iterator[None]:
    """Context manager in which kernels are not loaded, but added to `result`."""
    programs: list[ir.Program] = []

    def load(executable: Executable, constants: Any, build: None) -> Any:
        program = next(each for each in reversed(programs) if each.name == executable.program)
        result.graphs.append(Graph(program, executable.kernels.get("triton", ""), executable.text))
        return _Unloaded(executable, constants)

    not_built = mock.patch.object(graph_stages, "start_build", return_value=None)
    with _noting(programs), not_built, mock.patch.object(graph_stages, "load", load):
        yield


@contextmanager
def _noting(programs: list[ir.Program]) -> Iterator[None]:
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


def _on_the_cpu(gm: fx.GraphModule) -> Call:
    """Returns a captured graph as a function of CPU tensors."""
    copy = copy_graph(gm)
    for node in copy.graph.nodes:
        node.args, node.kwargs = fx.node.map_aggregate((node.args, node.kwargs), _cpu_for_gpu)
    copy.recompile()
    return copy.forward


def on_the_cpu(program: ir.Program) -> ir.Program:
    """Returns `program` with all GPU buffers on the CPU, in kernels for the interpreter."""
    buffers = {name: replace(b, device=CPU) for name, b in program.buffers.items()}
    steps = [
        replace(s, args=_mapped(s.args), kwargs=_mapped(s.kwargs)) if isinstance(s, ir.Call) else s
        for s in program.steps
    ]
    return replace(program, buffers=buffers, steps=tuple(steps), languages={"cpu": "triton"})


def _mapped(values: Any) -> Any:
    return fx.node.map_aggregate(values, _cpu_for_gpu)


def _cpu_for_gpu(value: Any) -> Any:
    return CPU if isinstance(value, torch.device) else value
