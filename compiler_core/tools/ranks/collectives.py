"""Records collectives as they run: those of compiled code, of eager code, and of DistributedDataParallel's reducer.

All of them end in PyTorch's operators ``c10d::*``.  While a record is open, a kernel of ours runs before PyTorch's and
records the call.  It is registered for a dispatch key that all calls have, in each thread and in inference mode, except
those with fake tensors and those that are traced.
"""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

import compiler_core
from compiler_core.records import Record, limits
from compiler_core.records.capture import package_of
from compiler_core.records.kernels import Collective
from compiler_core.torch_private import (
    DispatchKey,
    DispatchKeySet,
    FakeTensor,
    OpOverload,
    dispatch_get_all_op_names,
    dispatch_keyset_full_after,
)

_KEY = "BackendSelect"
_NO_COLLECTIVES = ("send", "recv_", "recv_any_source_", "check_for_nan")
"""Operators between two ranks, or of one, which may differ in a program that is right."""
_SIZES_DIFFER = ("gather_", "scatter_", "alltoall_", "alltoall_base_", "barrier", "monitored_barrier_")
"""Collectives to which ranks may pass tensors of different sizes, or a tensor without a meaning."""
_LIBRARIES = tuple(os.path.dirname(module.__file__ or "") + os.sep for module in (torch, compiler_core))
_STANDARD_LIBRARY = sysconfig.get_path("stdlib") + os.sep


@dataclass(eq=False)
class _Recording:
    record: Record
    on_call: Callable[[], Any]


_recordings: list[_Recording] = []
_libraries: list[Any] = []
"""The library that has our kernels, while a record is open."""


def record_collectives(record: Record, on_call: Callable[[], Any] = lambda: None) -> Callable[[], None]:
    """Writes each collective of this process to `record` from now on; returns a function that ends it.

    The first `limits.COLLECTIVES` are kept.  Does nothing if this PyTorch has no ``torch.distributed``.

    Args:
        record: the record, which is open.
        on_call: called after each collective was added.
    """
    recording = _Recording(record, on_call)
    _recordings.append(recording)
    try:
        _install()
    except Exception as error:
        _note(record, error)

    def end() -> None:
        if recording in _recordings:
            _recordings.remove(recording)
        if not _recordings and _libraries:
            _libraries.pop()._destroy()

    return end


def _install() -> None:
    if _libraries or not torch.distributed.is_available():
        return
    library: Any = torch.library.Library("c10d", "IMPL")  # type: ignore[no-untyped-call]
    _libraries.append(library)
    after = dispatch_keyset_full_after(DispatchKey.BackendSelect)
    for full_name in dispatch_get_all_op_names():
        space, _, name = full_name.partition("::")
        if space == "c10d" and name not in _NO_COLLECTIVES:
            library.impl(name, _kernel(getattr(torch.ops.c10d, name).default, after), _KEY, with_keyset=True)


def _kernel(op: OpOverload, after: DispatchKeySet) -> Callable[..., Any]:
    """Returns a kernel that records a call of `op` and continues with PyTorch's kernel."""
    names = [argument.name for argument in op._schema.arguments]
    name = op._schema.name.removeprefix("c10d::")
    passed = [] if name in _SIZES_DIFFER else [i for i, each in enumerate(names) if each.startswith("input")]
    passed = passed or [i for i, each in enumerate(names) if each == "tensors" and name not in _SIZES_DIFFER]
    group = names.index("process_group")

    def kernel(keys: DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        is_open = any(len(each.record.collectives) < limits.COLLECTIVES for each in _recordings)
        if is_open and not any(isinstance(each, FakeTensor) for each in _tensors([args[i] for i in passed])):
            _record_call(name.strip("_"), [args[i] for i in passed], args[group])
        return op.redispatch(keys & after, *args, **kwargs)

    return kernel


def _record_call(name: str, passed: list[Any], group: Any) -> None:
    """Adds a call to all open records; an error in here becomes a note, and never ends the program."""
    try:
        file, line = _line()
        tensors = [f"{each.dtype}{list(each.shape)}".removeprefix("torch.") for each in _tensors(passed)]
        text = linecache.getline(file, line).strip() if file else ""
        call = Collective(name, tensors, _size(group), file, line, limits.truncate(text))
    except Exception as error:
        for recording in _recordings:
            _note(recording.record, error)
        return
    for recording in list(_recordings):
        collectives = recording.record.collectives
        if len(collectives) < limits.COLLECTIVES:
            collectives.append(call)
            if len(collectives) == limits.COLLECTIVES:
                recording.record.notes.append(f"The first {limits.COLLECTIVES:,} collectives are kept.")
            recording.on_call()


def _tensors(passed: list[Any]) -> Iterator[torch.Tensor]:
    for each in passed:
        if isinstance(each, torch.Tensor):
            yield each
        else:
            yield from _tensors(each)


def _size(group: Any) -> int:
    unboxed: Any = torch.distributed.ProcessGroup.unbox(group)
    return int(unboxed.size())


def _line() -> tuple[str, int]:
    """Returns the line that called a collective: in a thread without lines of the user's, that of the main thread,
    which waits in ``backward()``."""
    found = _users_line(sys._getframe(2))
    if not found[0] and threading.current_thread() is not threading.main_thread():
        frames = sys._current_frames()
        found = _users_line(frames.get(threading.main_thread().ident or 0))
    return found


def _users_line(frame: FrameType | None) -> tuple[str, int]:
    while frame is not None:
        file = frame.f_code.co_filename
        if not _is_library(file):
            return file, frame.f_lineno
        frame = frame.f_back
    return "", 0


def _is_library(file: str) -> bool:
    """Whether a file is PyTorch's, ours, of the standard library, or code that a compiler wrote."""
    if file.startswith((*_LIBRARIES, "<")) or "torchinductor" in file:
        return True
    return file.startswith(_STANDARD_LIBRARY) and not package_of(file)


def _note(record: Record, error: Exception) -> None:
    note = f"Collectives are not recorded: {type(error).__name__}: {error}"
    if note not in record.notes:
        record.notes.append(note)
