"""Runs the programs of `triton_cases` with each operation on a device that a seed chooses.

    TRITON_INTERPRET=1 python tests/cases/device_cases.py

runs each with both kinds of kernels, those of the GPUs in Triton's interpreter on the CPU, compares it with eager, and
prints a JSON object: case -> verdict.
"""

from __future__ import annotations

import dataclasses
import json
import random
import sys
import traceback
from typing import Any

import torch
import torch.fx as fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_map

from compiler_core.codegen.build import compilers as build
from compiler_core.codegen.cpp import printer as cpp
from compiler_core.codegen.source import KernelSource
from compiler_core.codegen.triton import printer as triton
from compiler_core.codegen.wrapper import executable, memory_plan
from compiler_core.codegen.wrapper.writer import print_wrapper
from compiler_core.loops import ir
from compiler_core.loops.fuse.rewriter import FusionRequests
from compiler_core.loops.lower import lower
from compiler_core.pipeline import graph as graph_stages
from compiler_core.records import Compile
from tests.cases import triton_cases, triton_interpreter

DEVICES = tuple(map(torch.device, ("cpu", "cuda:0", "cuda:1")))
INTERPRETED = ("gelu_of_a_sum", "layers", "broadcast", "softmax", "layer_norm", "strided_inputs", "values_of_rows")


class Scattered(fx.Interpreter):
    """Runs a graph with each operation on a different device, to which its tensors are moved first."""

    def __init__(self, gm: fx.GraphModule, seed: int) -> None:
        super().__init__(gm)
        self._chosen = random.Random(seed)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if not isinstance(target, torch._ops.OpOverload) or target is torch.ops.aten.lift_fresh_copy.default:
            return super().call_function(target, args, kwargs)
        device = self._chosen.choice(DEVICES)

        def moved(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return value.to(device)
            return device if isinstance(value, torch.device) else value

        return super().call_function(target, tree_map(moved, args), tree_map(moved, kwargs))


def scattered(name: str, seed: int) -> tuple[fx.GraphModule, tuple[torch.Tensor, ...]]:
    """A case as a graph over three devices, and its inputs, which lie on the CPU."""
    inputs = triton_cases.inputs_of(name, "cpu")
    gm = triton_cases.graph_of(name, inputs)
    return make_fx(lambda *args: Scattered(gm, seed).run(*args), tracing_mode="fake")(*inputs), inputs


def printed(gm: fx.GraphModule) -> tuple[ir.Program, list[KernelSource]]:
    """The program of a graph, and the source of its kernels."""
    program = graph_stages.schedule_loops(
        graph_stages.fuse_loops(lower(gm, "forward"), FusionRequests(), Compile("0/0", 0)).program
    )
    make = {"cpp": lambda p: cpp.generate(p, build.simd_math()), "triton": triton.generate}
    return program, [make[each](program.in_language(each)) for each in program.used_languages]


class AnyDevice:
    """Compares equal to every device number."""

    def __ne__(self, _: object) -> bool:
        return False


def run_here(gm: fx.GraphModule, inputs: tuple[torch.Tensor, ...]) -> list[Any]:
    """Returns the results of the program of `gm` with all tensors on the CPU."""
    program, codes = printed(gm)
    result = print_wrapper(program, codes, memory_plan.plan(program)).executable
    text = result.text
    for device in DEVICES:
        text = text.replace(f"'{device}'", "'cpu'")
    executable.NAMES.update(empty_cuda=executable.NAMES["empty"], current_device=AnyDevice)
    return executable.load(dataclasses.replace(result, text=text), program.constants)([*inputs])


def verdict(name: str) -> str:
    gm, inputs = scattered(name, seed=1)
    try:
        results = run_here(gm, inputs)
        expected = triton_cases.graph_of(name, inputs)(*inputs)
        torch.testing.assert_close(results, [*expected], rtol=1e-5, atol=1e-5)
    except Exception:
        return traceback.format_exc()
    return "ok"


if __name__ == "__main__":
    triton_interpreter.extend()
    json.dump({name: verdict(name) for name in INTERPRETED}, sys.stdout, indent=1)
