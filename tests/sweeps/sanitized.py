"""Runs a module with C++ kernels under AddressSanitizer:  python -m tests.sweeps.sanitized MODULE [ARGUMENT ...].

An access outside of a tensor's memory, of memory that was freed, or undefined behaviour in a kernel ends the process
with a report of the place; a sweep whose workers end so reports the program.  For example::

    python -m tests.sweeps.sanitized tests.sweeps.fuzz.run 300 --tensors --backend cpp
    python -m tests.sweeps.sanitized pytest -q tests/codegen/test_cpp.py

GCC is needed: ``CXX`` is set to it, with flags that belong to the key of the kernel cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1")
OPTIONS = {
    # Python does not free all at its end; PyTorch loads libraries that define the same names
    "ASAN_OPTIONS": "detect_leaks=0:detect_odr_violation=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def environment() -> dict[str, str]:
    """Returns the variables with which a Python process, and those that it starts, build and run such kernels."""
    libraries = [
        subprocess.run(["g++", f"-print-file-name={name}"], check=True, capture_output=True, text=True).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    return {"CXX": " ".join(("g++", *SANITIZERS)), "LD_PRELOAD": ":".join(libraries), **OPTIONS}


def main(arguments: Sequence[str]) -> int:
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, env={**os.environ, **environment()}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
