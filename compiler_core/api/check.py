"""What of this machine keeps kernels from being built or kept: ``python -m compiler_core.api.check``.

A line for each thing that is looked at: ``ok``, ``note`` or ``PROBLEM``, what was found and, behind an arrow, what
to do.  Programs give right results with every problem, and are slower.  The exit status is 1 where there is one.
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

LITTLE_SPACE = 1 << 30
FEW_FILES = 256
PROBE = 'extern "C" int probe() { return 42; }\n'


class Finding(NamedTuple):
    """One line of the report."""

    state: Literal["ok", "note", "PROBLEM"]
    text: str
    remedy: str = ""

    def line(self) -> str:
        return f"{self.state:8}{self.text}" + (f"\n        -> {self.remedy}" if self.remedy else "")


def findings() -> Iterator[Finding]:
    """All that is looked at, in order."""
    for look in (_versions, _compiler, _cache, _other_caches, _temporary, _descriptors, _triton):
        try:
            yield from look()
        except MissingTool as error:
            yield _problem(error)
        except OSError as error:
            yield Finding("PROBLEM", faults.words(error))


def main() -> int:
    """Print the report; 1 where there is a problem."""
    made = []
    for each in findings():
        made.append(each)
        sys.stdout.write(f"{each.line()}\n")
        sys.stdout.flush()
    problems = sum(each.state == "PROBLEM" for each in made)
    sys.stdout.write(
        f"problems: {problems}; results are right with them, and slower\n" if problems else "all is well\n"
    )
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
        made = build.try_out(PROBE)
    except MissingTool:
        raise
    except BuildError as error:
        yield Finding("PROBLEM", shown)
        yield _problem(error)
        return
    assert made.probe() == 42
    yield Finding("ok", f"{shown}; builds and loads a library in {time.monotonic() - start:.1f} s")


def _cache() -> Iterator[Finding]:
    path = config.cache_dir()
    try:
        disk_cache.write("engines", "0" * 64, b"{}")
        can_write = True
    except MissingTool as error:
        can_write = False
        readable = _files(path)
        if readable:
            yield Finding("note", f"kernel cache: {path}, read only, files: {readable}", str(error).partition("; ")[2])
        else:
            yield _problem(error)
    if can_write:
        used = sum(_size(path / kind) for kind in disk_cache.KINDS) / disk_cache.MIB
        limit = sum(kind.limit for kind in disk_cache.KINDS.values()) // disk_cache.MIB
        yield Finding("ok", f"kernel cache: {path}, {used:.0f} of at most {limit} MiB")
        yield from _space(path)


def _files(path: Path) -> int:
    """How many kernels can be read there."""
    try:
        folder = private_folders.opened(path)
    except (OSError, MissingTool):
        return 0
    os.close(folder)
    return sum(len(_entries(path / kind)) for kind in disk_cache.KINDS)


def _other_caches() -> Iterator[Finding]:
    for path in config.cache_read_from():
        shown = f"kernel cache that is only read: {path}"
        try:
            os.close(private_folders.promised(path))
        except MissingTool as error:
            yield _problem(error)
        except OSError as error:
            yield Finding("PROBLEM", f"{shown}: {faults.words(error)}", "let CUTAWAY_CACHE_READ_FROM name others")
        else:
            yield Finding("ok", f"{shown}, files: {sum(len(_entries(path / kind)) for kind in disk_cache.KINDS)}")


def _temporary() -> Iterator[Finding]:
    yield from _space(Path(tempfile.gettempdir()))


def _space(path: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(path).free
    shown = f"free space for {path}: {free / (1 << 30):.1f} GiB"
    if free < LITTLE_SPACE:
        yield Finding("note", shown, faults.NO_SPACE.remedy)
    else:
        yield Finding("ok", shown)


def _descriptors() -> Iterator[Finding]:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    shown = f"files that a process may have open: {limit if limit != resource.RLIM_INFINITY else 'any number'}"
    few = limit != resource.RLIM_INFINITY and limit < FEW_FILES
    yield Finding("note", shown, faults.TOO_MANY_FILES.remedy) if few else Finding("ok", shown)


def _triton() -> Iterator[Finding]:
    try:
        yield Finding("ok", f"Triton {importlib.metadata.version('triton')}: kernels for GPUs")
    except importlib.metadata.PackageNotFoundError:
        yield Finding("note", "no Triton: no kernels for GPUs", "pip install triton")


def _size(folder: Path) -> int:
    return sum(status.st_size for status in _entries(folder) if stat.S_ISREG(status.st_mode))


def _entries(folder: Path) -> list[os.stat_result]:
    try:
        with os.scandir(folder) as found:
            return [each.stat(follow_symlinks=False) for each in found]
    except OSError:
        return []


if __name__ == "__main__":
    sys.exit(main())
