"""Builds in threads: the kernels of a forward are built while its backward is compiled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Generic, TypeVar

from compiler_core.codegen.build.external import check

_POLL_S = 0.1
"""How often signals are looked for while a build runs."""
_Built = TypeVar("_Built")
_here = threading.local()


def submit(pool: ThreadPoolExecutor, build: Callable[..., _Built], *args: Any) -> Future[_Built]:
    """Calls `build` in a thread of the pool, with the context variables of the caller."""

    def run() -> _Built:
        _here.builds = True
        return build(*args)

    return pool.submit(copy_context().run, run)


def is_build_thread() -> bool:
    """Whether this is a thread that a compile waits for.

    Python may free objects in it, and a ``__del__`` of theirs may call a compiled function.
    """
    return getattr(_here, "builds", False)


def await_all(futures: Sequence[Future[Any]]) -> None:
    """Waits until all have ended.  Signals are handled meanwhile; raises Stopped if this build is to end."""
    while wait(futures, timeout=_POLL_S).not_done:
        check()


class BackgroundBuild(Generic[_Built]):
    """The call of `build` in a thread, with the context variables of the caller."""

    def __init__(self, build: Callable[[], _Built]) -> None:
        self._build = build
        self._future: Future[_Built] | None = None
        self._pool = ThreadPoolExecutor(1, "cutaway-build")
        with suppress(RuntimeError):  # no more threads can be started
            self._future = submit(self._pool, build)
        self._pool.shutdown(wait=False)

    def result(self) -> _Built:
        """Waits for the build, and returns its result or raises its error.  Signals are handled meanwhile."""
        if self._future is None:
            return self._build()
        await_all([self._future])
        self._pool.shutdown()  # the thread ends: Python warns of a fork beside threads
        return self._future.result()
