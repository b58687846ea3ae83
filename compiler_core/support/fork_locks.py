"""Replaces locks in forked child processes.

A lock that another thread of the parent held at the fork would stay locked in the child forever, since that thread does
not exist there.
"""

from __future__ import annotations

import os
import threading
from types import ModuleType

_locks: list[tuple[ModuleType, str]] = []


def replace_after_fork(module: ModuleType, name: str) -> None:
    """Registers the `threading.RLock` that `module` has under `name`.  In each forked child it is replaced by a new one
    if a thread that did not survive the fork held it.

    Use the lock as ``with module.name:``, never through another reference, which would still be the old lock.
    """
    _locks.append((module, name))


def _replace_held_locks() -> None:
    for module, name in _locks:
        lock = getattr(module, name)
        if lock.acquire(blocking=False):  # free, or held by the thread that forked
            lock.release()
        else:
            setattr(module, name, threading.RLock())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replace_held_locks)
