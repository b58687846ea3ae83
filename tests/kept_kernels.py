"""C++ kernels that earlier runs of the tests built on this machine: the same text is not compiled again.

The name of a library is the digest of its source, the flags, the compiler's version and the CPU, so that what is found
is what would be built.  Tests of the kernel cache use separate folders, and build.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

LIMIT = 256 << 20
"""Bytes of all kept libraries; the suite builds some 40 MB."""


def kept() -> Path:
    """Returns the folder of the kept libraries."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cutaway-tests" / "cpp"


def take(folder: Path) -> None:
    """Puts the kept libraries into the kernel cache of a run."""
    _link(kept(), folder)


def keep(folder: Path, limit: int = LIMIT) -> None:
    """Keeps the libraries that a run has built; the least recently used ones beyond the limit are removed."""
    _link(folder, kept())
    sizes = {file: file.stat() for file in kept().glob("*.so")}
    total = 0
    for file in sorted(sizes, key=lambda file: sizes[file].st_mtime, reverse=True):
        total += sizes[file].st_size
        if total > limit:
            file.unlink(missing_ok=True)


def _link(source: Path, target: Path) -> None:
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    for file in source.glob("*.so"):
        try:
            os.link(file, target / file.name)
        except FileExistsError:
            pass
        except OSError:  # another file system
            shutil.copy2(file, target / file.name)
