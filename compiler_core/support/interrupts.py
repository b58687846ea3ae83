"""Signals that arrive while code is compiled, while it runs, and while guards are checked.

The handler of a signal may raise an exception, as Python's own does for Ctrl-C.  In four places an exception cannot be
raised at any moment:

* C++ code of PyTorch that calls Python while it traces.  Some of its functions must not throw, or the process ends.
  So while a frame is compiled in the main thread, handlers run at `safe_point`, not where the signal arrives.
* PyTorch's guard tree.  It treats any exception of a Python guard as "the guard does not hold" and drops it.  A guard
  made by `guard_function` stores the exception, and it is raised after the C++ code has returned.
* Functions whose exceptions their callers drop: ``random.getstate`` and ``random.setstate``, which PyTorch's frame hook
  calls around our callback (the frame would run with an exception set), the callbacks of weak references, and the
  guards of stock `torch.compile`.  So our handlers stay in place after the callback (`keep_handlers`) and while a
  record is open (`kept_handlers`), and a signal that arrives there is sent again a moment later.  So is one that
  arrives while stock compiles, in a function that C++ code calls to dispatch an operator (`_is_called_from_cpp`) or
  that enters or leaves a context (`_enters_or_leaves`).
* Stock `torch.compile`, which replaces an `Exception` by another one.  Under observation a `BaseException` is raised
  instead, until the compile has ended (`passing_handler_errors`).

While compiled code runs, handlers run where the signal arrives.  What they raise is no failure of that code
(`raised_by_handler`).
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import random
import signal
import sys
import threading
import time
import weakref
from _thread import start_new_thread
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from threading import get_ident
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch.fx.experimental.sym_node
import torch.multiprocessing.reductions
import torch.utils.weak

from compiler_core.torch_private import (
    CheckFunctionManager,
    CompileContext,
    ExactWeakKeyDictionary,
    FxPatcher,
    dynamo_timed,
    simple_registry,
)

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGBREAK")
_SIGNALS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))
_MAIN_THREAD = threading.main_thread().ident or 0


def _codes_of(cls: type) -> Iterator[CodeType]:
    """Yields the code objects of a class's methods and of the functions that they define."""
    for method in vars(cls).values():
        if isinstance(method, FunctionType):
            yield method.__code__
            yield from (each for each in method.__code__.co_consts if isinstance(each, CodeType))


_CODES_THAT_DROP = frozenset(
    (
        *(random.Random.getstate.__code__, random.Random.setstate.__code__),
        *_codes_of(ExactWeakKeyDictionary),
        *_codes_of(FxPatcher),
        inspect.unwrap(dynamo_timed).__code__,  # a generator that is closed when it is freed
    )
)
"""The code of functions whose exceptions are dropped, and of stock's callbacks of weak references."""
_FILES_THAT_DROP = frozenset(
    function.__code__.co_filename
    for function in (
        *(weakref.finalize.__call__, weakref.WeakSet.add, torch.utils.weak.WeakIdKeyDictionary.__len__),
        torch.multiprocessing.reductions.StorageWeakRef.__del__,
        CheckFunctionManager.__init__,
        *(os.path.exists, PathFinder.find_spec),  # they drop an OSError, as TimeoutError is
        logging.StreamHandler.emit,  # it prints each Exception
    )
)
"""The files of finalizers and callbacks of weak references, of stock's guards, and of functions that ask for files."""
_MAX_DEPTH = 4
"""How many frames are looked at for those that drop exceptions, which call few functions."""
_FILES_CALLED_FROM_CPP = (simple_registry.__file__, torch.fx.experimental.sym_node.__file__)
"""The files with the rules of dispatch modes, where an exception ends the process, and with the arithmetic of symbolic
sizes, which C++ functions call that must not throw."""
_MAX_HELD_S = 0.3
"""For how long a signal is held while stock dispatches operators.  An exception there can leave its state broken."""
_RESEND_S = 0.001

# ---------------------------------------------------------------- while a frame is compiled


