"""Guards: what must hold for compiled code to be used again.

There is one list of `GuardSpec`s.  It is read in three ways: as readable Python (the record), as
PyTorch's C++ guard tree (what runs before every call) and, when a call was not covered, in Python
once more to say which guard failed and what it saw.
"""

from compiler_core.guards.cost import cost_of, costs
from compiler_core.guards.kinds import KINDS, GuardSpec, current_gpu_guard, frozen, no_dispatch_mode_guard, state_guard
from compiler_core.guards.library import LibraryNames
from compiler_core.guards.listing import filtered, first_failure, guards_text
from compiler_core.guards.tree import GuardTree

__all__ = [
    "KINDS", "GuardSpec", "GuardTree", "LibraryNames", "cost_of", "costs", "current_gpu_guard", "filtered",
    "first_failure", "frozen", "guards_text", "no_dispatch_mode_guard", "state_guard",
]  # fmt: skip
