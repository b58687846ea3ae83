"""Keeps Triton's compiled kernels in the kernel cache.

Triton itself keeps a folder of files per kernel and trusts its content.  Here each kernel is one file with a checksum
(`compiler_core.codegen.build.disk_cache`), unpacked to a temporary folder for Triton to read.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import io
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from compiler_core import config
from compiler_core.codegen.build import disk_cache
from compiler_core.errors import MissingTool
from compiler_core.support.fork_locks import replace_after_fork

_lock = threading.RLock()
replace_after_fork(sys.modules[__name__], "_lock")
_MODULES_WITH_SUBPROCESS = ("triton.knobs", "triton.backends.nvidia.compiler", "triton.runtime.build")
"""Triton's modules that run an assembler or a compiler through `subprocess`."""


class _SubprocessWithTimeout:
    """The module `subprocess` with a time limit for each program."""

    def __init__(self, seconds: float) -> None:
        for name in ("run", "check_call", "check_output"):
            setattr(self, name, functools.partial(getattr(subprocess, name), timeout=seconds))

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)


@contextmanager
def _with_timeout() -> Iterator[None]:
    """Applies the compile timeout to programs that Triton runs inside the block."""
    limited, there = _SubprocessWithTimeout(config.compile_timeout()), list[tuple[Any, Any]]()
    for name in _MODULES_WITH_SUBPROCESS:
        with suppress(ImportError):
            module: Any = importlib.import_module(name)
            if hasattr(module, "subprocess"):
                there.append((module, module.subprocess))
    try:
        for module, _ in there:
            module.subprocess = limited
        yield
    finally:
        for module, before in there:
            module.subprocess = before


@contextmanager
def with_sealed_cache() -> Iterator[None]:
    """Makes Triton use the kernel cache for kernels compiled inside the block, on any thread."""
    from triton import knobs

    with _lock, disk_cache.any_build_folder("triton") as inside, knobs.cache.scope(), _with_timeout():
        knobs.cache.dir = str(inside)
        knobs.cache.manager_class = _cache_manager()
        yield


@functools.cache
def _cache_manager() -> Any:
    from triton.runtime.cache import FileCacheManager

    class Packed(FileCacheManager):  # type: ignore[misc]
        """Triton's cache manager on a temporary folder; each group of files is kept as one packed entry."""

        def get_group(self, filename: str) -> dict[str, str] | None:
            packed = disk_cache.read("triton", self._packed(filename))
            if packed is None:
                return None
            with zipfile.ZipFile(io.BytesIO(packed)) as files:
                files.extractall(self.cache_dir)
                return {name: str(Path(self.cache_dir, name)) for name in files.namelist()}

        def put_group(self, filename: str, group: dict[str, str]) -> str:
            buffer = io.BytesIO()
            with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as files:
                for name, path in group.items():
                    files.write(path, name)
            try:
                disk_cache.write("triton", self._packed(filename), buffer.getvalue())
            except MissingTool as error:
                disk_cache.report_problem(error)
            return filename

        def _packed(self, filename: str) -> str:
            return hashlib.sha256(f"{self.key}/{filename}".encode()).hexdigest()

    return Packed
