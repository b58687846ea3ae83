"""Helpers of tests that start programs."""

from __future__ import annotations

import time
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Returns whether the process still exists after a minute."""
    for _ in range(1200):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return False
        except (FileNotFoundError, ProcessLookupError):
            return False
        time.sleep(0.05)
    return True
