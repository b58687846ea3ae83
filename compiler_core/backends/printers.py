"""Prints the loops of a program as kernels in one language."""

from __future__ import annotations

from collections.abc import Mapping

from compiler_core.codegen.build import compilers
from compiler_core.codegen.cpp import printer as cpp
from compiler_core.codegen.source import KernelSource
from compiler_core.codegen.triton import printer as triton
from compiler_core.loops import ir
from compiler_core.loops.schedule.block_sizes import Blocks


def generate(
    program: ir.Program, language: ir.Language, tuned: Mapping[str, Blocks] = triton.NO_TUNED_BLOCKS
) -> KernelSource:
    """Returns the source of all kernels of `program` in `language`; `tuned` has the block sizes of Triton kernels."""
    if language == "triton":
        return triton.generate(program, tuned)
    return cpp.generate(program, compilers.simd_math())
