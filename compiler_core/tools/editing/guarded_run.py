"""Runs two texts of one kernel on the same arguments, in memory with guard zones.

It runs in its own process (``python -m``), which a wrong kernel may crash.  For C++ it needs the standard library only,
so that it starts at once.  ``job.json`` in the folder says what to run; the bytes of buffer N are in the file ``N.in``.
After each text its results are written to ``N.0`` or ``N.1``, and a line of JSON is printed.

Each buffer lies between two zones that are filled with a pattern.  A store there is found afterwards, and a float
loaded from there is NaN.  Beyond the zones of C++ kernels are pages that cannot be accessed.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compiler_core.tools.in_turn import seconds_in_rounds

ZONE = 1 << 16
PATTERN = b"\xff"
ALIGNMENT = 64
PROT_NONE, PROT_READ_WRITE = 0, 3
MAP_PRIVATE_ANONYMOUS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


class HostBuffer:
    """Memory of the CPU: zone, buffer, zone, and a page on each side that cannot be accessed."""

    def __init__(self, content: bytes) -> None:
        page = mmap.PAGESIZE
        inner = -(-(2 * ZONE + len(content) + ALIGNMENT) // page) * page
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        start = libc.mmap(None, inner + 2 * page, PROT_NONE, MAP_PRIVATE_ANONYMOUS, -1, 0)
        if start in (None, ctypes.c_void_p(-1).value) or libc.mprotect(start + page, inner, PROT_READ_WRITE):
            raise MemoryError(f"no memory for a buffer of {len(content):,} bytes")
        self._first, self._inner, self._size = start + page, inner, len(content)
        self.address = start + page + ZONE
        self._content = content
        self.fill()

    def fill(self) -> None:
        """Writes the pattern to the zones, and the first content to the buffer."""
        ctypes.memset(self._first, PATTERN[0], self._inner)
        ctypes.memmove(self.address, self._content, self._size)

    def content(self) -> bytes:
        return ctypes.string_at(self.address, self._size)

    def zones(self) -> tuple[bytes, bytes]:
        end = self.address + self._size
        return ctypes.string_at(self.address - ZONE, ZONE), ctypes.string_at(end, ZONE)


class DeviceBuffer:
    """Memory of PyTorch, on a GPU or for Triton's interpreter: zone, buffer, zone."""

    def __init__(self, content: bytes, device: str) -> None:
        import torch

        self._content = torch.frombuffer(bytearray(content or b"\0"), dtype=torch.uint8)[: len(content)]
        self.memory = torch.empty(2 * ZONE + len(content), dtype=torch.uint8, device=device)
        self._inner = self.memory[ZONE : ZONE + len(content)]
        self.fill()

    def fill(self) -> None:
        self.memory.fill_(PATTERN[0])
        self._inner.copy_(self._content)

    def content(self) -> bytes:
        return bytes(self._inner.cpu().numpy())

    def zones(self) -> tuple[bytes, bytes]:
        whole = self.memory.cpu().numpy()
        return bytes(whole[:ZONE]), bytes(whole[len(whole) - ZONE :])


def main(folder: Path) -> None:
    """Runs both texts of the job in `folder`; prints a line of JSON for each, then the times of both in each round."""
    job = json.loads((folder / "job.json").read_text())
    contents = [(folder / f"{n}.in").read_bytes() for n in range(job["buffers"])]
    on_cpu = job["language"] == "cpp"
    buffers: list[Any] = [HostBuffer(c) if on_cpu else DeviceBuffer(c, job["device"]) for c in contents]
    calls = [(_cpp_call if on_cpu else _triton_call)(job, folder, which, buffers) for which in (0, 1)]
    signal.alarm(job["seconds"])  # ends the process, also inside a kernel
    for which, call in enumerate(calls):
        for buffer in buffers:
            buffer.fill()
        fault = call()
        overruns = [_overrun(buffer.zones()) for buffer in buffers]
        for number, buffer in enumerate(buffers):
            (folder / f"{number}.{which}").write_bytes(buffer.content())
        _print({"fault": bool(fault), "overruns": overruns})
        if any(overruns):
            return
    _print({"seconds": seconds_in_rounds(calls, _synchronizer(job))})


def _print(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _overrun(zones: tuple[bytes, bytes]) -> dict[str, int] | None:
    """Returns what was stored in the zones of a buffer: the bytes from the first to the last, and how far the nearest
    is from the buffer's start (``before``) or end (``after``)."""
    before, after = (_stored(zone) for zone in zones)
    if after:
        return {"bytes": after[-1] - after[0] + 1 + (before[-1] - before[0] + 1 if before else 0), "after": after[0]}
    return {"bytes": before[-1] - before[0] + 1, "before": ZONE - 1 - before[-1]} if before else None


def _stored(zone: bytes) -> list[int]:
    return [at for at in range(ZONE) if zone[at] != PATTERN[0]] if zone.strip(PATTERN) else []


def _cpp_call(job: dict[str, Any], folder: Path, which: int, buffers: list[Any]) -> Callable[[], Any]:
    function = getattr(ctypes.CDLL(str(folder / f"kernel{which}.so")), job["name"])
    function.restype = getattr(ctypes, job["returns"]) if job["returns"] else None
    args: list[Any] = []
    for each in job["args"]:
        if "buffer" in each:
            args.append(ctypes.c_void_p(buffers[each["buffer"]].address + each["offset"]))
        else:
            args.append(ctypes.c_int64(each["whole"]) if "whole" in each else ctypes.c_double(each["real"]))
    return lambda: function(*args)


def _triton_call(job: dict[str, Any], folder: Path, which: int, buffers: list[Any]) -> Callable[[], Any]:
    import torch

    from compiler_core.codegen.triton import module

    kernels = module.load((folder / f"kernel{which}.py").read_text())
    launch = module.launchers({job["name"]: kernels[job["name"]]})[job["name"]]
    args: list[Any] = []
    for each in job["args"]:
        if "buffer" in each:
            dtype = getattr(torch, each["dtype"])
            storage = buffers[each["buffer"]].memory.untyped_storage()
            tensor = torch.empty(0, dtype=dtype, device=job["device"])
            args.append(tensor.set_(storage, (ZONE + each["offset"]) // dtype.itemsize, each["size"], each["stride"]))
        else:
            args.append(each["whole"] if "whole" in each else each["real"])
    synchronize = _synchronizer(job)

    def call() -> None:
        launch(*args)
        synchronize()

    return call


def _synchronizer(job: dict[str, Any]) -> Callable[[], None]:
    if job["language"] == "cpp" or job["device"] == "cpu":
        return lambda: None
    import torch

    return torch.cuda.synchronize


if __name__ == "__main__":
    main(Path(sys.argv[1]))
