"""Garbage collections wait until a compile has ended.

Python may start one wherever objects are made, and it calls every ``__del__`` and callback of the program's garbage.
In the middle of a compile these would meet the compiler's modes: tensors would be fake, and numbers symbols.  A compile
makes many objects, so that collections would also take a sixth of its time.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

MAX_OBJECTS = 2_000_000
"""With more new objects than this, some 200 MB, a collection does not wait for the end of the compile."""

_wanted: dict[int, bool] = {}
"""Whether the program lets Python collect garbage, by the threads that are inside `deferred_collections`."""


@contextmanager
def deferred_collections() -> Iterator[None]:
    """Context manager in which Python starts no garbage collection, in any thread."""
    thread = get_ident()
    outer = _wanted.get(thread)
    _wanted[thread] = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if _wanted.pop(thread):
            gc.enable()
        if outer is not None:
            _wanted[thread] = outer


@contextmanager
def allowed_collections() -> Iterator[None]:
    """Context manager for functions of the program inside `deferred_collections`: there Python collects as usual."""
    thread = get_ident()
    if thread not in _wanted:
        yield
        return
    if _wanted[thread]:
        gc.enable()
    try:
        yield
    finally:
        _wanted[thread] = gc.isenabled()  # the program may have changed it
        gc.disable()


def collect_if_many() -> None:
    """Collects garbage in the middle of a long compile that made much.  Called where none of its modes is active."""
    if _wanted.get(get_ident()) and gc.get_count()[0] > MAX_OBJECTS:
        gc.collect()


def _after_fork() -> None:
    """In a forked child, the threads that compile in its parent are not there."""
    for thread in set(_wanted) - {get_ident()}:
        if _wanted.pop(thread) and not _wanted:
            gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
