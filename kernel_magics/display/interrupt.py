"""Interrupts what the main thread runs, like Jupyter's Stop button."""

from __future__ import annotations

import signal
import threading


class Interrupt:
    """A callback that interrupts the main thread, from any thread, until `disarm` is called."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._armed = True

    def __call__(self) -> None:
        with self._lock:
            if self._armed:
                # a real signal also ends the wait for a compiler that runs as a process
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def disarm(self) -> None:
        """Makes the callback do nothing from now on."""
        with self._lock:
            self._armed = False
