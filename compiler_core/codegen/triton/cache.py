"""Triton's compiled kernels in our cache.

Triton itself keeps a folder of files for each kernel and trusts what it finds there.  We keep one sealed file
(`compiler_core.codegen.build.disk_cache`) and unpack it for Triton to read.
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
from compiler_core.support.fork_locks import free_after_fork

_lock = threading.RLock()
free_after_fork(sys.modules[__name__], "_lock")
_RUN_PROGRAMS = ("triton.knobs", "triton.backends.nvidia.compiler", "triton.runtime.build")
"""Triton's modules that run an assembler or a compiler."""


class _Limited:
    """The module `subprocess`, with a limit of time for each program."""

    def __init__(self, seconds: float) -> None:
        for name in ("run", "check_call", "check_output"):
            setattr(self, name, functools.partial(getattr(subprocess, name), timeout=seconds))

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)


@contextmanager
def _limited() -> Iterator[None]:
    """What Triton runs inside has the limit of time that other compilers have."""
    limited, there = _Limited(config.compile_timeout()), list[tuple[Any, Any]]()
    for name in _RUN_PROGRAMS:
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
def in_our_cache() -> Iterator[None]:
    """What Triton compiles inside, in whatever thread, is kept by us; elsewhere it keeps its own habits."""
    from triton import knobs

    with _lock, disk_cache.some_workshop("triton") as inside, knobs.cache.scope(), _limited():
        knobs.cache.dir = str(inside)
        knobs.cache.manager_class = _manager()
        yield


@functools.cache
def _manager() -> Any:
    from triton.runtime.cache import FileCacheManager

    class Packed(FileCacheManager):  # type: ignore[misc]
        """Triton's own manager in a folder that is gone afterwards, but for the packed group of files."""

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
                disk_cache.note(error)
            return filename

        def _packed(self, filename: str) -> str:
            return hashlib.sha256(f"{self.key}/{filename}".encode()).hexdigest()

    return Packed
