"""What a cell does beyond Python's objects: files that it writes, programs that it starts, where it connects to."""

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


def _opened(path: Any, mode: Any, flags: int, *_: Any) -> str | None:
    is_new = not isinstance(path, int)  # a number is a file that was opened before
    return f"the file {_text(path)}" if is_new and (flags or 0) & _WRITES else None


_EVENTS: dict[str, Callable[..., str | None]] = {
    "open": _opened,
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
_hearing: list[Callable[[str, tuple[Any, ...]], None]] = []


@contextmanager
def noted(namespace: dict[str, Any], to: list[str]) -> Iterator[None]:
    """What code of this namespace does to the world outside is added to `to`, each thing once."""

    def hear(event: str, args: tuple[Any, ...]) -> None:
        said = _EVENTS[event](*args)
        if said is not None and said not in to and _is_users(sys._getframe(2), namespace):
            to.append(said)

    _install()
    _hearing.append(hear)
    try:
        yield
    finally:
        _hearing.remove(hear)


@functools.cache
def _install() -> None:
    from compiler_core.stock import versions

    versions.leave_alone(__name__)  # the hook runs in the midst of what is compiled
    sys.addaudithook(_audit)  # for good: Python takes none off


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _hearing and event in _EVENTS:
        _hearing[-1](event, args)


def _is_users(frame: types.FrameType | None, namespace: dict[str, Any]) -> bool:
    """Whether the namespace's code called this, and not a compiler that it runs under."""
    while frame is not None and not str(frame.f_globals.get("__name__")).startswith(_COMPILERS):
        if frame.f_globals is namespace:
            return True
        frame = frame.f_back
    return False


def _text(thing: Any) -> str:
    return os.fsdecode(thing) if isinstance(thing, (str, bytes, os.PathLike)) else str(thing)
