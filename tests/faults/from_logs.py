"""Runs all planted faults that are found in logs through stock `torch.compile`, and writes what TORCH_TRACE writes:

python -m tests.faults.from_logs FOLDER
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from tests.faults.corpus import BREAKS, RECOMPILES
from tests.faults.fault import Broken, Recompiled

OF_ALL: list[Recompiled | Broken] = [*RECOMPILES, *BREAKS]
FAULTS = [each for each in OF_ALL if each.happens_on("torch")]


def file_of(fault: Recompiled | Broken, folder: Path) -> Path:
    """Returns the file of a script, which a log names."""
    return folder / f"fault_{FAULTS.index(fault)}.py"


def write_scripts(folder: Path, step: int) -> None:
    """Writes each `step`-th script to its file."""
    for fault in FAULTS[::step]:
        file_of(fault, folder).write_text(fault.script)


def run_all(folder: Path) -> None:
    """Runs the scripts that are written, in one process and without resets."""
    import torch

    from tests.faults.harness import call_run, load

    warnings.simplefilter("ignore")  # stock says once what it cannot trace
    for fault in (each for each in FAULTS if file_of(each, folder).exists()):
        space = load(fault.script, str(file_of(fault, folder)))
        options = fault.options if isinstance(fault, Recompiled) else {}
        call_run(space["run"], torch.compile(space["program"], **{"backend": "eager", **options}), [])


if __name__ == "__main__":
    run_all(Path(sys.argv[1]))
