"""Runs all planted recompiles through stock `torch.compile`, and writes what TORCH_TRACE writes:

python -m tests.faults.from_logs FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.faults.fault import Recompiled
from tests.faults.recompiles import RECOMPILES


def file_of(fault: Recompiled, folder: Path) -> Path:
    """Returns the file of a script, which a log names."""
    return folder / f"fault_{RECOMPILES.index(fault)}.py"


def write_scripts(folder: Path) -> None:
    """Writes each script to its file."""
    for fault in RECOMPILES:
        file_of(fault, folder).write_text(fault.script)


def run_all(folder: Path) -> None:
    """Runs the scripts of all recompiles that happen on stock, in one process and without resets."""
    import torch

    for fault in RECOMPILES:
        if fault.happens_on("torch"):
            space: dict[str, Any] = {"torch": torch, "__name__": "script"}
            sys.modules["script"] = type(sys)("script")
            exec(compile(fault.script, str(file_of(fault, folder)), "exec"), space)
            space["run"](torch.compile(space["program"], backend="eager", **fault.options))


if __name__ == "__main__":
    run_all(Path(sys.argv[1]))
