"""Keeps Triton's compiled kernels in the kernel cache.

Triton itself keeps a folder of files per kernel and trusts its content.  Here each kernel is one file with a checksum
(`compiler_core.codegen.build.disk_cache`), unpacked to a temporary folder for Triton to read.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import io
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from compiler_core import config
from compiler_core.codegen.build import disk_cache, external
from compiler_core.codegen.triton.ptx import without_assembly_locations
from compiler_core.errors import MissingTool
from compiler_core.support.fork_locks import replace_after_fork
from compiler_core.support.interrupts import safe_point

_lock = threading.RLock()
replace_after_fork(sys.modules[__name__], "_lock")
_MODULES_WITH_SUBPROCESS = ("triton.knobs", "triton.backends.nvidia.compiler", "triton.runtime.build")
"""Triton's modules that run an assembler or a compiler through `subprocess`."""


class Programs:
    """Replaces the module `subprocess` in Triton: each program has a time limit, and is killed with its child
    processes.

    It has the functions of `subprocess` that Triton calls to run a program, without input.  `stop` ends the programs
    that run, from another thread.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._stopped = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)

    def stop(self) -> None:
        """Ends all programs that run; those that are started later end at once."""
        self._stopped.set()

    def _check(self) -> None:
        if self._stopped.is_set():
            raise Stopped
        safe_point()

    def run(
        self, command: list[str], *, check: bool = False, stdout: Any = None, stderr: Any = None, **_: Any
    ) -> subprocess.CompletedProcess[str]:
        """Like `subprocess.run`, for outputs that are dropped, written to a file, or merged.  Raises TimedOut."""
        done = external.run(command, timeout=self._timeout, check=self._check)
        merged = done.out + done.err if stderr == subprocess.STDOUT else done.out
        for text, file in ((merged, stdout), (done.err, stderr)):
            if hasattr(file, "fileno"):  # Triton's was opened for reading, and its descriptor for both
                with open(os.dup(file.fileno()), "w", encoding="utf-8") as stream:
                    stream.write(text)
        if check and done.status:
            raise subprocess.CalledProcessError(done.status, command, merged, done.err)
        return subprocess.CompletedProcess(command, done.status, merged, done.err)

    def check_call(self, command: list[str], **options: Any) -> int:
        return self.run(command, check=True, **options).returncode

    def check_output(self, command: list[str], **options: Any) -> bytes:
        return self.run(command, check=True, **options).stdout.encode()


class Stopped(Exception):
    """`Programs.stop` ended a program."""


@contextmanager
def _with_programs(programs: Programs) -> Iterator[None]:
    """Makes Triton run its programs through `programs` inside the block."""
    there = list[tuple[Any, Any]]()
    for name in _MODULES_WITH_SUBPROCESS:
        with suppress(ImportError):
            module: Any = importlib.import_module(name)
            if hasattr(module, "subprocess"):
                there.append((module, module.subprocess))
    try:
        for module, _ in there:
            module.subprocess = programs
        yield
    finally:
        for module, before in there:
            module.subprocess = before


@contextmanager
def with_sealed_cache() -> Iterator[Programs]:
    """Makes Triton use the kernel cache for kernels compiled inside the block, on any thread, and right lines in PTX.

    Yields the `Programs` that run its tools.
    """
    from triton import knobs

    programs = Programs(config.compile_timeout())
    with (
        _lock,
        disk_cache.any_build_folder("triton") as inside,
        knobs.cache.scope(),
        knobs.runtime.scope(),
        _with_programs(programs),
    ):
        knobs.cache.dir = str(inside)
        knobs.cache.manager_class = _cache_manager()
        knobs.runtime.add_stages_inspection_hook = _StagesHook(knobs.runtime.add_stages_inspection_hook)
        yield programs


class _StagesHook:
    """Triton's hook on the stages of a compile: the assembler gets PTX whose lines are right.

    Without arguments it returns what the stages add to the cache's key, and that text's hash.
    """

    _KEY = "no locations in inline assembly"

    def __init__(self, of_user: Callable[..., Any] | None) -> None:
        self._of_user = of_user

    def __call__(self, *arguments: Any) -> tuple[str, str] | None:
        of_user = self._of_user(*arguments) if self._of_user else ("", "")
        if not arguments:
            key = self._KEY + of_user[0]
            return key, hashlib.sha256(key.encode()).hexdigest()
        stages = arguments[1]
        if make := stages.get("ptx"):
            stages["ptx"] = lambda source, metadata: without_assembly_locations(make(source, metadata))
        return None


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
