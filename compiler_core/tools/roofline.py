"""The roofline model: the least time that a kernel can take on a target.

It is the time to move the kernel's bytes or the time to do its operations, whichever is longer (Williams, Waterman and
Patterson, "Roofline", CACM 2009).  The peaks are the manufacturers' figures for one device: memory bandwidth, and
single-precision additions outside tensor cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from compiler_core.errors import UsageError
from compiler_core.records import Compile, Device, Kernel


class Peak(NamedTuple):
    """The bytes and additions per nanosecond of a target."""

    device: str
    bytes: float
    operations: float


PEAKS = {
    "cpu": Peak("one core of a server", 10, 50),
    "x86-64-v2": Peak("one core with SSE4", 10, 12),
    "x86-64-v3": Peak("one core with AVX2", 10, 25),
    "x86-64-v4": Peak("one core with AVX-512", 10, 50),
    "sm_75": Peak("T4", 320, 4_000),
    "sm_80": Peak("A100 80 GB", 2_039, 9_750),
    "sm_86": Peak("A10", 600, 15_600),
    "sm_89": Peak("L40S", 864, 45_800),
    "sm_90": Peak("H200", 4_800, 33_500),
    "sm_100": Peak("B200", 8_000, 37_000),
    "sm_120": Peak("RTX PRO 6000", 1_792, 62_500),
    "gfx90a": Peak("MI250X", 3_277, 23_950),
    "gfx942": Peak("MI300X", 5_300, 81_700),
    "gfx950": Peak("MI355X", 8_000, 78_650),
    "gfx1100": Peak("RX 7900 XTX", 960, 30_700),
    "gfx1201": Peak("RX 9070 XT", 640, 24_300),
}


@dataclass(frozen=True)
class Roofline:
    """The two lower bounds of a kernel's time in nanoseconds.

    `share`: the greater bound divided by the measured time; None if it was not measured on that target.
    """

    target: str
    memory_ns: float
    arithmetic_ns: float
    share: float | None

    @property
    def bound(self) -> Literal["memory", "arithmetic"]:
        return "memory" if self.memory_ns >= self.arithmetic_ns else "arithmetic"

    @property
    def ns(self) -> float:
        return max(self.memory_ns, self.arithmetic_ns)


def peak(where: str | Device) -> Peak:
    """Returns the peak of a target by name, or of a measured device; UsageError for an unknown target."""
    if isinstance(where, Device):
        return Peak(where.name, where.copy, where.operations)
    if where not in PEAKS:
        raise UsageError(f"unknown target {where!r}; known are {', '.join(PEAKS)}")
    return PEAKS[where]


def roofline(kernel: Kernel, where: str | Device) -> Roofline:
    """Returns the lower bounds of a kernel's time on a target, by the roofline model.

    One bound is the bytes that the kernel reads and writes, divided by the peak bandwidth; the other is its operations,
    divided by their peak rate (Williams, Waterman and Patterson, "Roofline", 2009).

    Args:
        kernel: a kernel of a record; its time is used if it was measured on that target.
        where: a target of `PEAKS` such as ``sm_90``, or one of `Record.devices`.

    Returns:
        Both bounds in nanoseconds, the greater of which is `ns`.

    Raises:
        UsageError: the target is unknown, or the record has no bytes for the kernel.

    Example::

        bounds = compiler_core.roofline(record.compiles[0].kernels[0], "sm_90")
        print(bounds.ns, bounds.bound)
    """
    limits = peak(where)
    target = where.target if isinstance(where, Device) else where
    if kernel.bytes_read is None or kernel.bytes_written is None:
        raise UsageError(f"the record does not have the bytes that {kernel.name} reads and writes")
    memory = (kernel.bytes_read + kernel.bytes_written) / limits.bytes
    arithmetic = (kernel.operations or 0) / limits.operations
    timed = kernel.time_ns if kernel.timed_on in (None, target) else None
    return Roofline(target, memory, arithmetic, max(memory, arithmetic) / timed if timed else None)


def table(compile_: Compile, where: str | Device) -> str:
    """Returns a text table of the kernels of a compile with their bounds on a target or device, the slowest first."""
    known = [k for k in compile_.kernels if k.bytes_read is not None and k.bytes_written is not None]
    found = sorted(((k, roofline(k, where)) for k in known), key=lambda pair: -_time(pair[1]))
    head = f"{'kernel':<40}{'bytes':>14}{'operations':>14}{'least us':>11}{'bound':>12}{'us':>11}{'of roof':>9}"
    limits = peak(where)
    lines = [
        f"{compile_.id} on {limits.device}: {limits.bytes:.3g} GB/s, {limits.operations:.3g} billion additions a second"
    ]
    return "\n".join([*lines, head, *(_row(kernel, bounds) for kernel, bounds in found)])


def _time(bounds: Roofline) -> float:
    """The measured time if there is one, else the lower bound."""
    return bounds.ns / bounds.share if bounds.share else bounds.ns


def _row(kernel: Kernel, bounds: Roofline) -> str:
    name = f"{kernel.graph} {kernel.name}"
    moved = (kernel.bytes_read or 0) + (kernel.bytes_written or 0)
    operations = "" if kernel.operations is None else f"{kernel.operations:,}"
    time, share = "", ""
    if bounds.share is not None:
        time, share = f"{(kernel.time_ns or 0) / 1000:.2f}", f"{bounds.share:.0%}"
    return f"{name[:39]:<40}{moved:>14,}{operations:>14}{bounds.ns / 1000:>11.2f}{bounds.bound:>12}{time:>11}{share:>9}"
