"""Effects of a cell outside of the process: files that it writes, programs that it starts, connections that it opens.

They cannot be undone, so ``--engine core,torch`` reports them, and a cell that has any is not timed.  A Python audit
hook observes them.
"""

from __future__ import annotations

import functools
import os
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_COMPILERS = ("torch._dynamo", "torch._inductor", "torch._functorch", "compiler_core")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def _describe_open(path: Any, mode: Any, flags: int, *_: Any) -> str | None:
    is_new = not isinstance(path, int)  # an integer is the descriptor of a file that is already open
    return f"the file {_text(path)}" if is_new and (flags or 0) & _WRITES else None


_EVENTS: dict[str, Callable[..., str | None]] = {
    "open": _describe_open,
    "os.remove": lambda path, *_: f"the file {_text(path)}",
    "os.rename": lambda old, new, *_: f"the files {_text(old)} and {_text(new)}",
    "os.truncate": lambda path, *_: f"the file {_text(path)}",
    "os.mkdir": lambda path, *_: f"the folder {_text(path)}",
    "os.rmdir": lambda path, *_: f"the folder {_text(path)}",
    **dict.fromkeys(("os.fork", "os.forkpty", "os.posix_spawn"), lambda *_: "another process"),
    "os.system": lambda command: f"the program {_text(command)}",
    "subprocess.Popen": lambda executable, *_: f"the program {_text(executable)}",
    "socket.connect": lambda socket, address: f"the connection to {_text(address)}",
}
_listeners: list[Callable[[str, tuple[Any, ...]], None]] = []


@contextmanager
def record_effects(namespace: dict[str, Any], effects: list[str]) -> Iterator[None]:
    """Appends a description of each outside effect of code in `namespace` to the list `effects`, each once."""

    def on_audit_event(event: str, args: tuple[Any, ...]) -> None:
        description = _EVENTS[event](*args)
        if description is not None and description not in effects and _called_from(sys._getframe(2), namespace):
            effects.append(description)

    with _listening(on_audit_event):
        yield


@contextmanager
def refuse_effects(namespace: dict[str, Any], refused: list[str]) -> Iterator[None]:
    """Context manager in which code of `namespace` has no outside effects: the call that would have one raises an
    `EffectRefused`.  Their descriptions are appended to the list `refused`."""

    def on_audit_event(event: str, args: tuple[Any, ...]) -> None:
        description = _EVENTS[event](*args)
        if description is not None and _called_from(sys._getframe(2), namespace):
            refused.append(description)
            raise EffectRefused(description)

    with _listening(on_audit_event):
        yield


class EffectRefused(Exception):
    """Raised in place of an outside effect."""


@contextmanager
def _listening(on_audit_event: Callable[[str, tuple[Any, ...]], None]) -> Iterator[None]:
    _install_audit_hook()
    _listeners.append(on_audit_event)
    try:
        yield
    finally:
        _listeners.remove(on_audit_event)


@functools.cache
def _install_audit_hook() -> None:
    from compiler_core.tools.stock.hooks import torch_internals

    torch_internals.skip_module(__name__)  # the hook runs inside code that is being compiled
    sys.addaudithook(_audit)  # permanently: Python cannot remove an audit hook


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _listeners and event in _EVENTS:
        _listeners[-1](event, args)


def _called_from(frame: types.FrameType | None, namespace: dict[str, Any]) -> bool:
    """Returns whether code of the namespace called `frame`, and not a compiler between them."""
    while frame is not None and not str(frame.f_globals.get("__name__")).startswith(_COMPILERS):
        if frame.f_globals is namespace:
            return True
        frame = frame.f_back
    return False


def _text(thing: Any) -> str:
    return os.fsdecode(thing) if isinstance(thing, (str, bytes, os.PathLike)) else str(thing)