class _HandlerError(BaseException):
    """Wraps an `Exception` that a handler raised, so that no ``except Exception`` on the way treats it as a failed
    compile."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class _SignalState:
    """The state of the main thread, the only one in which Python runs signal handlers."""

    def __init__(self) -> None:
        self.depth = 0
        """How many nested blocks defer signals."""
        self.pending: list[int] = []
        self.arrivals: dict[int, float] = {}
        """When a signal arrived that is sent again, by its number."""
        self.handlers: dict[int, Callable[[int, Any], Any]] = {}
        """The user's handlers, which `handle` replaces."""
        self.is_installed = False
        """Whether `handle` stands in for the user's handlers."""
        self.kept = 0
        """How many `kept_handlers` blocks are open."""
        self.error: Exception | None = None
        """What a handler raised last."""

    def handle(self, number: int, frame: Any) -> None:
        if self.depth:
            self.pending.append(number)
        elif (
            _is_exception_dropped(frame) or _enters_or_leaves(frame) or _is_called_from_cpp(frame, self.held_s(number))
        ):
            start_new_thread(_send_again, (number,))  # unlike Thread.start, it does not wait
        else:  # while `immediate_signals`, or while the handlers are kept
            self.restore_handlers()
            try:
                self.run_handler(number, frame)
            except Exception as error:
                if not _is_called_by(_compile_frame, frame):
                    raise
                raise _HandlerError(error) from None
            finally:
                if self.kept:
                    self.install_handlers()

    def held_s(self, number: int) -> float:
        """Returns the seconds since a signal arrived whose handler has not run yet."""
        now = time.monotonic()
        return now - self.arrivals.setdefault(number, now)

    def enter(self) -> None:
        self.depth += 1
        if self.depth == 1:
            self.install_handlers()

    def install_handlers(self) -> None:
        """Replaces the user's handlers by `handle`."""
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler) and handler != self.handle:
                self.handlers[number] = handler
                signal.signal(number, self.handle)
        self.is_installed = True

    def restore_handlers(self) -> None:
        """Gives back the user's handlers, except those that the program has replaced meanwhile."""
        for number, handler in self.handlers.items():
            if signal.getsignal(number) == self.handle:
                signal.signal(number, handler)
        self.is_installed = False

    def leave(self, depth: int) -> None:
        """Ends a block that was entered at `depth`."""
        self.depth = depth
        if depth:
            return
        if not self.kept:
            self.restore_handlers()
        self.run_pending()

    def run_pending(self) -> None:
        while self.pending:
            number = self.pending.pop(0)
            self.run_handler(number, sys._getframe())

    def run_handler(self, number: int, frame: Any) -> None:
        self.arrivals.pop(number, None)
        try:
            self.handlers[number](number, frame)
        except Exception as error:
            self.error = error
            raise


def _is_exception_dropped(frame: Any) -> bool:
    """Returns whether what is raised in a frame may be dropped by those that called it last, or would be raised in the
    methods of `immediate_signals`."""
    if frame.f_code in _CODES_OF_IMMEDIATE:
        return True
    for _ in range(_MAX_DEPTH):
        if frame is None:
            return False
        if frame.f_code in _CODES_THAT_DROP or frame.f_code.co_filename in _FILES_THAT_DROP:
            return True
        frame = frame.f_back
    return False


def _is_called_by(function: Any, frame: Any) -> bool:
    """Returns whether `function` called `frame`, directly or not."""
    while frame is not None and frame.f_code is not function.__code__:
        frame = frame.f_back
    return frame is not None


def _enters_or_leaves(frame: Any) -> bool:
    """Returns whether a frame of stock's compile is called while a context is entered or left: an exception there would
    leave a mode on, or have its generator leave it later, in another order."""
    names = set()
    while frame is not None and frame.f_code is not _compile_frame.__code__:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    return frame is not None and not names.isdisjoint(("__enter__", "__exit__"))


def _is_called_from_cpp(frame: Any, held_s: float) -> bool:
    """Returns whether stock compiles and C++ code called a frame that must not raise, or, for the first `_MAX_HELD_S`
    seconds, that dispatches an operator."""
    if CompileContext.try_get() is None:
        return False
    while frame is not None:
        code = frame.f_code
        if code.co_filename in _FILES_CALLED_FROM_CPP:
            return True
        if code.co_name == "__torch_dispatch__" and held_s < _MAX_HELD_S:
            return True
        frame = frame.f_back
    return False


def _send_again(number: int) -> None:
    time.sleep(_RESEND_S)
    signal.pthread_kill(_MAIN_THREAD, number)


_state = _SignalState()


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Defers signals until the next `safe_point` or the end of the block.  Does nothing outside the main thread, which
    is the only one that receives signals."""
    if get_ident() != _MAIN_THREAD:
        yield
        return
    depth = _state.depth
    try:
        _state.enter()
        yield
    except _HandlerError as raised:
        if depth:
            raise
        raise raised.error from None
    finally:
        _state.error = None
        _state.leave(depth)


class immediate_signals:
    """Lets handlers run as soon as their signals arrive, inside `deferred_signals`: for functions of the user and for
    others that may be interrupted anywhere.

    A signal that arrives in its own methods is sent again: one raised there would leave the state as it is in the
    block.  (In a context manager made from a generator it would be raised in code of `contextlib`.)
    """

    def __enter__(self) -> None:
        self._depth = _state.depth if get_ident() == _MAIN_THREAD else 0
        if self._depth:
            try:
                _state.depth = 0
                _state.run_pending()
            except BaseException as error:
                self.__exit__(None, error, None)
                raise

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self._depth:
            _state.depth = self._depth
            _state.install_handlers()  # what ran in the block may have set handlers
            if isinstance(error, Exception) and error is _state.error:
                raise _HandlerError(error) from None


_CODES_OF_IMMEDIATE = frozenset(_codes_of(immediate_signals))


def _compile_frame(compile_: Callable[..., Any], *args: Any) -> Any:
    try:
        return compile_(*args)
    except _HandlerError as raised:
        raise raised.error from None


def passing_handler_errors(compile_: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that does what `compile_` does, the function or method by which stock compiles a frame, and
    raises what handlers raise as it is.  Stock replaces an `Exception` that is raised while it compiles."""

    @functools.wraps(compile_)
    def compile_frame(*args: Any) -> Any:
        return _compile_frame(compile_, *args)

    return compile_frame


