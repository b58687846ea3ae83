"""Frames that cannot be captured and run as plain Python: for which further calls that holds.

The modules of a library share code that says little: each ``nn.Sequential`` has the same ``forward``.  What cannot be
captured for one, such as a hook of a child, need not be there for another.  So for a ``forward`` of a library the
decision holds for calls with the same module, for as many modules as a frame may be recompiled; for other code it holds
for all calls.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from compiler_core.guards import GuardSpec, GuardTree
from compiler_core.guards.lifetimes import WeakBox, on_death
from compiler_core.guards.sources import LocalSource, Scope
from compiler_core.hook.frame_hook import FrameInfo
from compiler_core.hook.skip_rules import is_library_file
from compiler_core.pipeline.code_state import InstalledCode


def plain_entry(info: FrameInfo, compile_id: str, drop: Callable[[weakref.ref[Any]], None]) -> InstalledCode | None:
    """Returns what runs a frame's own code for calls with the same module; None if it is not a ``forward`` of a
    library.

    Args:
        info: the frame.
        compile_id: the id of the compile that could not capture it.
        drop: called when the module dies.
    """
    code = info.code
    if code.co_name == "forward" and is_library_file(code.co_filename):
        name = code.co_varnames[0]
        module = info.f_locals.get(name)
        if isinstance(module, torch.nn.Module):
            box = WeakBox(module, type(module).__qualname__)
            guards = [GuardSpec("ID_MATCH", LocalSource(name), box)]
            manager = GuardTree(Scope(info.f_locals, info.f_globals, info.closure), code).build(guards)
            return InstalledCode(compile_id, code, code, True, guards, manager, on_death([box], drop), is_plain=True)
    return None
