"""Locks after a fork: one that another thread of the parent held would stay locked in the child for ever."""

from __future__ import annotations

import os
import threading
from types import ModuleType

_locks: list[tuple[ModuleType, str]] = []


def free_after_fork(module: ModuleType, name: str) -> None:
    """Give `module` a new `threading.RLock` as `name` in each forked child where a thread that is not there held it.
    To be used as ``with module.name:``, never by a name of one's own."""
    _locks.append((module, name))


def _free_all() -> None:
    for module, name in _locks:
        lock = getattr(module, name)
        if lock.acquire(blocking=False):  # free, or held by the thread that forked
            lock.release()
        else:
            setattr(module, name, threading.RLock())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_all)
