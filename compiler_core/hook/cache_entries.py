"""Frees the cache entries in which PyTorch stores our compiled code.

PyTorch stores entries in the code object of the frame.  A single entry cannot be removed: it can be invalidated, and
all entries of one code object can be removed together.  Invalidating is safe at any time.  Removing is unsafe while
another thread may be searching the entries, and must not remove entries of stock torch.compile, so it is left to
`remove_invalid_entries`.
"""

from __future__ import annotations

import sys
import types
import weakref
from typing import Any

from compiler_core.guards.tree import EntryGuards
from compiler_core.hook import frame_hook
from compiler_core.torch_private import C_eval_frame, convert_frame, dynamo_eval_frame

_DELETED = EntryGuards()
_invalidated: dict[int, weakref.ref[types.CodeType]] = {}
_HOOKED_FILES = frozenset({frame_hook.__file__, dynamo_eval_frame.__file__})


def has_entry(guard_manager: Any) -> bool:
    """Whether the entry with these guards still exists (torch._dynamo.reset() removes all entries)."""
    return guard_manager.cache_entry is not None


def invalidate(code: types.CodeType, guard_manager: Any) -> None:
    """Frees what the entry of `code` with these guards holds."""
    if has_entry(guard_manager):
        guard_manager.extra_state.invalidate(guard_manager.cache_entry, _DELETED)
        _invalidated[id(code)] = weakref.ref(code)


def remove_invalid_entries() -> None:
    """Removes the entries of code objects that only have invalidated ones."""
    if not _invalidated or is_hooked_code_running():
        return
    for key, found in list(_invalidated.items()):
        code = found()
        if code is not None and not _may_remove(code):
            continue
        del _invalidated[key]
        if code is not None:
            C_eval_frame.reset_code(code)


def _may_remove(code: types.CodeType) -> bool:
    """Whether all entries are invalidated, and stock torch.compile has not compiled this code."""
    entries: list[Any] = C_eval_frame._debug_get_cache_entry_list(code)
    return all(e.code is None for e in entries) and code not in convert_frame.input_codes


def is_hooked_code_running(but: int | None = None) -> bool:
    """Whether any thread, except the one with the id `but`, runs code under our hook or stock's."""
    for thread, innermost in sys._current_frames().items():
        frame: types.FrameType | None = innermost if thread != but else None
        while frame is not None:
            if frame.f_code.co_filename in _HOOKED_FILES:
                return True
            frame = frame.f_back
    return False
