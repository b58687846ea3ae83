"""Checks whether this machine can build and cache kernels: ``python -m compiler_core.api.check``.

Prints a line for each check: ``ok``, ``note`` or ``PROBLEM``, what was found and, after an arrow, what to do.  With a
problem, programs still give right results, but are slower.  The exit status is 1 if there is a problem.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from compiler_core import config
from compiler_core.codegen.build import compilers as build
from compiler_core.codegen.build import disk_cache, faults, private_folders
from compiler_core.errors import BuildError, MissingTool

MIN_FREE_BYTES = 1 << 30
MIN_OPEN_FILES = 256
PROBE = 'extern "C" int probe() { return 42; }\n'


class Finding(NamedTuple):
    """The result of one check."""

    state: Literal["ok", "note", "PROBLEM"]
    text: str
    remedy: str = ""

    def line(self) -> str:
        """Returns the finding as text, with the remedy on a second line."""
        remedy = f"\n        -> {self.remedy}" if self.remedy else ""
        return f"{self.state:8}{self.text}{remedy}"


def findings() -> Iterator[Finding]:
    """Runs all checks in order and yields what they find.

    Example::

        problems = [each.text for each in findings() if each.state == "PROBLEM"]
    """
    checks = (
        _versions, _compiler, _cache, _read_only_caches, _temporary_folder, _open_files, _triton,
    )  # fmt: skip
    for check in checks:
        try:
            yield from check()
        except MissingTool as error:
            yield _problem(error)
        except OSError as error:
            yield Finding("PROBLEM", faults.describe(error))


def main() -> int:
    """Prints the findings; returns the exit status, 1 if there is a problem."""
    problems = 0
    for finding in findings():
        problems += finding.state == "PROBLEM"
        sys.stdout.write(f"{finding.line()}\n")
        sys.stdout.flush()
    summary = f"problems: {problems}; programs give right results, but are slower" if problems else "no problems"
    sys.stdout.write(f"{summary}\n")
    return 1 if problems else 0


def _problem(error: BuildError) -> Finding:
    text, _, remedy = str(error).partition("\n")[0].partition("; ")
    return Finding("PROBLEM", text, remedy)


def _versions() -> Iterator[Finding]:
    yield Finding("ok", f"Python {platform.python_version()}, PyTorch {importlib.metadata.version('torch')}")


def _compiler() -> Iterator[Finding]:
    tools = build.toolchain()
    shown = f"C++ compiler: {' '.join(tools.command)} ({tools.version})"
    start = time.monotonic()
    try:
        library = build.build_uncached(PROBE)
    except MissingTool:
        raise
    except BuildError as error:
        yield Finding("PROBLEM", shown)
        yield _problem(error)
        return
    assert library.probe() == 42
    yield Finding("ok", f"{shown}; builds and loads a library in {time.monotonic() - start:.1f} s")


def _cache() -> Iterator[Finding]:
    path = config.cache_dir()
    try:
        disk_cache.write("engines", "0" * 64, b"{}")
        can_write = True
    except MissingTool as error:
        can_write = False
        readable = _readable_files(path)
        if readable:
            yield Finding("note", f"kernel cache: {path}, read only, files: {readable}", str(error).partition("; ")[2])
        else:
            yield _problem(error)
    if can_write:
        used = sum(_size(path / kind) for kind in disk_cache.KINDS) / disk_cache.MIB
        limit = sum(kind.limit for kind in disk_cache.KINDS.values()) // disk_cache.MIB
        yield Finding("ok", f"kernel cache: {path}, {used:.0f} of at most {limit} MiB")
        yield from _space(path)


def _readable_files(path: Path) -> int:
    """Returns the number of cache entries that can be read."""
    try:
        folder = private_folders.open_private(path)
    except (OSError, MissingTool):
        return 0
    os.close(folder)
    return sum(len(_entries(path / kind)) for kind in disk_cache.KINDS)


def _read_only_caches() -> Iterator[Finding]:
    for path in config.cache_read_from():
        shown = f"read-only kernel cache: {path}"
        try:
            os.close(private_folders.open_read_only(path))
        except MissingTool as error:
            yield _problem(error)
        except OSError as error:
            yield Finding(
                "PROBLEM", f"{shown}: {faults.describe(error)}", "set CUTAWAY_CACHE_READ_FROM to other folders"
            )
        else:
            yield Finding("ok", f"{shown}, files: {sum(len(_entries(path / kind)) for kind in disk_cache.KINDS)}")


def _temporary_folder() -> Iterator[Finding]:
    yield from _space(Path(tempfile.gettempdir()))


def _space(path: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(path).free
    shown = f"free space for {path}: {free / (1 << 30):.1f} GiB"
    if free < MIN_FREE_BYTES:
        yield Finding("note", shown, faults.NO_SPACE.remedy)
    else:
        yield Finding("ok", shown)


def _open_files() -> Iterator[Finding]:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    shown = f"open files allowed for a process: {limit if limit != resource.RLIM_INFINITY else 'unlimited'}"
    few = limit != resource.RLIM_INFINITY and limit < MIN_OPEN_FILES
    if few:
        yield Finding("note", shown, faults.TOO_MANY_FILES.remedy)
    else:
        yield Finding("ok", shown)


def _triton() -> Iterator[Finding]:
    try:
        yield Finding("ok", f"Triton {importlib.metadata.version('triton')}: kernels for GPUs")
    except importlib.metadata.PackageNotFoundError:
        yield Finding("note", "no Triton: no kernels for GPUs", "pip install triton")


def _size(folder: Path) -> int:
    """Returns the bytes of all regular files in a folder."""
    return sum(status.st_size for status in _entries(folder) if stat.S_ISREG(status.st_mode))


def _entries(folder: Path) -> list[os.stat_result]:
    try:
        with os.scandir(folder) as found:
            return [each.stat(follow_symlinks=False) for each in found]
    except OSError:
        return []


if __name__ == "__main__":
    sys.exit(main())
