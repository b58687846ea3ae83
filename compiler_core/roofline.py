"""The least time that a kernel can take on a target: its bytes at the memory's speed, or its operations at the
arithmetic's, whichever is longer.

The figures are the makers' for one device: memory bandwidth, and single-precision additions outside tensor cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from compiler_core.errors import UsageError
from compiler_core.record import Kernel


class Peak(NamedTuple):
    """What a target does in a nanosecond."""

    device: str
    bytes: float
    operations: float


PEAKS = {
    "cpu": Peak("one core of a server", 10, 50),
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
    """The two lower bounds of a kernel's time, and of what it was measured to take, the share that they explain."""

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


def roofline(kernel: Kernel, target: str) -> Roofline:
    """Where `kernel` stands on `target`; UsageError where either is unknown."""
    if target not in PEAKS:
        raise UsageError(f"unknown target {target!r}; known are {', '.join(PEAKS)}")
    if kernel.bytes_read is None or kernel.bytes_written is None:
        raise UsageError(f"the record does not say what {kernel.name} reads and writes")
    peak = PEAKS[target]
    memory = (kernel.bytes_read + kernel.bytes_written) / peak.bytes
    arithmetic = (kernel.operations or 0) / peak.operations
    share = max(memory, arithmetic) / kernel.time_ns if kernel.time_ns else None
    return Roofline(target, memory, arithmetic, share)
