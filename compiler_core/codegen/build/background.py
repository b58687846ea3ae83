"""Builds in threads: the kernels of a forward are built while its backward is compiled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from typing import Generic, TypeVar

from compiler_core.codegen.build import external
from compiler_core.support.interrupts import safe_point

POLL_S = 0.1
"""How often signals are looked for while a build runs."""
_started: ContextVar[list[threading.Event] | None] = ContextVar("_started", default=None)
_Built = TypeVar("_Built")


class BackgroundBuild(Generic[_Built]):
    """The call of `build` in a thread, with the context variables of the caller."""

    def __init__(self, build: Callable[[], _Built]) -> None:
        self._build, stopping = build, threading.Event()
        if (started := _started.get()) is not None:
            started.append(stopping)
        with external.stopped_by(stopping):
            context = copy_context()
        self._future: Future[_Built] | None = None
        self._pool = ThreadPoolExecutor(1, "cutaway-build")
        with suppress(RuntimeError):  # no more threads can be started
            self._future = self._pool.submit(context.run, build)
        self._pool.shutdown(wait=False)

    def result(self) -> _Built:
        """Waits for the build, and returns its result or raises its error.  Signals are handled meanwhile."""
        if self._future is None:
            return self._build()
        while wait([self._future], timeout=POLL_S).not_done:
            safe_point()
        self._pool.shutdown()  # the thread ends: Python warns of a fork beside threads
        return self._future.result()


@contextmanager
def stopped_on_error() -> Iterator[None]:
    """Context manager that stops the builds which were started in its block, if the block raises an exception."""
    started: list[threading.Event] = []
    token = _started.set(started)
    try:
        yield
    except BaseException:
        for stopping in started:
            stopping.set()
        raise
    finally:
        _started.reset(token)
