"""Guards: the conditions under which compiled code may be used again.

Capture adds a `GuardSpec` for every fact about the outside world that it depends on.  The list is used in three ways:
printed as Python for the record (`listing`), installed in PyTorch's C++ guard tree, which runs before every call
(`tree`; `module_trees` for modules, `entry_guards` for what PyTorch's cache holds), and checked in Python after a call
that no compiled code covers, to name the guards that failed.

`sources/` says where a value comes from, `kinds` what a guard is, and `value_guards`, `tensor_guards`, `state_guards`,
`relation_guards` and `library` define the kinds.  `conditions` are guards on sizes and numbers, `constants` compares
constants, and `lifetimes` has the weak references to what may be freed.
"""

from compiler_core.guards import relation_guards, tensor_guards, value_guards  # noqa: F401  (they register their kinds)
from compiler_core.guards.kinds import KINDS, GuardSpec, guarded_value
from compiler_core.guards.library import LibraryLookups
from compiler_core.guards.listing import all_hold, apply_guard_filter, failures, guards_text
from compiler_core.guards.state_guards import current_gpu_guard, no_dispatch_mode_guard, state_guard
from compiler_core.guards.tree import GuardTree, HeldTensors

__all__ = [
    "KINDS", "GuardSpec", "GuardTree", "HeldTensors", "LibraryLookups", "all_hold", "apply_guard_filter",
    "current_gpu_guard", "failures", "guarded_value", "guards_text",
    "no_dispatch_mode_guard", "state_guard",
]  # fmt: skip
