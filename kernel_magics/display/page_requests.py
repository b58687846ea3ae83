"""Runs what the page of an explorer asks for: timings of the cell, and experiments with it.

The page's messages may arrive on another thread while a cell runs.  What they ask for runs on the main thread, between
cells, as a cell does.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from compiler_core.errors import UsageError
from kernel_magics.display import outputs
from kernel_magics.display.interrupt import Interrupt

CellTask = Callable[[Sequence[str], Callable[[str, float], None]], None]
"""Runs the cell again as some words say (names of forms, or an experiment), and calls a function with its progress."""


class ChangeRefused(UsageError):
    """A change of the code was tried and is not offered; the message is the whole reason."""


class PageRequests:
    """The requests of one explorer.

    Args:
        task: times the cell, which fills the explorer's record, or makes an experiment.
        show: called with what the page shows: what is running, the share of it that is done, and a message.
        finish: called when the task is done.
        done: what the task does to the cell, for messages: "timed" or "tried".
    """

    def __init__(
        self, task: CellTask, show: Callable[[str, float, str], None], finish: Callable[[], None], done: str = "timed"
    ) -> None:
        self._task, self._show, self._finish, self._done = task, show, finish, done
        self._loop = _running_loop()
        self._interrupt: Interrupt | None = None
        self._lock = threading.Lock()
        self._is_pending = self._is_stopped = False

    def request(self, words: Sequence[str]) -> None:
        """Runs the task as soon as no cell runs; does nothing if it is running.  Called on any thread."""
        with self._lock:
            if self._is_pending:
                return
            self._is_pending, self._is_stopped = True, False
        if threading.current_thread() is threading.main_thread() or self._loop is None:
            self._run(words)
        else:
            self._show("waiting for the running cell", 0.0, "")
            self._loop.call_soon_threadsafe(self._run, words)

    def stop(self) -> None:
        """Stops the task, which then leaves the record as it was.  Called on any thread."""
        self._is_stopped = True
        if self._interrupt is not None:
            self._interrupt()

    def run(self, words: Sequence[str]) -> None:
        """Runs the task now; raises what it raises."""
        self._is_stopped = False
        self._perform(words)

    def _perform(self, words: Sequence[str]) -> None:
        self._task(words, self._show_progress)
        self._finish()  # before the buttons are back: the page makes a new explorer of the record
        self._show("", 0.0, "")

    def _show_progress(self, text: str, share: float) -> None:
        if self._is_stopped:  # the interrupt may have been dropped, where an exception in a finalizer is
            raise KeyboardInterrupt
        self._show(text, share, "")

    def _run(self, words: Sequence[str]) -> None:
        """Runs the task on the main thread, and shows the reason if that is not possible."""
        message = ""
        try:
            if self._is_stopped:
                raise KeyboardInterrupt
            if outputs.cell_is_running():
                raise UsageError("a cell is running; press again when it has ended")
            with self._interruptible():
                self._perform(words)
        except KeyboardInterrupt:
            message = f"Stopped: nothing was {self._done}."
        except ChangeRefused as refusal:
            message = str(refusal)
        except UsageError as refusal:
            message = f"Not {self._done}: {refusal}."
        except Exception as error:
            message = f"Not {self._done}: {type(error).__name__}: {error}"
        finally:
            self._is_pending = False
        if message:
            self._show("", 0.0, message)

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Context manager in which `stop` and the kernel's Stop button raise KeyboardInterrupt."""
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self._interrupt = Interrupt()
        try:
            yield
        finally:
            self._interrupt.disarm()
            self._interrupt = None
            signal.signal(signal.SIGINT, before)


def _running_loop() -> Any:
    """Returns the event loop of the kernel's main thread; None if the explorer was made elsewhere."""
    try:
        return asyncio.get_running_loop() if threading.current_thread() is threading.main_thread() else None
    except RuntimeError:
        return None
