"""Cache entries: the places at which PyTorch keeps our compiled code, and giving them back.

An entry hangs on a code object, for a called function the user's own.  There is no call that
removes one: it can be emptied, and all that hang on one code object can be removed together.
Emptying is safe at any time.  Removing is not while a thread may be looking through them, and
must take nothing of stock torch.compile's away, so it waits for `sweep`.
"""

from __future__ import annotations

import sys
import types
import weakref
from typing import Any

import torch
from torch._C._dynamo import eval_frame
from torch._dynamo import convert_frame
from torch._dynamo.guards import DeletedGuardManagerWrapper

from compiler_core.hook import frame_hook

_GONE = DeletedGuardManagerWrapper("the compiled function is gone")
_emptied: dict[int, weakref.ref[types.CodeType]] = {}
_AT_WORK = frozenset({frame_hook.__file__, torch._dynamo.eval_frame.__file__})


def is_there(guard_manager: Any) -> bool:
    """Whether the entry that has these guards still is (torch._dynamo.reset() removes them all)."""
    return guard_manager.cache_entry is not None


def empty(code: types.CodeType, guard_manager: Any) -> None:
    """Free what the entry on `code` that has these guards holds."""
    if is_there(guard_manager):
        guard_manager.extra_state.invalidate(guard_manager.cache_entry, _GONE)
        _emptied[id(code)] = weakref.ref(code)


def sweep() -> None:
    """Remove emptied entries from code objects that have no others."""
    if not _emptied or is_at_work():
        return
    for key, found in list(_emptied.items()):
        code = found()
        if code is not None and not _may_remove(code):
            continue
        del _emptied[key]
        if code is not None:
            eval_frame.reset_code(code)


def _may_remove(code: types.CodeType) -> bool:
    """Whether all entries are empty, and stock torch.compile knows nothing of this code."""
    entries: list[Any] = eval_frame._debug_get_cache_entry_list(code)
    return all(e.code is None for e in entries) and code not in convert_frame.input_codes


def is_at_work(but: int | None = None) -> bool:
    """Whether any thread, `but` that one, runs hooked code, ours or stock's."""
    for thread, frame in sys._current_frames().items():
        at: types.FrameType | None = frame if thread != but else None
        while at is not None:
            if at.f_code.co_filename in _AT_WORK:
                return True
            at = at.f_back
    return False
