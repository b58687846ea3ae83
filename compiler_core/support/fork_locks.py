"""Lets a forked child process compile, whatever other threads of its parent did at the fork.

A lock that another thread held would stay locked in the child forever, since that thread is not there: a lock of
ours, or the lock of a module that the thread imported.  What the thread had half done would stay half done.  So a fork
first waits, for a limited time, until no other thread compiles or imports what compiles need; a lock of ours that is
held all the same is replaced in the child.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

PACKAGES = frozenset({"compiler_core", "kernel_magics", "torch", "triton", "sympy", "networkx", "numpy", "mpmath"})
"""What compiles import.  Another module may run for as long as its program does: a fork does not wait for it."""
WAIT_S = 60.0
"""For how long a fork waits at most: the other thread may wait for the one that forks."""
LOOK_EVERY_S = 0.005

_locks: list[tuple[ModuleType, str]] = []
_notes: list[Callable[[], None]] = []
_held: dict[int, Any] = {}
"""PyTorch's lock of compiles, by the threads that fork and hold it meanwhile."""


def replace_after_fork(module: ModuleType, name: str) -> None:
    """Registers the `threading.RLock` that `module` has under `name`.  In each forked child it is replaced by a new one
    if a thread that did not survive the fork held it.

    Use the lock as ``with module.name:``, never through another reference, which would still be the old lock.
    """
    _locks.append((module, name))


def note_before_fork(note: Callable[[], None]) -> None:
    """Registers what looks at other threads before a fork: it is called once all waiting is done.

    While a fork waits, other threads go on, so what was seen before need not hold any more.
    """
    _notes.append(note)


def _settle() -> None:
    """Waits until no other thread compiles or imports, and keeps others from compiling during the fork."""
    until = time.monotonic() + WAIT_S
    _await_imports(until)
    lock = getattr(sys.modules.get("torch._dynamo.convert_frame"), "compile_lock", None)
    if lock is not None and lock.acquire(timeout=max(until - time.monotonic(), 0)):
        _held[threading.get_ident()] = lock
    _await_imports(until)
    for note in _notes:
        note()


def _await_imports(until: float) -> None:
    while _is_importing(but=threading.get_ident()) and time.monotonic() < until:
        time.sleep(LOOK_EVERY_S)


def _is_importing(but: int) -> bool:
    """Returns whether a thread other than `but` imports one of the packages."""
    locks: dict[str, Any] = getattr(importlib._bootstrap, "_module_locks", {})
    for name, reference in list(locks.items()):
        if name.partition(".")[0] in PACKAGES:
            owner = getattr(reference(), "owner", None)
            if owner not in (None, but):
                return True
    return False


def _release() -> None:
    lock = _held.pop(threading.get_ident(), None)
    if lock is not None:
        lock.release()


def _release_and_replace() -> None:
    _release()
    _held.clear()
    for module, name in _locks:
        lock = getattr(module, name)
        if lock.acquire(blocking=False):  # free, or held by the thread that forked
            lock.release()
        else:
            setattr(module, name, threading.RLock())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_settle, after_in_parent=_release, after_in_child=_release_and_replace)
