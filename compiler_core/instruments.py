"""What the tools do while code is compiled and recorded.  The stages find it here by name.

No stage imports the tools, so the compiler is whole without them; a record then lacks what they add.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compiler_core.tools.frames.frame_watch import FrameWatch

TOOLS: dict[str, str] = {}
"""The functions of the tools that stages call, by name, with their modules; `compiler_core.tools` fills it.

    breaking_code         returns the user's code at a graph break
    callee_names          returns the user's expressions of what a caller's resume function passes to another
    check_names           raises CompilerBug if a generated Triton kernel reads an undefined name
    comparison_text       returns what differs in two runs as text
    decompile             returns bytecode as Python text, and the line of each instruction
    example_inputs        returns the function of a wrapper's source that makes inputs like those at capture
    explain_partition     returns what a partition saves, and why, for the record
    find_problems         returns the problems of a record
    link_guards           links what was recorded of guards in steps to the guards
    record_change         records a graph that the user's backend changed
    record_from_file      reads a record; record_from_json, record_from_plain: from a text, from plain data
    record_guard_costs    writes the cost of each guard to the record
    record_machine_code   compiles the kernels of an artifact for a target, and records their machine code
    record_rank_if_asked  records this process as a rank of a job, if it is not recorded yet
    record_steps          returns the recorder and the class of interpreters that record steps
    Replay                the states of the symbolic interpreter after each recorded step
    stack_names           returns the user's expressions of the values on the stack at a graph break
    timings_text          returns times as a table, with what makes them doubtful
    trial_numbers         returns what a trial of an advice changed, in words
    triton_lookups        context manager that notes each lookup of a kernel in Triton's cache
    tuned_blocks          returns the block sizes of Triton kernels that options ask for: the fastest, or those named
    UserChanges           the user's passes, rules and edits, which the stages apply
    verdict               returns whether compiling was worth it
    what_failed           returns why a frame was compiled again, in sentences
"""

frame_watch: FrameWatch | None = None
"""The watch of the frames of a thread that is active, of all threads."""


def tool(name: str) -> Callable[..., Any] | None:
    """Returns a function of the tools, whose module is imported when it is first needed; None without the tools."""
    if name not in TOOLS:
        return None
    found: Callable[..., Any] = getattr(importlib.import_module(TOOLS[name]), name)
    return found