def safe_point() -> None:
    """Runs the handlers of the signals that have arrived.

    Called often while a frame is compiled, and only where each C++ function of PyTorch between here and the frame hook
    passes exceptions on.
    """
    if _state.pending and get_ident() == _MAIN_THREAD:
        try:
            _state.run_pending()
        except Exception as error:
            raise _HandlerError(error) from None


def keep_handlers() -> None:
    """Lets our handlers stand in for the user's until `restore_handlers`.  Called last in the callback of the frame
    hook; they only call the user's, at once or, where an exception would be dropped, a moment later."""
    if not _state.depth and get_ident() == _MAIN_THREAD:
        _state.install_handlers()


def restore_handlers() -> None:
    """Gives back the user's handlers after `keep_handlers`."""
    if _state.is_installed and not _state.depth and not _state.kept and get_ident() == _MAIN_THREAD:
        _state.restore_handlers()


@contextmanager
def kept_handlers() -> Iterator[None]:
    """Lets our handlers stand in for the user's in the block, also between compiles: there the tensors of a compile are
    freed, which runs callbacks of weak references."""
    if get_ident() != _MAIN_THREAD:
        yield
        return
    try:
        _state.kept += 1
        keep_handlers()
        yield
    finally:
        _state.kept -= 1
        restore_handlers()


# ---------------------------------------------------------------- while compiled code runs


def raised_by_handler(error: BaseException) -> bool:
    """Returns whether a signal handler raised `error`, and not the code that the signal interrupted.

    Python calls a handler from the interrupted frame and passes it that frame, so the traceback has a function that
    was given the frame above it.  (A function that the program calls has no reason to be.)
    """
    entry, codes = error.__traceback__, {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    while entry is not None and entry.tb_next is not None:
        interrupted, called = entry.tb_frame, entry.tb_next.tb_frame
        if called.f_back is interrupted and (called.f_code in codes or _is_given(called, interrupted)):
            return True
        entry = entry.tb_next
    return False


def _code_of(handler: Any) -> CodeType | None:
    """Returns the code of a handler that is a function, a method or a partial call of one."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    return getattr(getattr(handler, "__func__", handler), "__code__", None)


def _is_given(called: FrameType, interrupted: FrameType) -> bool:
    """Returns whether a frame has another one among its variables, which its arguments are."""
    values = list(called.f_locals.values())
    values += [each for value in values if isinstance(value, tuple) for each in value]  # of ``*args``
    return any(value is interrupted for value in values)


# ---------------------------------------------------------------- while guards are checked

GUARD_FAILURES = (KeyError, AttributeError, IndexError, TypeError, ValueError, ArithmeticError)
"""What a guard's check may raise for a value that differs from the captured one: the guard does not hold."""
_NOT_HOLDING = (*GUARD_FAILURES, RecursionError, MemoryError)
"""With what it raises where there is no room to check, in which case the guard does not hold either."""

guard_errors: list[BaseException] = []
"""What signal handlers raised inside guards and callbacks of weak references, or may have raised, until
`raise_guard_error` raises it."""


def guard_function(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Wraps `check` for PyTorch's guard tree: returns False where `check` raises, and stores what a signal handler
    raised in it.

    The result is the `send` method of a generator.  A generator resumes inside its ``try`` block, while the call of a
    Python function can be interrupted before its first line.  A guard tree is checked by one thread at a time, and so
    is the generator.
    """
    checks = _guard_generator(check)
    next(checks)
    return checks.send


def _guard_generator(check: Callable[[Any], bool]) -> Generator[bool, Any, None]:
    holds = False
    while True:
        try:
            while True:
                holds = check((yield holds))
        except GeneratorExit:
            return
        except _NOT_HOLDING as error:
            holds = False
            # a handler may have raised a subclass: a call here could be interrupted, so `raise_guard_error` finds out
            if error.__class__ not in _NOT_HOLDING:
                guard_errors[:] = [error]
        except BaseException as error:
            holds = False
            guard_errors.append(error)


def weak_callback(function: Callable[[Any], object]) -> Callable[[Any], None]:
    """Wraps `function`, the callback of one weak reference, whose exceptions Python drops: stores what a signal handler
    raised in it, as `guard_function` does."""
    calls = _callback_generator(function)
    next(calls)
    return calls.send


def _callback_generator(function: Callable[[Any], object]) -> Generator[None, Any, None]:
    try:
        function((yield))
    except GeneratorExit:  # the reference was dropped first
        return
    except BaseException as error:
        if isinstance(error, Exception) and not raised_by_handler(error):
            raise  # a failure of the callback, which Python prints
        guard_errors.append(error)
    yield


def raise_guard_error() -> None:
    """Raises the stored exception of a signal handler, in the main thread.  Called first by the frame hook and last by
    the outermost compiled call."""
    if guard_errors and get_ident() == _MAIN_THREAD:
        error = guard_errors.pop()
        guard_errors.clear()
        if not isinstance(error, _NOT_HOLDING) or raised_by_handler(error):
            raise error
