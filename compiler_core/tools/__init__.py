"""Instruments: they look at a compile, edit, time, compare or explain it.  No stage of the compiler imports them.

recording            `record`, `record_ranks`: what is compiled from here on is recorded
explain              one call explained
pin                  runs a compile without its guards
capture_methods      compares `torch.jit.trace`, `torch.export` and others on one function
replay               runs the programs of a finished record, for `measure` and `accuracy`
roofline             lower bounds of kernel times
standalone_script    a graph's program as a Python file
check                checks this machine: ``python -m compiler_core.tools.check``
growing_file         a file that is written at once, and whose end never ends the program
questions/           what a finished record answers, of one run or of two
inspection/          the compiles of a function: those in use, with something changed, with another partition
frames/              which Python frames ran in a compiled call
decompile/           bytecode as Python
machine_code/        kernels as machine code
editing/             edited kernels, wrappers and graphs
reproduce/           files that show a fault
timing/              times of a call in several forms
stock/               stock `torch.compile`, observed
sweep/, ranks/       many models; the ranks of a distributed job
assertions/          `assert_compiles`
testing/             compares compiled programs with eager PyTorch

This module sets what the stages call (`support/instruments.py`); each tool is imported when it is first needed.
"""

from __future__ import annotations

from types import CodeType
from typing import TYPE_CHECKING

from compiler_core.support import instruments

if TYPE_CHECKING:
    from compiler_core.records import Artifact, Compile, Span


def _decompile(code: CodeType) -> tuple[str, list[Span]]:
    from compiler_core.tools.decompile import decompile

    return decompile(code)


def _record_machine_code(compile_: Compile, kernels: Artifact, target: str) -> None:
    from compiler_core.tools.machine_code.compiled_forms import record_machine_code

    record_machine_code(compile_, kernels, target)


def _record_rank() -> None:
    from compiler_core.tools.recording import record_rank_if_asked

    record_rank_if_asked()


instruments.decompile = _decompile
instruments.record_machine_code = _record_machine_code
instruments.record_rank = _record_rank
