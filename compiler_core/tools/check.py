"""Checks whether this machine can build and cache kernels: ``python -m compiler_core.tools.check``.

Prints a line for each check: ``ok``, ``note`` or ``PROBLEM``, what was found and, after an arrow, what to do.  With a
problem, programs still give right results, but are slower.  The exit status is 1 if there is a problem.  The command
``cutaway doctor`` makes these checks, too, and those of the notebook.
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
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from compiler_core import config
from compiler_core.codegen.build import disk_cache, external, private_folders
from compiler_core.errors import BuildError, MissingTool

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

DISTRIBUTION = "cutaway"
DRIVERS = (Path("/dev/nvidiactl"), Path("/dev/kfd"))
"""Files that exist where the driver of an NVIDIA or AMD GPU is loaded."""
MIN_FREE_BYTES = 1 << 30
MIN_OPEN_FILES = 256
PROBE = 'extern "C" int probe() { return 42; }\n'


class Finding(NamedTuple):
    """The result of one check: what was found, what to do about it, and the name of the check."""

    state: Literal["ok", "note", "PROBLEM"]
    text: str
    remedy: str = ""
    check: str = ""

    def line(self) -> str:
        """Returns the finding as text, with the remedy on a second line."""
        remedy = f"\n        -> {self.remedy}" if self.remedy else ""
        return f"{self.state:8}{self.text}{remedy}"


Check = Callable[[], Iterator[Finding]]


def findings() -> Iterator[Finding]:
    """Runs all checks in order and yields what they find.

    Example::

        problems = [each.text for each in findings() if each.state == "PROBLEM"]
    """
    return run_checks((_versions, _compiler, _cache, _read_only_caches, _temporary_folder, _open_files, _triton, _gpu))


def run_checks(checks: Iterable[Check]) -> Iterator[Finding]:
    """Runs these checks in order and yields what they find, with their names; a fault in a check is a problem."""
    for check in checks:
        name = check.__name__.strip("_")
        try:
            for finding in check():
                yield finding._replace(check=name)
        except MissingTool as error:
            yield _problem(error)._replace(check=name)
        except OSError as error:
            yield Finding("PROBLEM", external.describe_fault(error), check=name)
        except Exception as error:
            shown = f"{name.replace('_', ' ')}: not checked ({type(error).__name__}: {error})"
            remedy = f"pip install {error.name}" if isinstance(error, ModuleNotFoundError) and error.name else ""
            yield Finding("PROBLEM", shown, remedy, name)


def main() -> int:
    """Prints the findings; returns the exit status, 1 if there is a problem."""
    return print_findings(findings(), "; programs give right results, but are slower")


def print_findings(found: Iterable[Finding], meaning: str = "") -> int:
    """Prints each finding as soon as it is made, and the number of problems with what they mean.

    Returns the exit status: 1 if there is a problem, else 0.
    """
    problems = 0
    for finding in found:
        problems += finding.state == "PROBLEM"
        sys.stdout.write(f"{finding.line()}\n")
        sys.stdout.flush()
    sys.stdout.write(f"problems: {problems}{meaning}\n" if problems else "no problems\n")
    return 1 if problems else 0


def _problem(error: BuildError) -> Finding:
    text, _, remedy = str(error).partition("\n")[0].partition("; ")
    return Finding("PROBLEM", text, remedy)


def _versions() -> Iterator[Finding]:
    from packaging.specifiers import SpecifierSet

    try:
        supported = SpecifierSet(importlib.metadata.metadata(DISTRIBUTION)["Requires-Python"])
    except importlib.metadata.PackageNotFoundError:
        yield Finding("note", "Cutaway is not installed: versions of packages are not checked", "pip install .")
    else:
        yield _version("Python", platform.python_version(), supported, "use a Python of these versions")
        yield Finding("ok", f"Cutaway {importlib.metadata.version(DISTRIBUTION)}")
        yield from packages(lambda name: name == "torch")
    try:
        import torch  # noqa: F401
    except (ImportError, OSError) as error:
        yield Finding("PROBLEM", f"PyTorch cannot be imported: {error}", "install it again")


def packages(is_meant: Callable[[str], bool]) -> Iterator[Finding]:
    """Compares the packages that Cutaway needs, those for which `is_meant` holds, with what is installed."""
    from packaging.requirements import Requirement

    try:
        needed = [Requirement(each) for each in importlib.metadata.requires(DISTRIBUTION) or ()]
    except importlib.metadata.PackageNotFoundError:
        return
    for each in needed:
        if not is_meant(each.name) or (each.marker and not each.marker.evaluate({"extra": ""})):
            continue
        remedy = f'pip install "{each.name}{each.specifier}"'
        try:
            version = importlib.metadata.version(each.name)
        except importlib.metadata.PackageNotFoundError:
            yield Finding("PROBLEM", f"{each.name} is not installed", remedy)
        else:
            yield _version(each.name, version, each.specifier, remedy)


def _version(name: str, version: str, supported: SpecifierSet, remedy: str) -> Finding:
    if supported.contains(version, prereleases=True):
        return Finding("ok", f"{name} {version}")
    return Finding("PROBLEM", f"{name} {version}: Cutaway needs {supported}", remedy)


def _compiler() -> Iterator[Finding]:
    from compiler_core.codegen.build import compilers as build  # imports PyTorch

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
            found = _problem(error)
            yield found._replace(remedy=found.remedy or "set CUTAWAY_CACHE_DIR to a folder that can be written")
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
                "PROBLEM", f"{shown}: {external.describe_fault(error)}", "set CUTAWAY_CACHE_READ_FROM to other folders"
            )
        else:
            yield Finding("ok", f"{shown}, files: {sum(len(_entries(path / kind)) for kind in disk_cache.KINDS)}")


def _temporary_folder() -> Iterator[Finding]:
    yield from _space(Path(tempfile.gettempdir()))


def _space(path: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(path).free
    shown = f"free space for {path}: {free / (1 << 30):.1f} GiB"
    if free < MIN_FREE_BYTES:
        yield Finding("note", shown, external.NO_SPACE.remedy)
    else:
        yield Finding("ok", shown)


def _open_files() -> Iterator[Finding]:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    shown = f"open files allowed for a process: {limit if limit != resource.RLIM_INFINITY else 'unlimited'}"
    few = limit != resource.RLIM_INFINITY and limit < MIN_OPEN_FILES
    if few:
        yield Finding("note", shown, external.TOO_MANY_FILES.remedy)
    else:
        yield Finding("ok", shown)


def _triton() -> Iterator[Finding]:
    try:
        version = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        yield Finding("note", "no Triton: no kernels for GPUs", "pip install triton")
        return
    wrong = [each for each in packages(lambda name: name == "triton") if each.state != "ok"]
    yield from wrong or [Finding("ok", f"Triton {version}: kernels for GPUs")]


def _gpu() -> Iterator[Finding]:
    import torch

    with warnings.catch_warnings(record=True) as caught:  # PyTorch warns of what keeps it from using a GPU
        warnings.simplefilter("always")
        is_usable = torch.cuda.is_available()
    if is_usable:
        for index in range(torch.cuda.device_count()):
            yield Finding("ok", f"GPU {index}: {torch.cuda.get_device_name(index)}")
    elif not any(driver.exists() for driver in DRIVERS):
        yield Finding("note", "no GPU: kernels are for the CPU")
    elif not (torch.version.cuda or torch.version.hip):
        yield Finding(
            "note",
            "there is a GPU, but this PyTorch is built for CPUs only",
            "install PyTorch for this GPU, see https://pytorch.org/get-started/locally",
        )
    else:
        reason = str(caught[0].message).partition("\n")[0] if caught else "torch.cuda.is_available() is False"
        yield Finding(
            "note", f"PyTorch cannot use the GPU: {reason}", "update its driver, and look at CUDA_VISIBLE_DEVICES"
        )


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
