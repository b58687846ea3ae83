"""Nobody hears the warnings that PyTorch gives while we trace: the run gives them."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_module: Any = warnings
_lock = threading.RLock()
_depth = 0
_outer: tuple[Any, Any] = ([], None)
"""The filters, and what shows a warning, while any thread traces: those of the user."""
_ALL = ("always", None, Warning, None, 0)
_listening = threading.local()
"""``lists``: where this thread's warnings go, innermost last."""


@contextmanager
def unheard() -> Iterator[list[warnings.WarningMessage]]:
    """This thread's warnings go into the list and nowhere else.

    Unlike `warnings.catch_warnings` it leaves the notes of what was shown already as they are.
    """
    said: list[warnings.WarningMessage] = []
    lists = _lists()
    _enter()
    lists.append(said)
    try:
        yield said
    finally:
        lists.pop()
        _leave()


@contextmanager
def every_warning(said: bool = True) -> Iterator[None]:
    """With `said`, PyTorch gives the warnings, too, that it gives once in a process, and does not note that it has."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(said)
    try:
        yield
    finally:
        torch.set_warn_always(before)


@contextmanager
def aloud() -> Iterator[None]:
    """Warnings are the user's again, for one of ours."""
    with _lock:
        now = _module.filters, _module._showwarnmsg
        if _depth:
            _module.filters, _module._showwarnmsg = _outer
        try:
            yield
        finally:
            if _depth:
                _module.filters, _module._showwarnmsg = now


def _lists() -> list[list[warnings.WarningMessage]]:
    if not hasattr(_listening, "lists"):
        _listening.lists = []
    lists: list[list[warnings.WarningMessage]] = _listening.lists
    return lists


def _enter() -> None:
    global _depth, _outer
    with _lock:
        if not _depth:
            _outer = _module.filters, _module._showwarnmsg
            _module.filters, _module._showwarnmsg = [_ALL], _show
        _depth += 1


def _leave() -> None:
    global _depth
    with _lock:
        _depth -= 1
        if not _depth:
            added = _module.filters[: -len([_ALL])]  # by a library that was imported
            _module.filters, _module._showwarnmsg = _outer
            _module.filters[:0] = added


def _show(message: warnings.WarningMessage) -> None:
    lists = _lists()
    if lists:
        lists[-1].append(message)
    else:  # of another thread
        _outer[1](message)
