"""Signals while code is compiled and while guards are checked.

The handler of a signal may raise, as Python's does for Ctrl-C.  Two places cannot take an exception at any moment:

* PyTorch's C++ code that calls Python while it traces.  Some of its functions must not throw, and the process ends.
  So while a frame is compiled in the main thread, handlers run at `safe_point`, and not where the signal arrives.
* PyTorch's guard tree, which takes any exception of a Python guard for "does not hold" and forgets it.  A guard made
  by `guard_function` keeps the exception, and it is raised when C++ has returned.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGBREAK")
_SIGNALS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))
_MAIN_THREAD = threading.main_thread().ident

# ---------------------------------------------------------------- while a frame is compiled


class _Raised(BaseException):
    """Carries an `Exception` that a handler raised past the places that would take it for a failure of a compile."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class _Held:
    """The state of the main thread, the only one in which Python runs handlers of signals."""

    def __init__(self) -> None:
        self.depth = 0
        """How many sections hold signals back."""
        self.arrived: list[int] = []
        self.handlers: dict[int, Callable[[int, Any], Any]] = {}
        """The handlers in whose place `on_signal` stands."""
        self.error: Exception | None = None
        """What a handler raised last."""

    def on_signal(self, number: int, frame: Any) -> None:
        if self.depth:
            self.arrived.append(number)
        else:  # while `allowed`, or before the handlers have returned at the end of a section
            self.run_handler(number, frame)

    def enter(self) -> None:
        self.depth += 1
        if self.depth == 1:
            self.stand_in()

    def stand_in(self) -> None:
        """Put `on_signal` in the place of the handlers."""
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler) and handler != self.on_signal:
                self.handlers[number] = handler
                signal.signal(number, self.on_signal)

    def leave(self) -> None:
        self.depth -= 1
        if self.depth:
            return
        for number, handler in self.handlers.items():
            if signal.getsignal(number) == self.on_signal:
                signal.signal(number, handler)
        self.deliver()

    def deliver(self) -> None:
        while self.arrived:
            number = self.arrived.pop(0)
            self.run_handler(number, sys._getframe())

    def run_handler(self, number: int, frame: Any) -> None:
        try:
            self.handlers[number](number, frame)
        except Exception as error:
            self.error = error
            raise


_held = _Held()


@contextmanager
def held() -> Iterator[None]:
    """Hold signals back until the next `safe_point`, or the end.  Only the main thread gets any."""
    if get_ident() != _MAIN_THREAD:
        yield
        return
    try:
        _held.enter()
        yield
    except _Raised as raised:
        if _held.depth > 1:
            raise
        raise raised.error from None
    finally:
        _held.error = None
        _held.leave()


@contextmanager
def allowed() -> Iterator[None]:
    """Let handlers run when their signals arrive: for functions of the user's that run while a frame is compiled."""
    if get_ident() != _MAIN_THREAD or not _held.depth:
        yield
        return
    depth = _held.depth
    try:
        _held.depth = 0
        _held.deliver()
        yield
    except Exception as error:
        if error is _held.error:
            raise _Raised(error) from None
        raise
    finally:
        _held.depth = depth
        _held.stand_in()  # what runs in between may have set handlers


def safe_point() -> None:
    """Run the handlers of the signals that have arrived.

    To be called often while a frame is compiled, from functions with no C++ code of PyTorch's among their callers
    back to the frame hook.
    """
    if _held.arrived and get_ident() == _MAIN_THREAD:
        try:
            _held.deliver()
        except Exception as error:
            raise _Raised(error) from None


# ---------------------------------------------------------------- while guards are checked

DOES_NOT_HOLD = (KeyError, AttributeError, IndexError, TypeError, ValueError, ArithmeticError)
"""What a guard's own check may raise where there is something else than at capture."""

kept: list[BaseException] = []
"""What handlers of signals raised in guards, to be raised by `raise_kept`."""


def guard_function(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """`check` for PyTorch's guard tree: False where it raises; what a signal handler raised in it is kept.

    It is the `send` of a generator: a generator goes on inside its ``try``, while the call of a Python function can
    be interrupted before its first line.  A tree is checked by one thread at a time, so the generator is too.
    """
    checks = _checks(check)
    next(checks)
    return checks.send


def _checks(check: Callable[[Any], bool]) -> Generator[bool, Any, None]:
    holds = False
    while True:
        try:
            while True:
                holds = check((yield holds))
        except GeneratorExit:
            return
        except DOES_NOT_HOLD:
            holds = False
        except BaseException as error:
            holds = False
            kept.append(error)


def raise_kept() -> None:
    """Raise what was kept in the main thread.  The frame hook asks first, and the outermost compiled call last."""
    if kept and get_ident() == _MAIN_THREAD:
        error = kept.pop()
        kept.clear()
        raise error
