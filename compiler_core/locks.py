"""Locks after a fork: one that another thread of the parent held would stay locked in the child for ever."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

_owners: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def free_after_fork(owner: Any, name: str) -> None:
    """Give `owner` (an object or a module) a new `threading.RLock` in its attribute `name` in each forked child where
    a thread that is not there held it.  To be used as ``with owner.name:``."""
    _owners[owner] = name


def _free_all() -> None:
    for owner, name in list(_owners.items()):
        lock = getattr(owner, name)
        if lock.acquire(blocking=False):  # free, or held by the thread that forked
            lock.release()
        else:
            setattr(owner, name, threading.RLock())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_all)
