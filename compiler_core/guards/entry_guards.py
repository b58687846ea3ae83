"""The guards of one of our cache entries, in the form that PyTorch's cache and stock torch.compile read.

PyTorch stores entries in the code object of the frame, where stock may find ours: all of them before PyTorch 2.13, and
since then those that are made outside the main thread (see `hook/frame_hook.py`).  It never runs them, since their
backend is another, but it counts entries towards its limit of recompiles, and asks each why it did not fit.  To stock,
ours are invalid entries, made for other objects: it does not count them, and does not read their guards.
"""

from __future__ import annotations

from typing import Any

from compiler_core.records.recompiles import ENTRY_OF_OURS
from compiler_core.torch_private import DeletedGuardManagerWrapper, RootGuardManager


def _is_alive() -> bool:
    return True


class EntryGuards(DeletedGuardManagerWrapper):
    """Has all attributes that C++, which reads them without checks, and Dynamo read."""

    def __init__(self, root: RootGuardManager | None = None) -> None:
        super().__init__(ENTRY_OF_OURS)
        if root is not None:
            self.root = root
        self.diff_guard_root = self.root
        self.closure_vars, self.args, self.verbose_code_parts = {}, [], []
        # Stands for a weak reference to an object that no frame has: no local variable has an empty name.
        self.id_matched_objs: dict[str, Any] = {"": _is_alive}

    def collect_diff_guard_sources(self) -> Any:
        """Adds nothing to what stock checks first in its entries."""
        return ()

    def populate_diff_guard_manager(self) -> None:
        """Keeps all guards: stock's stance `skip_guard_eval_unsafe` would check some of them only."""
