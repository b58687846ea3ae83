"""How busy this machine is, by which times are doubted."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

_LOOKS, _PAUSE_S = 5, 0.004
_STATISTICS = Path("/proc/stat")


def machine_load() -> float:
    """Returns how many threads of all programs are ready to run, for each CPU: now, or in the last minute, if that is
    more."""
    try:
        found = [os.getloadavg()[0]]
    except OSError:
        found = [0.0]
    if _STATISTICS.exists():
        looks = []
        for _ in range(_LOOKS):
            looks.append(_running())
            time.sleep(_PAUSE_S)
        found.append(statistics.mean(looks))
    return max(found) / (os.cpu_count() or 1)


def _running() -> int:
    """Returns the number of threads that are ready to run now, of which this is one."""
    lines = _STATISTICS.read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("procs_running")), 0)
