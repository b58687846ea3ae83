"""Silences the warnings that PyTorch gives while we trace: they are given when the compiled code runs."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

_module: Any = warnings
_lock = threading.RLock()
_depth = 0
"""How many `silence_warnings` blocks are active, in all threads."""
_user_state: tuple[Any, Any] = ([], None)
"""The user's filters and the function that shows a warning, while a block is active."""
_ALL = ("always", None, Warning, None, 0)
_thread = threading.local()
"""``collectors``: the lists that this thread's warnings go to; the innermost is last."""


@contextmanager
def silence_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Collects this thread's warnings in the yielded list instead of showing them.

    Unlike `warnings.catch_warnings`, it leaves Python's notes of which warnings were shown already unchanged.
    """
    messages: list[warnings.WarningMessage] = []
    collectors = _collectors()
    _install()
    collectors.append(messages)
    try:
        yield messages
    finally:
        collectors.pop()
        _uninstall()


@contextmanager
def warn_always(enabled: bool = True) -> Iterator[None]:
    """Has PyTorch also give the warnings that it gives once in a process, without noting that it gave them."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(enabled)
    try:
        yield
    finally:
        torch.set_warn_always(before)


@contextmanager
def unsilence_warnings() -> Iterator[None]:
    """Restores the user's filters and output inside `silence_warnings`, for a warning of the compiler itself."""
    with _lock:
        silenced = _module.filters, _module._showwarnmsg
        if _depth:
            _module.filters, _module._showwarnmsg = _user_state
        try:
            yield
        finally:
            if _depth:
                _module.filters, _module._showwarnmsg = silenced


def silenced() -> Sequence[warnings.WarningMessage]:
    """Returns this thread's warnings so far in the innermost `silence_warnings`."""
    collectors = _collectors()
    return collectors[-1] if collectors else ()


def _collectors() -> list[list[warnings.WarningMessage]]:
    if not hasattr(_thread, "collectors"):
        _thread.collectors = []
    collectors: list[list[warnings.WarningMessage]] = _thread.collectors
    return collectors


def _install() -> None:
    global _depth, _user_state
    with _lock:
        if not _depth:
            _user_state = _module.filters, _module._showwarnmsg
            _module.filters, _module._showwarnmsg = [_ALL], _collect
        _depth += 1


def _uninstall() -> None:
    global _depth
    with _lock:
        _depth -= 1
        if not _depth:
            added = _module.filters[:-1]  # by a library that was imported meanwhile; the last filter is _ALL
            _module.filters, _module._showwarnmsg = _user_state
            _module.filters[:0] = added


def _collect(message: warnings.WarningMessage) -> None:
    collectors = _collectors()
    if collectors:
        collectors[-1].append(message)
    else:  # a warning of a thread that does not trace
        _user_state[1](message)
