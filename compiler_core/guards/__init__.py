"""Guards: the conditions under which compiled code may be used again.

Capture adds a `GuardSpec` for every fact about the outside world that it depends on.  The list is used in three ways:
printed as Python for the record (`kinds`), installed in PyTorch's C++ guard tree, which runs before every call
(`tree`; `module_trees` for modules), and checked in Python after a call
that no compiled code covers, to name the guards that failed.

`sources` says where a value comes from, `kinds` what a guard is, and `value_guards`, `relation_guards` (identity,
conditions on sizes, numbers and flags) and `state_guards` have the table of kinds.  `lifetimes` has the weak references
to what may be freed.
"""

from compiler_core.guards import relation_guards, value_guards
from compiler_core.guards.kinds import (
    KINDS,
    GuardSpec,
    all_hold,
    apply_guard_filter,
    failures,
    guarded_value,
    guards_text,
)
from compiler_core.guards.state_guards import LibraryLookups, current_gpu_guard, no_dispatch_mode_guard, state_guard
from compiler_core.guards.tree import GuardTree, HeldTensors
