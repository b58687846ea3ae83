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

    Replay                the states of the symbolic interpreter after each recorded step
    decompile             returns bytecode as Python text, and the line of each instruction
    explain_partition     returns what a partition saves, and why, for the record
    find_problems         returns the problems of a record
    link_guards           links what was recorded of guards in steps to the guards
    record_guard_costs    writes the cost of each guard to the record
    record_machine_code   compiles the kernels of an artifact for a target, and records their machine code
    record_rank_if_asked  records this process as a rank of a job, if it is not recorded yet
    record_steps          returns the recorder and the class of interpreters that record steps
    time_parts            returns how long each part of a program takes on the device
"""

frame_watch: FrameWatch | None = None
"""The watch of the frames of a thread that is active, of all threads."""


def tool(name: str) -> Callable[..., Any] | None:
    """Returns a function of the tools, whose module is imported when it is first needed; None without the tools."""
    if name not in TOOLS:
        return None
    found: Callable[..., Any] = getattr(importlib.import_module(TOOLS[name]), name)
    return found
