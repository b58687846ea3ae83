"""Instruments: they look at a compile, edit, time, compare or explain it.  No stage of the compiler imports them.

recording            `record`, `record_ranks`: what is compiled from here on is recorded
explain              one call explained
pin                  runs a compile without its guards
capture_methods      compares `torch.jit.trace`, `torch.export` and others on one function
replay               runs the programs of a finished record, for `measure` and `accuracy`
roofline             lower bounds of kernel times
breaking_code        the user's code at a graph break
stack_values         what lies on the stack when Python evaluates an expression
example_inputs       random inputs like those that a program was captured with
value_texts          short texts of symbolic values
triton_names         undefined names in Triton kernels
triton_lookups       Triton's lookups of kernels in its cache
record_reading       reads records from JSON, which may come from a stranger
step_recorder        records the steps of the symbolic interpreter, with the option `steps`
standalone_script    a graph's program as a Python file
check                checks this machine: ``python -m compiler_core.tools.check``
guard_times          the time that guards add to a call
usual_guard_costs    what guards of each kind usually cost
in_turn              makes calls that are compared in turn, in rounds: all times that stand beside others
growing_file         a file that is written at once, and whose end never ends the program
questions/           what a finished record answers, of one run or of two
inspection/          the compiles of a function: those in use, with something changed, with another partition
frames/              which Python frames ran in a compiled call
decompile/           bytecode as Python
machine_code/        kernels as machine code
changes/             what the user changes in a compile: passes, rules, edited texts
editing/             edited kernels, wrappers and graphs, which are tried
reproduce/           files that show a fault
timing/              times of a call in several forms
stock/               stock `torch.compile`, observed
sweep/, ranks/       many models; the ranks of a distributed job
assertions/          `assert_compiles`
testing/             compares compiled programs with eager PyTorch

This module names what the stages call (`instruments.py`); each tool is imported when it is first needed.
"""

from __future__ import annotations

from compiler_core import instruments

instruments.TOOLS |= {
    "breaking_code": "compiler_core.tools.breaking_code",
    "callee_names": "compiler_core.tools.breaking_code",
    "check_names": "compiler_core.tools.triton_names",
    "comparison_text": "compiler_core.tools.questions.difference_texts",
    "decompile": "compiler_core.tools.decompile",
    "example_inputs": "compiler_core.tools.example_inputs",
    "explain_partition": "compiler_core.tools.inspection.partition_report",
    "find_problems": "compiler_core.tools.questions.problems",
    "link_guards": "compiler_core.tools.step_recorder",
    "record_change": "compiler_core.tools.changes.user_changes",
    "record_from_file": "compiler_core.tools.record_reading",
    "record_from_json": "compiler_core.tools.record_reading",
    "record_from_plain": "compiler_core.tools.record_reading",
    "record_guard_costs": "compiler_core.tools.guard_times",
    "record_machine_code": "compiler_core.tools.machine_code.compiled_forms",
    "record_rank_if_asked": "compiler_core.tools.recording",
    "record_steps": "compiler_core.tools.step_recorder",
    "Replay": "compiler_core.tools.questions.step_states",
    "stack_names": "compiler_core.tools.breaking_code",
    "trial_numbers": "compiler_core.tools.questions.difference_texts",
    "triton_lookups": "compiler_core.tools.triton_lookups",
    "tuned_blocks": "compiler_core.tools.timing.autotune",
    "UserChanges": "compiler_core.tools.changes.user_changes",
    "timings_text": "compiler_core.tools.questions.verdict",
    "verdict": "compiler_core.tools.questions.verdict",
    "what_failed": "compiler_core.tools.questions.what_failed",
}
