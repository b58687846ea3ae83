"""From a graph of aten operations to a callable: lower, fuse, print, build, wrap.

Each stage maps one frozen value to the next and is a step of the record; what it made is an
artifact, each line of it linked to what it came from:

    wrapper line, kernel line  <-  loop IR line  <-  graph node
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Mapping
from typing import Literal

import torch.fx as fx

from compiler_core import build, ir
from compiler_core.codegen import Code, Launcher, cpp
from compiler_core.codegen.wrapper import Runner, Wrapper
from compiler_core.config import Options
from compiler_core.errors import UsageError
from compiler_core.lower import lower
from compiler_core.record import Compile, Kernel, Span

Which = Literal["forward", "backward"]
LANGUAGES = ("cpp", "triton")


def compile_kernels(
    gm: fx.GraphModule, which: Which, compile_: Compile, options: Options, language: str
) -> Runner:
    """A function of the graph's inputs, as one sequence, that returns its outputs as a list.

    BuildError: a tool that makes kernels failed or is missing; the message names the remedy.
    """
    if language not in LANGUAGES:
        raise UsageError(f"no kernels in {language!r}; there are {', '.join(LANGUAGES)}")
    with compile_.step("lower", which):
        program = lower(gm, which).numbered()
    with compile_.step("codegen", which):
        code = _generate(program, language)
        wrapper = Wrapper(program, code.takes)
    with compile_.step("build", which):
        kernels = _build(code, program)
    return wrapper.runner(kernels)


def _generate(program: ir.Program, language: str) -> Code:
    if language == "cpp":
        return cpp.generate(program, build.simd_math())
    return importlib.import_module("compiler_core.codegen.triton").generate(program)  # type: ignore[no-any-return]


def _build(code: Code, program: ir.Program) -> Mapping[str, Launcher]:
    if code.language == "triton":
        return importlib.import_module("compiler_core.codegen.triton").build(code)  # type: ignore[no-any-return]
    loops = [s for s in program.steps if isinstance(s, ir.Loops)]
    library = build.load(code.text) if loops else None
    return {k.name: _function(library, k) for k in loops if library is not None}


def _function(library: ctypes.CDLL, loops: ir.Loops) -> Launcher:
    function = getattr(library, loops.name)
    function.argtypes = [ctypes.c_void_p] * len(loops.arguments)
    function.restype = None
    return function  # type: ignore[no-any-return]
